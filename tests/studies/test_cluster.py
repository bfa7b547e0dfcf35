"""A study on a real Ray cluster on this machine: a node is killed while it works; stopping;
addresses where nobody is.

This file is also a program, which starts the cluster and runs studies on it. It is another process
because warnings are errors in tests, and Ray has some; and because whatever happens to it, all that
it started can be ended with it.
"""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from element_rl.agents.sac import SACConfig
from element_rl.runs.folder import RunFolder
from element_rl.studies import coverage
from element_rl.studies.engine.cluster import refuse_dead_head
from element_rl.studies.engine.grid import Cell, Scale, cell_folder, finished, is_done, record
from element_rl.studies.engine.table_text import csv_text
from element_rl.training.off_policy.config import ExploreConfig

SECONDS = 300.0  # that the program may take on a busy machine
SCALE = Scale(("PointMaze-v0",), 2, {"PointMaze-v0": 600})
TINY = {"seeds": 2, "replay_size": 700, "workers": 0, "random_seeds": 0, "chunk_steps": 20}
LONG = 8_000


def cell(method: str, reward: str = "random", **settings: Any) -> Cell:
    learner = SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=100)
    options = {"steps": 600, "env_options": ("max_episode_steps=50",)} | TINY | settings
    return Cell(
        "PointMaze-v0", method, ExploreConfig("PointMaze-v0", reward, sac=learner, **options)
    )


CELLS = [
    cell("random, long", steps=LONG, checkpoint_every=400),
    # as in test_runner: compiled once for both
    cell("element", reward="element", steps=1_200, checkpoint_every=100),
    cell("random", seed=7),  # by which the table of multiples divides
]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="NOT TESTED: studies on a cluster, for Ray is not installed: "
    "pip install 'element-rl[ray]'.",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Path]]:
    """What the program below found, and the folder it worked in."""
    folder, short = tmp_path_factory.mktemp("cluster"), tempfile.mkdtemp(prefix="ray-")
    surroundings = dict(os.environ) | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_TMPDIR": short,  # names of sockets may not be long
    }
    with (folder / "log").open("wb") as log:
        command = [sys.executable, __file__, str(folder)]
        program = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=surroundings
        )
    try:
        program.wait(SECONDS)
        assert (folder / "found.json").exists(), (folder / "log").read_text()[-5_000:]
        yield json.loads((folder / "found.json").read_text()), folder
    finally:
        end_all(program.pid)
        shutil.rmtree(short, ignore_errors=True)


def end_all(session: int) -> None:
    """Ends what is left of the program's session."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)


@needs_ray
def test_a_killed_node_costs_nothing(told: tuple[dict[str, Any], Path]) -> None:
    """Every cell finishes, the one on the killed node from its checkpoint, and the tables are the
    local ones."""
    found, folder = told
    assert found["all attempted"]
    assert 400 <= found["killed at"] < LONG
    assert found["attempts"] >= 2
    assert found["checkpoint kept"]
    assert found["states"] == ["done"] * 3
    local, cluster = (
        {path.name: path.read_bytes() for path in (folder / where).glob("*.csv")}
        for where in ("local", "cluster")
    )
    assert sorted(local) == ["aggregate.csv", "coverage.csv", "improvement.csv"]
    assert local == cluster


@needs_ray
def test_stopping_leaves_checkpoints(told: tuple[dict[str, Any], Path]) -> None:
    """SIGTERM, while one cell runs and another waits for its turn."""
    found, folder = told
    assert found["stop: exit code"] == 130, found["stop: said"]
    assert "Stopped. Continue with: element study coverage" in found["stop: said"]
    assert "Stopping: every running cell writes a checkpoint first" in found["stop: said"]
    runs = [path.parent for path in (folder / "stopped" / "cells").glob("*/config.json")]
    assert len(runs) == 1
    run = RunFolder.open(runs[0])
    assert 0 < (run.latest_checkpoint() or 0) < 10_000_000
    run.load_resume()
    assert not is_done(run.path)


@needs_ray
def test_the_needs_of_cells(told: tuple[dict[str, Any], Path]) -> None:
    found, _ = told
    assert found["cpus"] == {
        "of the seeds": 2.0,
        "as told": 0.5,
    }  # two seeds and one, but no node has more than two
    assert found["gpus"] == {"none there": 0.0, "as told": 0.25}
    assert "No node of the cluster has 64 CPUs now (the most is 2)" in found["too much: said"]


@needs_ray
def test_nobody_listens(tmp_path: Path) -> None:
    began = time.monotonic()
    command = [sys.executable, "-m", "element_rl.cli", "study", "coverage", "--scale", "smoke"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--ray", "127.0.0.1:9"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "No Ray cluster answers at '127.0.0.1:9'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert time.monotonic() - began < 60


def main(folder: Path) -> None:
    """The program: a study here, the same on a cluster that loses a node, one that is stopped."""
    import ray
    from ray.cluster_utils import Cluster

    from element_rl.studies.engine.cluster import ATTEMPTS, RayTasks
    from element_rl.studies.engine.runner import Processes, run_cells

    found: dict[str, Any] = {}
    assert run_cells(CELLS, folder / "local", Processes(2), lambda progress: None)
    write_tables(folder / "local")
    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    # A dead node is found out after some seconds instead of a quarter of a minute.
    health = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 1_000,
        "health_check_failure_threshold": 4,
    }
    head = {"num_cpus": 0, "_system_config": health, **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=2, **small) for _ in range(2)]
        out, victim = folder / "cluster", cell_folder(folder / "cluster", CELLS[0])
        killer = threading.Thread(target=kill_node_of, args=(victim, cluster, nodes, found))
        killer.start()
        tasks = RayTasks(cluster.address)
        found["cpus"] = {"of the seeds": tasks._cpus(CELLS[0])}
        found["gpus"] = {"none there": tasks._gpus()}
        found["all attempted"] = run_cells(CELLS, out, tasks, lambda progress: None)
        killer.join()
        write_tables(out)
        found["states"] = [record(out, cell).state for cell in CELLS]
        found["attempts"] = len((victim / ATTEMPTS).read_text().splitlines())
        found["checkpoint kept"] = found.pop("written") == when_written(victim, found["killed at"])
        told_needs = RayTasks(cluster.address, cpus=0.5, gpus=0.25)
        found["cpus"]["as told"], found["gpus"]["as told"] = (
            told_needs._cpus(CELLS[0]),
            told_needs._gpus(),
        )
        with contextlib.redirect_stderr(io.StringIO()) as said:
            RayTasks(cluster.address, cpus=64)
        found["too much: said"] = said.getvalue()
        found |= stopped_study(cluster.address, folder / "stopped")
        (folder / "found.json").write_text(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


def write_tables(out: Path) -> None:
    """The tables of the cells in a folder, beside them."""
    done = [entry for cell in CELLS if (entry := finished(out, cell)) is not None]
    for table in coverage.analyse(done, SCALE).tables:
        (out / f"{table.name}.csv").write_text(csv_text(table))


def kill_node_of(victim: Path, cluster: Any, nodes: list[Any], found: dict[str, Any]) -> None:
    """Removes the node whose worker holds the cell, when it has written a checkpoint."""
    wait_until(lambda: any((victim / "checkpoints").glob("step_*")))
    worker = holder(victim / "config.json")
    found["killed at"] = RunFolder.open(victim).latest_checkpoint()
    found["written"] = when_written(victim, found["killed at"])
    parent = int((Path("/proc") / str(worker) / "stat").read_text().rpartition(")")[2].split()[1])
    (node,) = [node for node in nodes if node.all_processes["raylet"][0].process.pid == parent]
    cluster.remove_node(node, allow_graceful=False)


def when_written(run: Path, step: int) -> int:
    return (run / "checkpoints" / f"step_{step:09d}" / "policy.safetensors").stat().st_mtime_ns


def holder(file: Path) -> int:
    """The process that has a file open."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if descriptor.samefile(file):  # by what it is: it was opened under another name
                return int(descriptor.parts[2])
    raise AssertionError(f"nobody has {file} open")


def stopped_study(address: str, out: Path) -> dict[str, Any]:
    """What `element study` does when it is told to stop."""
    command = [
        sys.executable,
        "-m",
        "element_rl.cli",
        "study",
        "coverage",
        "--scale",
        "smoke",
        "--methods",
        "random",
    ]
    options = [
        "--envs",
        "PointMaze-v0",
        "Hopper-v5",
        "--steps",
        "10000000",
        "--seeds",
        "1",
        "--cell-cpus",
        "2",
    ]
    arguments = [*command, *options, "--out", str(out), "--ray", address]
    program = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until(lambda: any(out.glob("cells/*/metrics.csv")) or program.poll() is not None)
    program.terminate()
    said = program.communicate(timeout=SECONDS)[0]
    return {"stop: exit code": program.returncode, "stop: said": said}


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))


def test_a_head_that_is_gone_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        long_ago = time.monotonic() - 60
        heard = refuse_dead_head(address, long_ago)
        assert heard > long_ago
    assert refuse_dead_head(address, heard) == heard  # not looked at so soon again
    with pytest.raises(ValueError, match=r"no longer answers .* the same command goes on"):
        refuse_dead_head(address, long_ago)
