"""A worker serves one object: its methods are called by name, in a process or here, and whatever
goes wrong with it is known."""

import multiprocessing

import numpy as np
import pytest
from support import acting_probes

from element_rl.acting.processes import (
    LocalWorker,
    SharedArrays,
    Worker,
    WorkerFailure,
    stop_workers,
    that_answered,
)

KINDS = pytest.mark.parametrize("kind", [Worker, LocalWorker])


def started(kind: type, first: int = 3) -> tuple[Worker | LocalWorker, np.ndarray]:
    shared = SharedArrays({"other": ((3,), np.uint8), "count": ((1,), np.int64)})
    return kind("counting", acting_probes.Counting, (first,), shared), shared.views()["count"]


@KINDS
def test_methods_are_answered_in_order_and_arrays_are_shared(kind: type) -> None:
    worker, count = started(kind)
    worker.send("add", 1)
    worker.send("add", 10)
    assert that_answered([worker]) == [worker]
    assert [worker.receive(), worker.receive()] == [4, 14]
    assert count.tolist() == [14]
    stop_workers([worker])
    assert count.tolist() == [-1]  # it was closed
    assert multiprocessing.active_children() == []


@KINDS
def test_a_failure_is_a_sentence_and_the_worker_goes_on(kind: type) -> None:
    worker, _ = started(kind)
    worker.send("fail")
    with pytest.raises(WorkerFailure, match=r"^OSError: the counter is stuck\.$") as failure:
        worker.receive()
    assert failure.value.when == "call"
    worker.send("add", 1)
    assert worker.receive() == 4
    stop_workers([worker])


@KINDS
def test_a_restart_makes_another_with_the_same_arrays(kind: type) -> None:
    worker, count = started(kind)
    worker.restart(20)
    worker.send("add", 1)
    assert worker.receive() == 21
    assert count.tolist() == [21]
    worker.restart(-1)  # which cannot be made
    worker.send("add", 1)
    with pytest.raises(WorkerFailure, match=r"^it counts from 0\.$") as failure:
        worker.receive()
    assert failure.value.when == "start"
    stop_workers([worker])
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_known_and_can_be_started_again() -> None:
    worker, _ = started(Worker)
    worker.send("leave")
    with pytest.raises(WorkerFailure, match=r"^signal SIGKILL$") as failure:
        worker.receive()
    assert failure.value.when == "died"
    worker.restart(5)
    worker.send("add", 1)
    assert worker.receive() == 6
    stop_workers([worker])
