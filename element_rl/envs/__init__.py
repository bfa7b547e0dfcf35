"""Environments: from a name to an environment and its description. Imports no JAX."""
