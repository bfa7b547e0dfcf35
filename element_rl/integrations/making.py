"""A reward made from the arguments of somebody's own loop, and the sizes it can have."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import jax

from element_rl.rewards import INTRINSIC_NAMES, Reward, check_name, make_reward
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import (
    USUAL_STEPS,
    ElementConfig,
    replay_defaults,
    resolved_memory,
    states_remembered,
    update_window,
)
from element_rl.rewards.recent_scale import RecentlyScaled


def made_reward(
    name: str,
    env_id: str | None,
    total_steps: int | None,
    recent_scale: bool,
    options: dict[str, Any],
) -> Reward:
    """The reward of a name, its windows and memory fit for a run of `total_steps`, as `element
    explore` makes it.

    Where these are None, its windows grow with the run.
    """
    if name in ("extrinsic", "random"):
        raise ValueError(f"{name} is no intrinsic reward; leave this out instead.")
    check_name(name, INTRINSIC_NAMES)
    if name != "element":
        made = make_reward(name, **options)
        return RecentlyScaled(made) if recent_scale else made
    if recent_scale:
        raise ValueError(
            "recent_scale is for other rewards than element: its terms are within [0, 1]."
        )
    window = element_window(total_steps, options)
    paper = make_reward("element", env=env_id)
    assert isinstance(paper, ElementReward)
    usual = replay_defaults(options.get("estimator", paper.config.estimator))
    reward = make_reward("element", env=env_id, **{**usual, **options, **window})
    assert isinstance(reward, ElementReward)
    memory = resolved_memory(
        reward.config, total_steps or USUAL_STEPS, jax.default_backend() == "cpu"
    )
    return ElementReward(dataclasses.replace(reward.config, memory=memory))


def element_window(total_steps: int | None, options: Mapping[str, Any]) -> dict[str, int]:
    """U and T_u for a run of this length, unless the options say others."""
    asked = (options.get(name) for name in ("update_interval", "update_steps", "first_interval"))
    return update_window(total_steps, *asked)


def warn_of_closed_windows(config: ElementConfig, total_steps: int | None) -> bool:
    """Says so where nothing can be remembered in as many steps; whether that was said."""
    closed = (
        total_steps is not None
        and config.lifelong_weight > 0
        and states_remembered(total_steps, config) == 0
    )
    if closed:
        warnings.warn(
            f"The lifelong memory stays empty in a run of {total_steps:,} steps: "
            f"{_first_window(config)}. Give a "
            "smaller update_interval, or a larger update_steps, in options.",
            stacklevel=4,
        )
    return closed


def warn_of_an_empty_memory(config: ElementConfig, steps: int) -> None:
    """Says so where no window has been open in these steps."""
    if states_remembered(steps, config) == 0:
        warnings.warn(
            f"The lifelong memory is empty after {steps:,} steps, and only the episodic reward was "
            "paid: "
            f"{_first_window(config)}. If the run ends here, give total_steps its true length, or "
            "leave it out.",
            stacklevel=4,
        )


def _first_window(config: ElementConfig) -> str:
    interval, steps = config.windows[0]
    return (
        f"its first window opens at step {interval:,}"
        if steps > 1
        else "windows of 1 step take in nothing"
    )


def check_sizes(
    num_envs: int, capacity: int, max_episode_steps: int, total_steps: int | None
) -> None:
    """Refuses what cannot work, with one sentence."""
    sizes = {
        "num_envs": num_envs,
        "max_episode_steps": max_episode_steps,
        "total_steps": total_steps,
    }
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if capacity < num_envs * (max_episode_steps + 1) or capacity % num_envs:
        raise ValueError(
            f"A capacity of {capacity} does not do for {num_envs} environments with episodes of up "
            f"to {max_episode_steps} "
            f"steps: it must be a multiple of {num_envs} and at least "
            f"{num_envs * (max_episode_steps + 1)}; or lower "
            "max_episode_steps, which takes longer episodes for several."
        )
