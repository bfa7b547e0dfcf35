"""Failures of collecting are named, with agent, chunk and cause; and nothing remains of its
processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from support import acting_probes

from element_rl.acting.collector import CollectorError, ProcessCollector

pytestmark = pytest.mark.usefixtures("probe_environments")


@pytest.mark.parametrize(
    ("wrong", "num_workers", "message"),
    [
        (
            "observation",
            0,
            r"observation is \[ ?2. nan\] at step 2 of episode 0; it came from "
            r"element-tests/Endless-v0\.$",
        ),
        ("observation", 1, r"observation is \[ ?2. nan\] at step 2 of episode 0"),
        ("reward", 0, r"extrinsic_reward is inf at step 2 of episode 0"),
        ("crash", 0, r"OSError: the simulator burned down\.$"),
        ("crash", 1, r"OSError: the simulator burned down\.$"),
    ],
)
def test_failures_name_agent_chunk_and_cause(wrong: str, num_workers: int, message: str) -> None:
    options = {"wrong": wrong, "at": 2 if wrong == "observation" else 3}
    collector = ProcessCollector(
        "element-tests/Endless-v0", [4, 5], 2, None, {}, options, num_workers=num_workers
    )
    with pytest.raises(CollectorError, match="^Agent 0 failed in chunk 1: " + message):
        _run_chunks(collector, 2)
    assert multiprocessing.active_children() == []
    with pytest.raises(RuntimeError, match="closed"):
        collector.start(3, None)


def test_an_environment_that_hangs_is_named_after_its_time() -> None:
    collector = ProcessCollector(
        "element-tests/Endless-v0", [4], 2, None, {}, {"wrong": "hang", "at": 3}, seconds=3.0
    )
    hangs = (
        r"^The environment element-tests/Endless-v0 of agent 0 did not answer for 3 s in chunk 1 "
        r"\(process \d+; --env-timeout\)\.$"
    )
    with pytest.raises(CollectorError, match=hangs):
        _run_chunks(collector, 2)
    assert multiprocessing.active_children() == []


def _run_chunks(collector: ProcessCollector, num_chunks: int) -> None:
    for chunk_index in range(num_chunks):
        collector.start(chunk_index, None)
        collector.wait()


def test_what_broke_the_environment_is_reported_rather_than_the_breakage() -> None:
    with ProcessCollector(
        "element-tests/Counter-v0",
        [0],
        3,
        acting_probes.diverged_policy,
        {"w": (1,)},
        num_workers=0,
    ) as collector:
        # this environment raises on a NaN action
        collector.start(0, {"w": np.zeros((1, 1), np.float32)})
        with pytest.raises(
            CollectorError,
            match=r"action is \[nan\] at step 0 of episode 0; it came from its policy",
        ):
            collector.wait()


def test_step_of_a_failure_counts_from_the_start_of_its_episode() -> None:
    options = {"wrong": "reward", "at": 2}
    with ProcessCollector(
        "element-tests/Counter-v0", [4], 3, None, {}, options, num_workers=0
    ) as collector:
        # step 2 lies behind; the episode ends after step 5
        collector.resume([7], [np.zeros((3, 1), np.float32)])
        collector.start(0, None)
        collector.wait()
        collector.start(1, None)
        with pytest.raises(CollectorError, match="extrinsic_reward is inf at step 1 of episode 8"):
            collector.wait()


def test_a_diverged_policy_is_named_as_the_cause() -> None:
    with ProcessCollector(
        "Pendulum", [0], 3, acting_probes.diverged_policy, {"w": (1,)}, num_workers=0
    ) as collector:
        collector.start(0, {"w": np.zeros((1, 1), np.float32)})
        with pytest.raises(
            CollectorError,
            match=r"action is \[nan\] at step 0 of episode 0; it came from its policy",
        ):
            collector.wait()


def test_a_killed_worker_is_reported_at_once() -> None:
    with ProcessCollector("Pendulum", [0, 1], 2_000_000, None, {}) as collector:
        collector.start(7, None)
        victim = next(
            process for process in multiprocessing.active_children() if process.name == "actors-1"
        )
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(
            CollectorError, match=r"worker process of agent 1 died in chunk 7 \(signal SIGKILL\)"
        ):
            collector.wait()
        assert time.monotonic() - begin < 8
        assert multiprocessing.active_children() == []


def test_interrupts_are_left_to_the_main_process_and_nothing_remains() -> None:
    shared_before = _shared_memory_files()
    descriptors_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with ProcessCollector("Pendulum", [0, 1, 2], 50, None, {}, num_workers=2) as collector:
        workers = multiprocessing.active_children()
        assert len(workers) == 2
        for worker in workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGINT)  # while they are still starting
        collector.start(0, None)
        for worker in workers:
            os.kill(worker.pid or 0, signal.SIGINT)
        chunk = collector.wait()
    collector.close()
    assert chunk.count.tolist() == [50, 50, 50]
    assert np.isfinite(chunk.observation).all()  # what was collected stays readable
    assert multiprocessing.active_children() == []
    assert not any(worker.is_alive() for worker in workers)
    del collector, chunk, workers, worker
    assert _shared_memory_files() <= shared_before
    if descriptors_before:
        # multiprocessing's own tracker and arena
        assert len(os.listdir("/proc/self/fd")) <= descriptors_before + 2


def _shared_memory_files() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_workers_die_with_a_killed_main_process() -> None:
    script = textwrap.dedent("""
        import multiprocessing, os, signal
        from element_rl.acting.collector import ProcessCollector

        # No `if __name__ == "__main__"`: workers do not run this script again.
        collector = ProcessCollector("Pendulum", [0, 1], 100, None, {})
        collector.start(0, None)
        collector.wait()
        print(*(process.pid for process in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in run.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_cannot_be_collected_is_one_clear_sentence() -> None:
    with pytest.raises(
        ValueError,
        match="agent_seeds must be one or more whole numbers of at least 0, not \\[-1\\]",
    ):
        ProcessCollector("Pendulum", [-1], 5, None, {})
    with pytest.raises(ValueError, match="chunk_steps must be at least 1, not 0"):
        ProcessCollector("Pendulum", [0], 0, None, {})
    with pytest.raises(ValueError, match="num_workers must be None, 0 or positive, not -2"):
        ProcessCollector("Pendulum", [0], 5, None, {}, num_workers=-2)
    with pytest.raises(ValueError, match="cannot be sent to worker processes"):
        ProcessCollector(
            "Pendulum", [0], 5, lambda parameters, observation, noise: noise, {}, num_workers=1
        )
    with pytest.raises(ValueError, match="divide chunk_steps, not 3 environments and 20 steps"):
        ProcessCollector("Hopper", [8], 20, None, {}, num_workers=0, num_envs=3)
    with (
        ProcessCollector("Pendulum", [0], 5, None, {}, num_workers=0) as collector,
        pytest.raises(ValueError, match="without a policy"),
    ):
        collector.start(0, {})
