"""Worker processes for agents, and the memory they share with the main process.

Workers are spawned, never forked (the main process has JAX's threads), import no JAX, use one BLAS
thread each and leave Ctrl-C to the main process. The shared memory is an unlinked file mapping
handed over at the start: it has no name, so nothing is left behind however the processes end. A
worker whose main process died reads the end of its pipe and leaves; a main process whose worker
died does the same and raises.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import numpy as np

from element_rl.acting.actors import ActorGroup, CollectorError, Population

_SPAWN = multiprocessing.get_context("spawn")
_MAIN_PROCESS_DECIDES = {signal.SIGINT, signal.SIGTERM}  # workers end when their pipe closes
_ALIGNMENT = 64  # bytes: every array begins a cache line after the one before
# where cores are short the main process goes first: all workers wait for it, it waits for the
# slowest only
NICENESS = 5
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Worker:
    """The main process's end of one worker process."""

    def __init__(
        self,
        rows: Sequence[int],
        agents: Sequence[int],
        process: BaseProcess,
        connection: Connection,
    ) -> None:
        self.rows, self.agents = rows, agents
        self.connection = connection
        self._process = process

    def send(self, command: str, *arguments: Any) -> None:
        # A worker that died has left the reason, or its end of file, in the pipe: `receive` will
        # find it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((command, arguments))

    def receive(self, when: str) -> Any:
        """The answer to the last command; CollectorError if the worker failed or died, with
        ``when`` it did."""
        try:
            answer, failure = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(timeout=5)
            cause = _exit_text(self._process.exitcode)
            raise CollectorError(
                f"The worker process of {_agents_text(self.agents)} died {when} ({cause})."
            ) from None
        if failure is not None:
            raise CollectorError(failure)
        return answer

    def hang_up(self) -> None:
        """Close the pipe: the process leaves when it next reads or writes it."""
        self.connection.close()

    def end(self, means: Literal["terminate", "kill"] | None, seconds: float) -> None:
        """Wait some seconds for the process to end, having made it if ``means`` are given."""
        if means is not None and self._process.is_alive():
            getattr(self._process, means)()
        self._process.join(timeout=seconds)


def start_workers(
    population: Population, num_workers: int
) -> tuple[list[Worker], dict[str, np.ndarray]]:
    """Share the population among processes; returns them and the arrays they share with this one."""
    layout = population.array_layout()
    block = _SPAWN.RawArray(ctypes.c_byte, _block_size(layout))
    workers: list[Worker] = []
    try:
        with worker_surroundings():
            pickled = _pickled(population)
            for share in np.array_split(np.arange(population.num_rows), num_workers):
                workers.append(_started_worker(pickled, share.tolist(), population.num_envs, block))
    except BaseException:
        stop_workers(workers)
        raise
    return workers, _views(block, layout)


def stop_workers(workers: Sequence[Worker]) -> None:
    """End all processes: in peace if they are idle, by force if not. Nothing of them remains."""
    for worker in workers:
        worker.hang_up()
    stages: tuple[Literal["terminate", "kill"] | None, ...] = (None, "terminate", "kill")
    for means in stages:
        deadline = time.monotonic() + 1.0  # for all of them together
        for worker in workers:
            worker.end(means, max(0.0, deadline - time.monotonic()))


def workers_that_answered(workers: Sequence[Worker]) -> list[Worker]:
    """Block until some of the workers have answered or died; those."""
    by_connection = {worker.connection: worker for worker in workers}
    return [by_connection[ready] for ready in wait(list(by_connection))]  # type: ignore[index]


def local_arrays(population: Population) -> dict[str, np.ndarray]:
    """The same arrays for agents that act in this process."""
    return {
        name: np.zeros(shape, dtype) for name, (shape, dtype) in population.array_layout().items()
    }


def _pickled(population: Population) -> bytes:
    try:
        return pickle.dumps(population)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            "The policy, the environment or its options cannot be sent to worker processes "
            f"({error}); define them in "
            "a module that can be imported, or use num_workers=0."
        ) from error


def _started_worker(pickled: bytes, rows: Sequence[int], num_envs: int, block: Any) -> Worker:
    ours, theirs = _SPAWN.Pipe()
    agents = sorted({row // num_envs for row in rows})
    process = _SPAWN.Process(
        target=_serve,
        args=(pickled, rows, agents, block, theirs),
        name=f"actors-{rows[0]}",
        daemon=True,
    )
    process.start()
    theirs.close()  # or the end of file would never be read
    return Worker(rows, agents, process, ours)


def _agents_text(agents: Sequence[int]) -> str:
    return f"agent {agents[0]}" if len(agents) == 1 else f"agents {agents[0]} to {agents[-1]}"


def _serve(
    pickled: bytes, rows: Sequence[int], agents: Sequence[int], block: Any, connection: Connection
) -> None:
    """The worker process: build the agents, then answer commands until the main process closes the
    pipe."""
    for number in _MAIN_PROCESS_DECIDES:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        # made by the main process a moment ago, from no file
        population: Population = pickle.loads(pickled)
        group = ActorGroup(population, rows, _views(block, population.array_layout()))
    except Exception as error:
        text = f"The worker process of {_agents_text(agents)} could not start: {type(error).__name__}: {error}"
        _answer(connection, None, text)
        return
    gc.freeze()  # what is here now stays: the collector of garbage need not walk through it again
    while True:
        try:
            command, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            break
        try:
            answer, failure = getattr(group, command)(*arguments), None
        except CollectorError as error:
            answer, failure = None, str(error)
        if not _answer(connection, answer, failure):
            break
    group.close()


def _answer(connection: Connection, answer: Any, failure: str | None) -> bool:
    try:
        connection.send((answer, failure))
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


@contextlib.contextmanager
def worker_surroundings() -> Iterator[None]:
    """What a process inherits, set as workers need it, for as long as it takes to start them.

    - One thread for linear algebra: there is a worker for every core.
    - Ctrl-C and SIGTERM blocked (not ignored, which would lose one that comes now): workers are
      born with them blocked. Job schedulers send SIGTERM to every process of a run; the checkpoint
      needs the workers to finish their chunk.
    - No `__main__`: spawn would import the user's script again, and with it JAX, in every worker.
    """
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    main_module = sys.modules["__main__"]
    mask = (
        signal.pthread_sigmask(signal.SIG_BLOCK, _MAIN_PROCESS_DECIDES)
        if hasattr(signal, "pthread_sigmask")
        else None
    )
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _block_size(layout: Mapping[str, tuple[tuple[int, ...], type]]) -> int:
    return sum(_padded_size(shape, dtype) for shape, dtype in layout.values())


def _views(block: Any, layout: Mapping[str, tuple[tuple[int, ...], type]]) -> dict[str, np.ndarray]:
    """The arrays of ``layout`` one after the other in ``block``. They keep it alive."""
    views: dict[str, np.ndarray] = {}
    offset = 0
    for name, (shape, dtype) in layout.items():
        count = int(np.prod(shape))
        views[name] = np.frombuffer(block, dtype, count, offset).reshape(shape)
        offset += _padded_size(shape, dtype)
    return views


def _padded_size(shape: tuple[int, ...], dtype: type) -> int:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _exit_text(exitcode: int | None) -> str:
    if exitcode is None:
        return "it no longer answers"
    return f"signal {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"
