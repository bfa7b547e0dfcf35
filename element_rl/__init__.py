"""Exploration without reward: episodic state entropy plus a lifelong nearest-neighbour memory.

Importing the package is cheap on purpose: environment workers import parts of it and must not load JAX.
"""

__version__ = "0.1.0"
