"""A random policy in many processes at once: its episodes, in their order, until there are enough steps.

Episode n of a seed is the same whatever the number of processes, and the episodes are stored in order: so is the data. The
processes are as those of `evaluators`: they import no JAX, leave Ctrl-C to the main process, and end with it however it ends.
"""

import contextlib
import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float32, UInt8

from element_rl.envs.screens import make_screen
from element_rl.envs.workers import NICENESS, worker_surroundings
from element_rl.pretraining.frames import frame_entropy

AHEAD = 2  # episodes begun per process before the first of them is wanted


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
    """Episodes `first`, `first` + 1, ... of a seed, without end; `workers` 0 runs them in this process."""
    made = make_screen(env, **options)
    if workers == 0:
        try:
            yield (random_episode(made, seed, number, hold_steps) for number in _numbers(first))
        finally:
            made.close()
        return
    assert made.spec is not None
    registration = gymnasium.spec(made.spec.id)
    made.close()
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_prepare, initargs=(registration, dict(options))
    )
    try:
        yield _in_order(pool, seed, first, hold_steps, AHEAD * workers)
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


def random_episode(env: gymnasium.Env, seed: int, number: int, hold_steps: int = 1) -> RandomEpisode:
    """One episode of uniformly random actions, each held for some steps; it depends on its seed and number alone."""
    generator = np.random.default_rng([seed, number])
    frame, info = env.reset(seed=int(generator.integers(2**31)))
    frames, positions, total, done = [frame], [info["position"]], 0.0, False
    action = 0
    while not done:
        if (len(frames) - 1) % hold_steps == 0:
            action = int(generator.integers(env.action_space.n))
        frame, reward, terminated, truncated, info = env.step(action)
        frames.append(frame)
        positions.append(info["position"])
        total, done = total + float(reward), terminated or truncated
    seen = np.stack(frames)
    return RandomEpisode(seen, np.stack(positions).astype(np.float32), total, frame_entropy(seen))


def _in_order(pool: ProcessPoolExecutor, seed: int, first: int, hold_steps: int, ahead: int) -> Iterator[RandomEpisode]:
    waiting: deque[Future[RandomEpisode]] = deque()
    for number in _numbers(first):
        with worker_surroundings():  # processes are born here, when there is work for them
            waiting.append(pool.submit(_run, seed, number, hold_steps))
        if len(waiting) >= ahead:
            try:
                yield waiting.popleft().result()
            except BrokenProcessPool as error:
                raise ValueError(
                    "A process that collects frames died, perhaps for want of memory: go on with --resume and fewer "
                    "--workers, what was collected is kept."
                ) from error


def _numbers(first: int) -> Iterator[int]:
    number = first
    while True:
        yield number
        number += 1


_own_env: list[gymnasium.Env] = []  # of a worker process


def _prepare(registration: gymnasium.envs.registration.EnvSpec, options: dict[str, Any]) -> None:
    """In a worker process, once: its environment, and an end when the main process has gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    gymnasium.registry.setdefault(registration.id, registration)
    _own_env.append(make_screen(registration.id, **options))
    gc.freeze()


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(seed: int, number: int, hold_steps: int) -> RandomEpisode:
    return random_episode(_own_env[0], seed, number, hold_steps)
