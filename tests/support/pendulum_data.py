"""Datasets of Pendulum for tests: a scripted controller that swings up and balances some of the
time, and random actions."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import gymnasium
import numpy as np

from element_rl.datasets.minari_files import EpisodeRecord, write_dataset

Controller = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def medium(observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pumps energy until the pole is high, then balances; but two of three actions are random."""
    if rng.random() < 2 / 3:
        return at_random(observation, rng)
    cosine, sine, velocity = observation
    energy = velocity**2 / 6 + 5 * (cosine - 1)  # of a rod of length and mass 1, 0 at rest upright
    angle = np.arctan2(sine, cosine)
    balanced = cosine > 0.8 and abs(velocity) < 4
    torque = -12 * angle - 3 * velocity if balanced else -2 * np.sign(velocity) * np.sign(energy)
    return np.clip([torque], -2, 2).astype(np.float32)


def at_random(observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-2, 2, size=1).astype(np.float32)


def episodes(
    controller: Controller, number: int, seed: int, steps: int = 200, agent: int | None = None
) -> Iterator[EpisodeRecord]:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=steps)
    rng = np.random.default_rng(seed)
    for _ in range(number):
        observations, actions, rewards, done = (
            [env.reset(seed=int(rng.integers(2**31)))[0]],
            [],
            [],
            False,
        )
        while not done:
            actions.append(controller(observations[-1], rng))
            observation, reward, _, done, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(reward)
        yield EpisodeRecord(
            np.array(observations, np.float32),
            np.array(actions),
            np.array(rewards),
            terminations=np.zeros(steps, bool),
            truncations=np.arange(steps) == steps - 1,
            metadata={} if agent is None else {"agent": agent},
        )
    env.close()


def write(
    root: Path, name: str, records: Iterable[EpisodeRecord], steps: int = 200, named: bool = True
) -> str:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=steps)
    write_dataset(
        name,
        records,
        env.observation_space,
        env.action_space,
        env.spec if named else None,
        root=root,
    )
    return name
