"""A random policy in many processes at once: its episodes, in their order, until there are enough
steps.

Episode n of a seed is the same whatever the number of processes, and episodes come in order: so the
data is the same too. The processes are as those of `acting.workers`: they import no JAX, leave
Ctrl-C to the main process, and end when their pipe is closed, however the main process ends. Each
has a pipe of its own: one that is killed in the middle of a frame leaves nobody waiting.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float32, UInt8

from element_rl.acting.workers import NICENESS, worker_surroundings
from element_rl.envs.screens import make_screen
from element_rl.training.encoder.frames import frame_entropy

AHEAD = 2  # episodes that a process is told of before the first of them is wanted
_SPAWN = multiprocessing.get_context("spawn")


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
    started: list[tuple[BaseProcess, Connection]] = []
    try:
        with worker_surroundings():
            for _ in range(workers):
                started.append(_start(registration, dict(options)))
        yield _in_order([connection for _, connection in started], seed, first, hold_steps)
    finally:
        for process, connection in started:
            connection.close()
            process.kill()
            process.join()


def random_episode(
    env: gymnasium.Env, seed: int, number: int, hold_steps: int = 1
) -> RandomEpisode:
    """One episode of uniformly random actions, each held for some steps; it depends on its seed and
    number alone."""
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


def _in_order(
    connections: list[Connection], seed: int, first: int, hold_steps: int
) -> Iterator[RandomEpisode]:
    """Process i has episodes i, i + the number of processes, and so on."""
    told = AHEAD * len(connections)
    for number in range(first, first + told):
        _tell(connections[(number - first) % len(connections)], (seed, number, hold_steps))
    for number in _numbers(first):
        connection = connections[(number - first) % len(connections)]
        try:
            episode, failure = connection.recv()
        except (EOFError, ConnectionResetError):
            episode, failure = None, "it died, perhaps for want of memory"
        if failure is not None:
            raise ValueError(
                f"A process could not collect episode {number} ({failure}): what was collected "
                "before is kept, go on with "
                "--resume, perhaps with fewer --workers."
            )
        _tell(connection, (seed, number + told, hold_steps))
        yield episode


def _tell(connection: Connection, episode: tuple[int, int, int]) -> None:
    # A process that died has left its end of file in the pipe: it is found when its episode is
    # wanted.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(episode)


def _numbers(first: int) -> Iterator[int]:
    number = first
    while True:
        yield number
        number += 1


def _start(
    registration: gymnasium.envs.registration.EnvSpec, options: dict[str, Any]
) -> tuple[BaseProcess, Connection]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(registration, options, theirs), daemon=True)
    process.start()
    theirs.close()  # or the end of file would never be read
    return process, ours


def _serve(
    registration: gymnasium.envs.registration.EnvSpec,
    options: dict[str, Any],
    connection: Connection,
) -> None:
    """The process: an environment, and episodes in it until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the main process decides
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            gymnasium.registry.setdefault(registration.id, registration)
            env = make_screen(registration.id, **options)
            gc.freeze()
            while True:
                connection.send((random_episode(env, *connection.recv()), None))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            connection.send((None, f"{type(error).__name__}: {error}"))
