"""A reward made from the arguments of somebody's own loop, and the sizes it can have."""

import dataclasses
from typing import Any

import jax

from element_rl.rewards import INTRINSIC_NAMES, Reward, check_name, make_reward
from element_rl.rewards.element import ElementReward, replay_defaults, resolved_memory, update_window
from element_rl.rewards.recent_scale import RecentlyScaled


def made_reward(name: str, env_id: str | None, total_steps: int, recent_scale: bool, options: dict[str, Any]) -> Reward:
    """The reward of a name, its windows and memory fit for a run of `total_steps`, as `element explore` makes it."""
    if name in ("extrinsic", "random"):
        raise ValueError(f"{name} is no intrinsic reward; leave this out instead.")
    check_name(name, INTRINSIC_NAMES)
    if name != "element":
        made = make_reward(name, **options)
        return RecentlyScaled(made) if recent_scale else made
    if recent_scale:
        raise ValueError("recent_scale is for other rewards than element: its terms are within [0, 1].")
    window = update_window(total_steps, options.get("update_interval"), options.get("update_steps"))
    paper = make_reward("element", env=env_id)
    assert isinstance(paper, ElementReward)
    usual = replay_defaults(options.get("estimator", paper.config.estimator))
    reward = make_reward("element", env=env_id, **{**usual, **options, **window})
    assert isinstance(reward, ElementReward)
    memory = resolved_memory(reward.config, total_steps, jax.default_backend() == "cpu")
    return ElementReward(dataclasses.replace(reward.config, memory=memory))


def check_sizes(num_envs: int, capacity: int, max_episode_steps: int, total_steps: int) -> None:
    """Refuses what cannot work, with one sentence."""
    sizes = {"num_envs": num_envs, "max_episode_steps": max_episode_steps, "total_steps": total_steps}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if capacity < num_envs * (max_episode_steps + 1) or capacity % num_envs:
        raise ValueError(
            f"A capacity of {capacity} does not do for {num_envs} environments with episodes of up to {max_episode_steps} "
            f"steps: it must be a multiple of {num_envs} and at least {num_envs * (max_episode_steps + 1)}; or lower "
            "max_episode_steps, which takes longer episodes for several."
        )
