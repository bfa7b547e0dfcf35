"""A random policy in many processes at once: its episodes, in their order, until there are enough
steps.

Episode n of a seed is the same whatever the number of processes, and episodes come in order: so the
data is the same too. Each process has a pipe of its own: one that is killed in the middle of a
frame leaves nobody waiting.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float32, UInt8

from element_rl.acting.episode import Step, run_episode
from element_rl.acting.policies import RandomPolicy
from element_rl.acting.processes import Worker, WorkerFailure, kill_workers
from element_rl.envs.make import EnvMaker, env_maker
from element_rl.training.encoder.frames import frame_entropy

AHEAD = 2  # episodes that a process is told of before the first of them is wanted


@dataclass(frozen=True)
class RandomEpisode:
    """What a random policy saw."""

    frames: UInt8[np.ndarray, "N H W"]  # from the reset on, the last one included
    positions: Float32[np.ndarray, "N 2"]
    task_return: float
    entropy: float


@contextlib.contextmanager
def random_episodes(
    env: str, options: Mapping[str, Any], seed: int, first: int, hold_steps: int, workers: int
) -> Iterator[Iterator[RandomEpisode]]:
    """Episodes `first`, `first` + 1, ... of a seed, without end; `workers` 0 runs them in this
    process."""
    make = env_maker(env, options)
    here = RandomEpisodes(make)  # refuses what cannot be made
    if workers == 0:
        try:
            yield (here.episode(seed, number, hold_steps) for number in count(first))
        finally:
            here.close()
        return
    here.close()
    started: list[Worker] = []
    try:
        for number in range(workers):
            started.append(Worker(f"random-{number}", RandomEpisodes, (make,)))
        yield _in_order(started, seed, first, hold_steps)
    finally:
        kill_workers(started)
        for worker in started:
            worker.hang_up()


class RandomEpisodes:
    """What a process serves: an environment, and episodes in it."""

    def __init__(self, make: EnvMaker) -> None:
        self._env = make()

    def episode(self, seed: int, number: int, hold_steps: int) -> RandomEpisode:
        return random_episode(self._env, seed, number, hold_steps)

    def close(self) -> None:
        self._env.close()


def random_episode(
    env: gymnasium.Env, seed: int, number: int, hold_steps: int = 1
) -> RandomEpisode:
    """One episode of uniformly random actions, each held for some steps; it depends on its seed and
    number alone."""
    frames, positions = [], []

    def keep(step: Step) -> None:
        frames.append(step.observation)
        positions.append(step.info["position"])

    policy = RandomPolicy(env.action_space, hold_steps)
    total, _ = run_episode(env, policy, (seed, number), False, keep)
    seen = np.stack(frames)
    return RandomEpisode(seen, np.stack(positions).astype(np.float32), total, frame_entropy(seen))


def _in_order(
    workers: list[Worker], seed: int, first: int, hold_steps: int
) -> Iterator[RandomEpisode]:
    """Process i has episodes i, i + the number of processes, and so on."""
    told = AHEAD * len(workers)
    for number in range(first, first + told):
        workers[(number - first) % len(workers)].send("episode", seed, number, hold_steps)
    for number in count(first):
        worker = workers[(number - first) % len(workers)]
        try:
            episode = worker.receive()
        except WorkerFailure as failure:
            died = failure.when == "died"
            reason = "it died, perhaps for want of memory" if died else str(failure).rstrip(".")
            raise ValueError(
                f"A process could not collect episode {number} ({reason}): what was collected "
                "before is kept, go on with --resume, perhaps with fewer --workers."
            ) from failure
        worker.send("episode", seed, number + told, hold_steps)
        yield episode
