"""Robots that are paid for one thing only: to be far from where they began.

The reward is 1 in every step in which the robot is beyond a line, else 0. Random actions hardly
ever lead there, so an agent that learns from this reward alone is never paid, and learns nothing.

    element explore sparse_tasks:SparseCheetah-v0 --extrinsic-weight 1   # in this folder
"""

import math
from typing import Any

import gymnasium


class PaidBeyond(gymnasium.Wrapper):
    """Pays 1 where the robot is so many metres from the origin, and nothing else."""

    def __init__(self, env: gymnasium.Env, metres: float) -> None:
        super().__init__(env)
        self._metres = metres

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        away = math.hypot(info["x_position"], info.get("y_position", 0.0))
        return observation, float(away >= self._metres), terminated, truncated, info


def cheetah(metres: float = 15.0, **options: Any) -> gymnasium.Env:
    """A HalfCheetah; 5 m is what Houthooft et al. (2016) ask of theirs, forwards."""
    return PaidBeyond(gymnasium.make("HalfCheetah-v5", **options), metres)


def ant(metres: float = 10.0, **options: Any) -> gymnasium.Env:
    """An Ant, whose falls end nothing: it may get up again."""
    settings = {"terminate_when_unhealthy": False, "include_cfrc_ext_in_observation": False}
    return PaidBeyond(gymnasium.make("Ant-v5", **settings | options), metres)


gymnasium.register("SparseCheetah-v0", entry_point=cheetah, max_episode_steps=500)
gymnasium.register("SparseAnt-v0", entry_point=ant, max_episode_steps=500)
