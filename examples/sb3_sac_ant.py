"""Stable-Baselines3's SAC with ELEMENT on Ant: the agent is rewarded for new states only.

    pip install 'element-rl[sb3]'
    python examples/sb3_sac_ant.py --steps 200000

It prints how many cells of half a metre the agent has visited, beside as many steps of random
actions. Ant learns slowly: up to some 300,000 steps it learns to stay on its feet, and a random
policy, which falls and starts again, covers as much.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

from element_rl.integrations.sb3 import IntrinsicReplayBuffer, LogIntrinsic

ENV = "Ant-v5"
CELL = 0.5  # metres


def make() -> gymnasium.Env:
    return gymnasium.make(ENV, include_cfrc_ext_in_observation=False)  # 27 numbers, as in the paper


class Visited(BaseCallback):
    """The cells of the ground the agent has been in."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: set[tuple[int, int]] = set()

    def _on_step(self) -> bool:
        self.cells.update(cell_of(info) for info in self.locals["infos"])
        return True


def cell_of(info: dict[str, Any]) -> tuple[int, int]:
    return int(np.floor(info["x_position"] / CELL)), int(np.floor(info["y_position"] / CELL))


def cells_of_random_actions(steps: int, seed: int) -> set[tuple[int, int]]:
    env, cells = make(), set()
    env.action_space.seed(seed)
    env.reset(seed=seed)
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        cells.add(cell_of(info))
        if terminated or truncated:
            env.reset()
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="where to save the model and its replay buffer")
    options = parser.parse_args()
    torch.set_num_threads(1)  # small networks: more threads only wait for each other
    visited = Visited()
    model = SAC(
        "MlpPolicy",
        make(),
        replay_buffer_class=IntrinsicReplayBuffer,
        # The robot's name gives ELEMENT its settings, its position and its orientation.
        replay_buffer_kwargs={
            "reward": "element",
            "env_id": ENV,
            "total_steps": options.steps,
            "seed": options.seed,
        },
        learning_starts=min(5_000, options.steps // 2),
        seed=options.seed,
        device="cpu",
        verbose=1,
    )
    model.learn(options.steps, callback=[visited, LogIntrinsic()], log_interval=20)
    if options.save:
        model.save(options.save)
        model.save_replay_buffer(f"{options.save}_replay_buffer")  # with the notes and the memory
    random = cells_of_random_actions(options.steps, options.seed)
    print(
        f"SAC + ELEMENT   {len(visited.cells):4d} cells visited in {options.steps:,} steps of {ENV}"
    )
    print(f"random actions  {len(random):4d}")


if __name__ == "__main__":
    main()
