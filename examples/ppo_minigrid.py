"""PPO with on-policy ELEMENT on MiniGrid: rooms behind closed doors, with hardly any reward.

    pip install 'element-rl[sb3]' minigrid
    python examples/ppo_minigrid.py --steps 60000

The script trains the same agent twice, with and without the bonus, and counts the cells it has
visited.
"""

import argparse
from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers its environments
import torch
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from element_rl.integrations.sb3 import IntrinsicCallback


class Place(gymnasium.Wrapper):
    """Writes the agent's position into the info, and keeps all positions it has visited."""

    def __init__(self, env: gymnasium.Env, visited: set[tuple[int, int]]) -> None:
        super().__init__(env)
        self.visited = visited

    def reset(self, **_: Any) -> Any:
        return self.env.reset(seed=0)  # one layout, the same in all episodes

    def step(self, action: Any) -> Any:
        *told, info = self.env.step(action)
        x, y = (int(part) for part in self.unwrapped.agent_pos)
        self.visited.add((x, y))
        return *told, {**info, "x": x, "y": y}


def train(env: str, steps: int, with_bonus: bool, seed: int) -> set[tuple[int, int]]:
    """The places a new agent visits in so many steps."""
    visited: set[tuple[int, int]] = set()

    def make() -> gymnasium.Env:
        # its image is 7×7 cells: rewards take it for numbers
        return Place(ImgObsWrapper(gymnasium.make(env)), visited)

    model = PPO(
        "MlpPolicy",
        make_vec_env(make, 8, seed=seed),
        n_steps=128,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
    )
    bonus = IntrinsicCallback(
        "element",
        intrinsic_only=False,
        weight=0.1,
        position=("x", "y"),
        max_episode_steps=200,
        seed=seed,
    )
    model.learn(steps, callback=bonus if with_bonus else None)
    return visited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--env", default="MiniGrid-MultiRoom-N4-S5-v1")
    parser.add_argument(
        "--steps", type=int, default=60_000, help="environment steps of each of the two agents"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # small networks: more threads only wait for each other
    for with_bonus in (False, True):
        visited = train(options.env, options.steps, with_bonus, options.seed)
        name = "PPO + ELEMENT" if with_bonus else "PPO alone"
        print(
            f"{name:<14} {len(visited):3d} cells visited in {options.steps:,} steps of "
            f"{options.env}"
        )


if __name__ == "__main__":
    main()
