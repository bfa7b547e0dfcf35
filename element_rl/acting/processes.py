"""Worker processes, and the memory they share with the main process.

A worker serves one object, whose methods are called by name:

    worker = Worker("actors-0", ActorGroup, (population, rows), SharedArrays(layout))
    worker.send("act", 0, 1, None)      # returns at once
    worker.receive()                    # the answer; WorkerFailure if the method raised, or it died

Workers are spawned, never forked (the main process has JAX's threads), import no JAX, use one BLAS
thread each and leave Ctrl-C to the main process. The shared memory is an unlinked file mapping
handed over at the start: it has no name, so nothing is left behind however the processes end. A
worker leaves when its pipe is closed, and when the main process dies; a main process whose worker
died reads the end of the pipe. `LocalWorker` does the same without a process.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import numpy as np

from element_rl.foreign import their_traceback

Layout = Mapping[str, tuple[tuple[int, ...], type]]
"""Shape and type of every array of a `SharedArrays`."""

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


class WorkerFailure(Exception):  # noqa: N818 (the caller turns it into an error, or into another try)
    """A worker could not do what it was told; why, as the end of a sentence. `theirs`: the part of
    its traceback that is the user's code."""

    def __init__(
        self, reason: str, when: Literal["start", "call", "died"], theirs: str = ""
    ) -> None:
        super().__init__(reason)
        self.when, self.theirs = when, theirs


class SharedArrays:
    """Arrays one after the other in one block of memory. Processes are given it as they start."""

    def __init__(self, layout: Layout) -> None:
        self.layout = dict(layout)
        self._block: Any = _SPAWN.RawArray(
            ctypes.c_byte, sum(_padded_size(*entry) for entry in layout.values())
        )

    def views(self) -> dict[str, np.ndarray]:
        """The arrays. They keep the memory alive."""
        found: dict[str, np.ndarray] = {}
        offset = 0
        for name, (shape, dtype) in self.layout.items():
            count = int(np.prod(shape))
            found[name] = np.frombuffer(self._block, dtype, count, offset).reshape(shape)
            offset += _padded_size(shape, dtype)
        return found


class Worker:
    """The main process's end of a worker process."""

    connection: Connection

    def __init__(
        self,
        name: str,
        make: Callable[..., Any],
        arguments: tuple[Any, ...],
        shared: SharedArrays | None = None,
    ) -> None:
        """The process serves `make(*arguments)`, with the views of `shared` as the last argument
        where there are some; `make` is a function or class of a module that loads no JAX. What
        cannot be sent raises ValueError."""
        self._name, self._make, self._shared = name, make, shared
        self._start(arguments)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def send(self, method: str, *arguments: Any) -> None:
        """Have a method called; its answers are received in the order they were asked for."""
        # A worker that died has left the reason, or its end of file, in the pipe: `receive` will
        # find it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((method, arguments))

    def receive(self) -> Any:
        """What the method returned."""
        try:
            answer, failure = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            raise WorkerFailure(_exit_text(self._process.exitcode), "died") from None
        if failure is not None:
            raise WorkerFailure(*failure)
        return answer

    def restart(self, *arguments: Any) -> None:
        """End the process, and start another with other arguments and the same shared arrays."""
        stop_workers([self])
        self._start(arguments)

    def hang_up(self) -> None:
        """Close the pipe: the process leaves when it next reads or writes it."""
        self.connection.close()

    def end(self, seconds: float, by_force: bool) -> None:
        """Wait some seconds for the process to end, having killed it or not."""
        if by_force and self._process.is_alive():
            self._process.kill()
        self._process.join(timeout=seconds)

    def _start(self, arguments: tuple[Any, ...]) -> None:
        try:
            pickled = pickle.dumps((self._make, arguments))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                "The policy, the environment or its options cannot be sent to worker processes "
                f"({error}); define them in a module that can be imported, or use 0 workers."
            ) from error
        self.connection, theirs = _SPAWN.Pipe()
        with _set_for_workers():
            self._process = _SPAWN.Process(
                target=_serve, args=(pickled, self._shared, theirs), name=self._name, daemon=True
            )
            self._process.start()
        theirs.close()  # or the end of file would never be read


class LocalWorker:
    """The same in this process: a method is called when its answer is asked for."""

    connection: Connection | None = None

    def __init__(
        self,
        name: str,
        make: Callable[..., Any],
        arguments: tuple[Any, ...],
        shared: SharedArrays | None = None,
    ) -> None:
        self._make, self._shared = make, shared
        self._served = _made(make, arguments, shared)
        self._calls: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._failed_start: str | None = None

    def send(self, method: str, *arguments: Any) -> None:
        self._calls.append((method, arguments))

    def receive(self) -> Any:
        if self._failed_start is not None:
            raise WorkerFailure(self._failed_start, "start")
        method, arguments = self._calls[0]
        try:
            answer = getattr(self._served, method)(*arguments)
        except Exception as error:
            self._calls.popleft()
            raise WorkerFailure(sentence(error), "call", their_traceback(error)) from error
        self._calls.popleft()  # only now: one that is interrupted may be asked for again
        return answer

    def restart(self, *arguments: Any) -> None:
        self._calls.clear()
        self._served.close()
        try:
            self._served = _made(self._make, arguments, self._shared)
            self._failed_start = None
        except Exception as error:  # as of a process: it is found when an answer is asked for
            self._failed_start = sentence(error)

    def hang_up(self) -> None:
        self._served.close()

    def end(self, seconds: float, by_force: bool) -> None:
        pass


AnyWorker = Worker | LocalWorker


def stop_workers(workers: Sequence[AnyWorker]) -> None:
    """End all processes: in peace if they are idle, by force if not. Nothing of them remains."""
    for worker in workers:
        worker.hang_up()
    for by_force in (False, True):
        deadline = time.monotonic() + 1.0  # for all of them together
        for worker in workers:
            worker.end(max(0.0, deadline - time.monotonic()), by_force)


def kill_workers(workers: Sequence[Worker]) -> None:
    """End all processes at once, whatever they do. Their pipes stay open for whoever reads them."""
    for worker in workers:
        worker.end(5.0, by_force=True)


def that_answered(workers: Sequence[AnyWorker], seconds: float | None = None) -> list[AnyWorker]:
    """Block until some of the workers have answered or died; those. None of them where nothing
    happened in so many seconds."""
    by_connection = {worker.connection: worker for worker in workers}
    if None in by_connection:  # they answer when they are asked
        return list(workers)
    return [by_connection[ready] for ready in wait(list(by_connection), seconds)]  # type: ignore[arg-type, index]


def sentence(error: BaseException) -> str:
    """What an exception says, in one line, as the end of a sentence with its full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text}." if isinstance(error, ValueError) else f"{type(error).__name__}: {text}."


def _serve(pickled: bytes, shared: SharedArrays | None, connection: Connection) -> None:
    """The worker process: make the object, then call its methods until the main process closes the
    pipe. It ends after an object that could not be made."""
    for number in _MAIN_PROCESS_DECIDES:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            # made by the main process a moment ago, from no file
            make, arguments = pickle.loads(pickled)
            served = _made(make, arguments, shared)
        except Exception as error:
            connection.send((None, (sentence(error), "start", their_traceback(error))))
            return
        # what is here now stays: the collector of garbage need not walk through it again
        gc.freeze()
        try:
            while True:
                method, arguments = connection.recv()
                connection.send(_called(served, method, arguments))
        finally:
            with contextlib.suppress(Exception):  # its work is done, and its answers are given
                served.close()


def _made(make: Callable[..., Any], arguments: tuple[Any, ...], shared: SharedArrays | None) -> Any:
    return make(*arguments) if shared is None else make(*arguments, shared.views())


def _called(served: Any, method: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    try:
        return getattr(served, method)(*arguments), None
    except Exception as error:
        return None, (sentence(error), "call", their_traceback(error))


def _leave_with_parent() -> None:
    """However the main process ends: at once, in the middle of whatever this one does."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _set_for_workers() -> Iterator[None]:
    """What a process inherits, set as workers need it, for as long as it takes to start one.

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


def _padded_size(shape: tuple[int, ...], dtype: type) -> int:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _exit_text(exitcode: int | None) -> str:
    if exitcode is None:
        return "it no longer answers"
    return f"signal {signal.Signals(-exitcode).name}" if exitcode < 0 else f"exit code {exitcode}"
