"""The workers of all agents: processes that act side by side, started again where they were when
one dies. No JAX.

    crew.start(agent, worker, parameters, steps)        the worker acts, with these parameters, for so many steps at most
    agent, worker, rollout = crew.next()                the next one that has finished, in order of arrival

Each worker has memory of its own that it shares with the main process: the parameters it acts with
are written there before it starts, its rollout is read there before it starts again. (The paper's
network is 14 MB: 1 ms to copy, 12 ms through a pipe.) Processes are started and ended as those of
`acting.workers` are. With `num_workers=0` one worker per agent acts in this process.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import numpy as np

from element_rl.acting.rollout import Place, Rollout
from element_rl.acting.rollout_actor import Actor, Facts, Surroundings, parameter_key
from element_rl.acting.workers import NICENESS, worker_surroundings

_SPAWN = multiprocessing.get_context("spawn")


class WorkerError(ValueError):
    """A worker failed more often than it may; the message says which and why."""


class Crew:
    """All workers of all agents. Places are where they were when they last delivered."""

    def __init__(
        self,
        surroundings: Surroundings,
        seeds: Sequence[int],
        num_workers: int,
        restarts: int,
        places: Mapping[tuple[int, int], Place] | None = None,
    ) -> None:
        self.restarts = restarts
        self.places = {
            (agent, worker): Place.first(surroundings.hidden_size)
            for agent in range(len(seeds))
            for worker in range(max(num_workers, 1))
        } | dict(places or {})
        kind = ProcessWorker if num_workers else LocalWorker
        self.workers: dict[tuple[int, int], ProcessWorker | LocalWorker] = {}
        self._busy: dict[tuple[int, int], int] = {}  # steps each was told to act for
        self._finished: deque[tuple[int, int]] = deque()
        self._failures = dict.fromkeys(self.places, 0)  # in a row
        try:
            for who, place in self.places.items():
                self.workers[who] = kind(surroundings, seeds[who[0]], who, place)
        except BaseException:
            self.close()
            raise

    def start(
        self, agent: int, worker: int, parameters: Mapping[str, np.ndarray], steps: int
    ) -> None:
        arrays = self.workers[agent, worker].arrays
        for name, array in parameters.items():
            arrays[parameter_key(name)][...] = array
        self._begin((agent, worker), steps)

    def next(self) -> tuple[int, int, Rollout]:
        """Blocks until a worker has delivered. The rollout's arrays are the worker's own until it
        is started again."""
        while True:
            if not self._finished:
                self._wait()
            who = self._finished.popleft()
            steps = self._busy.pop(who)
            try:
                rollout = self.workers[who].result()
            except _Failure as failure:
                self._start_again(who, steps, str(failure))
                continue
            self._failures[who] = 0
            self.places[who] = self.places[who].after(rollout)
            return *who, rollout

    def close(self) -> None:
        for worker in self.workers.values():
            worker.hang_up()
        for worker in self.workers.values():
            worker.end()

    def _begin(self, who: tuple[int, int], steps: int) -> None:
        self.workers[who].begin(steps)
        self._busy[who] = steps

    def _wait(self) -> None:
        assert self._busy, "nobody acts"
        connections = {self.workers[who].connection: who for who in self._busy}
        if None in connections:  # they act in this process, when asked for the result
            self._finished.extend(self._busy)
        else:
            self._finished.extend(connections[ready] for ready in wait(list(connections)))  # type: ignore[arg-type, index]

    def _start_again(self, who: tuple[int, int], steps: int, reason: str) -> None:
        self._failures[who] += 1
        agent, worker = who
        if self._failures[who] > self.restarts:
            times = f"{self._failures[who]} times in a row" if self.restarts else "once"
            raise WorkerError(
                f"Worker {worker} of agent {agent} failed {times}, the last time because {reason}"
            )
        self.workers[who].start_again(self.places[who])
        self._begin(who, steps)


class _Failure(Exception):  # noqa: N818 (the crew turns it into an error, or into another try)
    """A worker could not finish; why, as the end of a sentence."""


class LocalWorker:
    """A worker in this process."""

    connection: Connection | None = None

    def __init__(
        self, surroundings: Surroundings, seed: int, who: tuple[int, int], place: Place
    ) -> None:
        layout = surroundings.array_layout().items()
        self.arrays: dict[str, np.ndarray] = {
            name: np.zeros(shape, dtype) for name, (shape, dtype) in layout
        }
        self._actor = Actor(surroundings, seed, who[1], self.arrays)
        self._actor.go_to(place)
        self._steps = 0

    def begin(self, steps: int) -> None:
        self._steps = steps

    def result(self) -> Rollout:
        try:
            return _rollout(self.arrays, self._actor.act(self._steps))
        except Exception as error:
            raise _Failure(_reason(error)) from error

    def start_again(self, place: Place) -> None:
        with contextlib.suppress(Exception):  # what is wrong is found when it acts
            self._actor.go_to(place)

    def hang_up(self) -> None:
        pass

    def end(self) -> None:
        self._actor.close()


class ProcessWorker:
    """The main process's end of a worker process."""

    def __init__(
        self, surroundings: Surroundings, seed: int, who: tuple[int, int], place: Place
    ) -> None:
        try:
            self._pickled = pickle.dumps((surroundings, seed, who[1]))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"The environment or its options cannot be sent to worker processes ({error}); "
                "define them in a module that "
                "can be imported, or use --workers 0."
            ) from error
        self._name = f"worker-{who[0]}-{who[1]}"
        self._layout = surroundings.array_layout()
        sizes = {
            name: int(np.prod(shape)) * np.dtype(dtype).itemsize
            for name, (shape, dtype) in self._layout.items()
        }
        self._blocks = {name: _SPAWN.RawArray(ctypes.c_byte, size) for name, size in sizes.items()}
        self.arrays = _views(self._blocks, self._layout)
        self._spawn(place)

    def begin(self, steps: int) -> None:
        self._send("act", steps)

    def result(self) -> Rollout:
        try:
            facts, failure = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            raise _Failure(f"its process died ({_exit_text(self._process.exitcode)}).") from None
        if failure is not None:
            raise _Failure(failure)
        return _rollout(self.arrays, facts)

    def start_again(self, place: Place) -> None:
        self.hang_up()
        self.end()
        self._spawn(place)

    def hang_up(self) -> None:
        """Close the pipe: the process leaves when it next reads or writes it."""
        self.connection.close()

    def end(self) -> None:
        """In peace if it is idle, by force if not. Nothing of it remains."""
        stages: tuple[Literal["terminate", "kill"] | None, ...] = (None, "terminate", "kill")
        for means in stages:
            if means is not None and self._process.is_alive():
                getattr(self._process, means)()
            self._process.join(timeout=1.0)

    def _spawn(self, place: Place) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        arguments = (self._pickled, self._blocks, self._layout, theirs)
        with worker_surroundings():
            self._process = _SPAWN.Process(
                target=_serve, args=arguments, name=self._name, daemon=True
            )
            self._process.start()
        theirs.close()  # or the end of file would never be read
        self._send("go_to", place)

    def _send(self, command: str, argument: Any) -> None:
        # A process that died has left the reason, or its end of file, in the pipe: `result` will
        # find it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((command, argument))


def _serve(
    pickled: bytes, blocks: Mapping[str, Any], layout: Mapping[str, Any], connection: Connection
) -> None:
    """The worker process: only `act` is answered, with what it came to or with why it failed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # the main process decides; this one ends when its pipe closes
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    actor: Actor | None = None
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            # made by the main process a moment ago, from no file
            surroundings, seed, worker = pickle.loads(pickled)
            actor = Actor(surroundings, seed, worker, _views(blocks, layout))
            # what is here now stays: the collector of garbage need not walk through it again
            gc.freeze()
            while True:
                command, argument = connection.recv()
                facts = getattr(actor, command)(argument)
                if command == "act":
                    connection.send((facts, None))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            connection.send((None, _reason(error)))
    if actor is not None:
        actor.close()


def _rollout(arrays: Mapping[str, np.ndarray], facts: Facts) -> Rollout:
    count, begins, terminated, truncated, seed = facts
    return Rollout(
        arrays["frames"][: count + 1],
        arrays["actions"][:count],
        arrays["rewards"][:count],
        arrays["positions"][: count + 1],
        begins,
        terminated,
        truncated,
        arrays["lstm"],
        arrays["lstm_after"],
        seed,
    )


def _views(
    blocks: Mapping[str, Any], layout: Mapping[str, tuple[tuple[int, ...], type]]
) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(blocks[name], dtype).reshape(shape)
        for name, (shape, dtype) in layout.items()
    }


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text}." if isinstance(error, ValueError) else f"{type(error).__name__}: {text}."


def _exit_text(exitcode: int | None) -> str:
    if exitcode is None:
        return "it no longer answers"
    return f"signal {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"
