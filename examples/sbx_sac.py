"""SBX's SAC (JAX) with a bonus of your choice, in a maze of nine rooms.

    pip install 'element-rl[sb3]'
    python examples/sbx_sac.py --steps 20000 --reward element

SBX takes the same buffer as Stable-Baselines3. It draws the batches of all `gradient_steps` at
once, so a reward with networks is updated once for all of them. The script prints how many cells of
the maze the agent has visited, with the bonus and without.
"""

import argparse

import gymnasium
import numpy as np
import torch
from sbx import SAC

from element_rl.envs.point_maze import (
    CELL,
    EPISODE_STEPS,
    SIZE,
    WALL,
)  # importing it registers PointMaze-v0
from element_rl.integrations.sb3 import IntrinsicReplayBuffer


def train(reward: str | None, steps: int, seed: int) -> SAC:
    """A model that has learned for so many steps, with a bonus or with the maze's own reward: 1 in
    the last room."""
    bonus = {
        "reward": reward,
        "total_steps": steps,
        "max_episode_steps": EPISODE_STEPS,
        "position": ("x_position", "y_position"),
        "seed": seed,
    }
    model = SAC(
        "MlpPolicy",
        gymnasium.make("PointMaze-v0"),
        buffer_size=max(steps, 2 * EPISODE_STEPS),
        learning_starts=min(1_000, steps // 2),
        train_freq=16,
        gradient_steps=16,
        replay_buffer_class=None if reward is None else IntrinsicReplayBuffer,
        replay_buffer_kwargs=None if reward is None else bonus,
        seed=seed,
    )
    return model.learn(steps)


def coverage(model: SAC) -> float:
    """The share of the free cells that is in the replay buffer."""
    buffer = model.replay_buffer
    stored = buffer.next_observations[: buffer.size(), 0]
    cells = np.floor((stored + 1.0) * SIZE / 2.0 / CELL).astype(int).clip(0, len(WALL) - 1)
    return len(np.unique(cells, axis=0)) / float((~WALL).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--steps", type=int, default=20_000, help="environment steps of each of the two agents"
    )
    parser.add_argument(
        "--reward", default="element", help="element, rnd, ngu, re3, rise, apt, icm or e3b"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for reward in (None, options.reward):
        model = train(reward, options.steps, options.seed)
        name = "SAC alone" if reward is None else f"SAC + {reward}"
        print(f"{name:<16} {coverage(model):6.1%} of the maze seen in {options.steps:,} steps")


if __name__ == "__main__":
    main()
