"""Environments on the device: many worlds that a compiled program steps together."""
