"""Environments: what a robot is (robots), and populations of them acting in parallel (collector).
Imports no JAX."""
