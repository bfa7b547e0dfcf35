"""Run a measurement in a process of its own that is bound to one core, with one thread in every
library.

Threads that wait for each other on a busy machine spin, which makes linear algebra look up to a
hundred times slower than it is; on one core the processor time of a call is its cost, whatever else
the machine does. A crash stays in that process.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class MeasurementError(Exception):
    """The measuring process failed; the message says how."""


def on_one_core(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, computed in a fresh process on one core."""
    # read by the libraries when the new process loads them
    os.environ.update(dict.fromkeys(THREADS, "1"))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call_and_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        result, failure = receiver.recv()
    except EOFError:
        result, failure = None, "the process died"
    process.join()
    if failure or process.exitcode:
        raise MeasurementError(failure or f"the process ended with code {process.exitcode}")
    return result


def _call_and_send(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX makes its threads
    try:
        sender.send((function(*arguments), None))
    except Exception as error:  # whatever it is, the parent reports it
        sender.send((None, f"{type(error).__name__}: {error}"))
