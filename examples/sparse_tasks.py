"""Robots that are paid for one thing only: to be far from where they began.

    python examples/sparse_tasks.py --steps 20000

The reward is 1 in every step in which the robot is beyond a line, else 0. Random actions do not
lead there, so an agent that learns from this reward alone is never paid, and learns nothing. With
ELEMENT's reward beside it (`--extrinsic-weight`) it gets there, and then learns to stay:
docs/results/sparse-tasks.md.

The file registers `SparseCheetah-v0` and `SparseAnt-v0`, so `element explore
sparse_tasks:SparseAnt-v0 --extrinsic-weight 1`, typed in its folder, learns one of them.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import gymnasium

from element_rl.cli import main as element


class PaidBeyond(gymnasium.Wrapper):
    """Pays 1 where the robot is so many metres from the origin, and nothing else."""

    def __init__(self, env: gymnasium.Env, metres: float) -> None:
        super().__init__(env)
        self._metres = metres

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        away = math.hypot(info["x_position"], info.get("y_position", 0.0))
        return observation, float(away >= self._metres), terminated, truncated, info


def sparse_cheetah(metres: float = 15.0, **options: Any) -> gymnasium.Env:
    """A HalfCheetah, in either direction."""
    return PaidBeyond(gymnasium.make("HalfCheetah-v5", **options), metres)


def sparse_ant(metres: float = 10.0, **options: Any) -> gymnasium.Env:
    """An Ant, whose falls end nothing: it may get up again."""
    settings = {"terminate_when_unhealthy": False, "include_cfrc_ext_in_observation": False}
    return PaidBeyond(gymnasium.make("Ant-v5", **settings | options), metres)


for name in ("cheetah", "ant"):
    gymnasium.register(
        f"Sparse{name.capitalize()}-v0",
        entry_point=f"sparse_tasks:sparse_{name}",
        max_episode_steps=500,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", default="20000", help="environment steps of each agent")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # processes that act import this file, too
    command = f"explore sparse_tasks:SparseCheetah-v0 --extrinsic-weight 1 --steps {options.steps}"
    small = "--sac.hidden-sizes 64 64 --no-figures --random-seeds 0 --workers 0"
    return element([*command.split(), *small.split(), "--out", "runs/sparse-cheetah"])


if __name__ == "__main__":
    main()
