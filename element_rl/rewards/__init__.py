"""Intrinsic rewards behind one interface.

    reward = make_reward("element", lifelong_weight=0.5)

See `element_rl.rewards.interface` for the four functions every reward offers.
"""

import dataclasses
from typing import Any

from element_rl.rewards.element import PRESETS, ElementConfig, ElementReward
from element_rl.rewards.extrinsic import ExtrinsicReward
from element_rl.rewards.interface import Reward, RewardSpec

NAMES = ("element", "extrinsic")


def make_reward(name: str, env: str | None = None, **options: Any) -> Reward:
    """A reward by name. `env` chooses the paper's settings for that robot; options override them."""
    try:
        if name == "element":
            preset = PRESETS.get((env or "").split("-v")[0], ElementConfig())
            return ElementReward(dataclasses.replace(preset, **options))
        if name == "extrinsic":
            return ExtrinsicReward(**options)
    except TypeError as error:
        raise ValueError(f"The reward {name} does not take these options: {', '.join(options)} ({error}).") from error
    raise ValueError(f"There is no reward called {name!r}; choose one of {', '.join(NAMES)}.")


__all__ = ["NAMES", "Reward", "RewardSpec", "make_reward"]
