"""Exploration without reward: episodic state entropy plus a lifelong nearest-neighbour memory.

Importing the package is cheap on purpose: environment workers import parts of it and must not load
JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from element_rl.integrations import IntrinsicReward, RolloutReward

__version__ = "0.1.0"
__all__ = ["IntrinsicReward", "RolloutReward", "__version__"]


def __getattr__(name: str) -> Any:
    """The two classes for other people's loops, loaded with JAX when they are asked for."""
    if name in ("IntrinsicReward", "RolloutReward"):
        from element_rl import integrations

        return getattr(integrations, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
