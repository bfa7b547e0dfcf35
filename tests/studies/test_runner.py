"""Studies survive what happens to them: the same seeds twice, being killed, cells that fail. Real
runs in real processes.

What is killed below is `support/tiny_study.py`, which is also a program.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import tiny_study
from support.tiny_study import CELLS, SCALE, STUDY, study, tiny_cell

from element_rl.runs.folder import RunFolder
from element_rl.storage.files import to_json
from element_rl.studies.engine.attempt import CELL, note_failure, prepare
from element_rl.studies.engine.grid import (
    FAILURE,
    Cell,
    cell_folder,
    is_done,
    steps_done,
)
from element_rl.studies.engine.results import Results, read_results
from element_rl.studies.engine.runner import (
    NO_AUTOTUNING,
    GridProgress,
    Processes,
    compiler_flags,
    conclude,
    progress,
    run_cells,
)
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.on_policy.config import OnPolicyConfig

SECONDS = 120.0  # that anything here may take on a busy machine


def comparable(results: Results) -> dict[str, Any]:
    """All of the results that should not change when they are made again."""
    cells = [dataclasses.replace(cell, seconds=None) for cell in results.cells]
    values: dict[str, Any] = to_json(
        dataclasses.replace(results, cells=tuple(cells), provenance={})
    )
    return values


def tables(out: Path, name: str = "tiny") -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (out / name / "tables").iterdir()}
    assert found
    return found


def files(folder: Path) -> dict[str, int]:
    """When each file was written."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    study(out, together=2)
    return out


def test_a_cell_keeps_its_name_while_newer_settings_are_not_used() -> None:
    """The names are those of version 0.1 of these settings: folders that people have are found
    again."""
    cell = Cell("Ant-v5", "rnd", ExploreConfig("Ant-v5", "rnd"))
    assert cell.name == "Ant-v5-rnd-f6921d15"
    weighted = Cell("Ant-v5", "rnd", ExploreConfig("Ant-v5", "rnd", extrinsic_weight=1.0))
    assert weighted.name.startswith("Ant-v5-rnd-")
    assert weighted.name != cell.name


def test_killed_in_the_middle_it_ends_as_if_nothing_had_happened(
    undisturbed: Path, tmp_path: Path
) -> None:
    first, second, third = (cell_folder(tmp_path, cell) for cell in CELLS)
    parent = subprocess.Popen(
        [sys.executable, tiny_study.__file__, str(tmp_path)], stdin=subprocess.DEVNULL
    )
    wait_until(
        lambda: any((second / "checkpoints").glob("step_*")), "a checkpoint of the second cell"
    )
    parent.kill()
    parent.wait()
    # The cell's process, now without a parent, stops by itself: then its folder can be had.
    with RunFolder.open(second).exclusively(SECONDS):
        stopped = RunFolder.open(second).latest_checkpoint()
    assert stopped is not None
    assert 100 <= stopped < 1_200
    assert is_done(first)
    assert not is_done(second)
    assert not (third / "config.json").exists()
    assert not (second / FAILURE).exists()
    before = files(first), files(second / "checkpoints")

    results = study(tmp_path)

    assert files(first) == before[0]
    after = files(second / "checkpoints")
    kept = {name: when for name, when in before[1].items() if "resume" not in name}
    assert kept  # it went on from its checkpoint: what it had written before is as it was
    assert {name: after[name] for name in kept} == kept
    assert tables(tmp_path) == tables(undisturbed)
    assert comparable(results) == comparable(read_results(undisturbed / "tiny"))


def test_cells_that_are_done_are_not_run_again(undisturbed: Path) -> None:
    before = files(undisturbed / "cells")
    seen: list[GridProgress] = []
    assert run_cells(CELLS, undisturbed, Processes(), seen.append)
    assert files(undisturbed / "cells") == before
    assert seen == [GridProgress(3, 0, (), 3, 2 * (600 + 1_200 + 600), 2 * (600 + 1_200 + 600))]


CRASHING = """
import os, signal
import gymnasium
from element_rl.envs.point_maze import PointMaze

class Crash(PointMaze):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)

gymnasium.register("Crash-v0", entry_point=Crash, max_episode_steps=50)
"""
RAISING = """
from element_rl.rewards.extrinsic import ExtrinsicReward

class Raising(ExtrinsicReward):
    def reward(self, state, batch):
        raise RuntimeError("the sun\\nwent out")
"""


def test_cells_that_fail_say_why_and_the_others_finish(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    (tmp_path / "raising.py").write_text(RAISING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    killed = tiny_cell("killed", "crashing:Crash-v0", seeds=1)
    raised = tiny_cell("raised", reward=f"{tmp_path / 'raising.py'}:Raising", seeds=1)
    seen: list[GridProgress] = []
    heir = dataclasses.replace(tiny_cell("heir", seed=9), needs=(CELLS[0], killed))
    cells = [heir, killed, raised, CELLS[0]]
    assert run_cells(cells, undisturbed, Processes(2), seen.append)
    assert (seen[-1].done, seen[-1].failed, seen[-1].running) == (1, 3, ())
    results = conclude(STUDY, "smoke", SCALE, cells, undisturbed, "element study tiny")
    assert [cell.state for cell in results.cells] == ["failed", "failed", "failed", "done"]
    assert results.cells[0].reason == f"It needs {killed.name}, which is not done."
    results = dataclasses.replace(results, cells=results.cells[1:])
    assert "SIGKILL (out of memory?)" in results.cells[0].reason
    assert results.cells[1].reason == "RuntimeError: the sun went out"
    assert RunFolder.open(cell_folder(undisturbed, raised)).read_metrics() == {}
    assert [row[:3] for row in results.tables[0].rows] == [("PointMaze-v0", "random", 2)]
    assert seen[0].failed == 0
    assert len(seen[0].running) == 2


def test_a_cell_begins_when_what_it_needs_is_done(tmp_path: Path) -> None:
    first, beside = tiny_cell("first", seed=3, seeds=1), tiny_cell("beside", seed=4, seeds=1)
    heir = dataclasses.replace(tiny_cell("heir", seed=5, seeds=1), needs=(first,))
    seen: list[GridProgress] = []
    assert run_cells([heir, first, beside], tmp_path, Processes(2), seen.append)
    assert seen[0].running == (first.name, beside.name)
    assert not any({heir.name, first.name} <= set(now.running) for now in seen)
    begun, done = (
        cell_folder(tmp_path, heir) / "config.json",
        cell_folder(tmp_path, first) / "summary.json",
    )
    assert begun.stat().st_mtime_ns > done.stat().st_mtime_ns


def test_a_cell_that_was_told_twice_still_writes_its_checkpoint(tmp_path: Path) -> None:
    """Job schedulers tell every process to stop, and the study then tells its cells."""
    cell = tiny_cell("random", steps=100_000, seeds=1, checkpoint_every=200)
    executor, folder = Processes(), prepare(tmp_path, cell)
    executor.start(folder, cell)
    process = executor.processes[folder]
    wait_until(lambda: any((folder / "checkpoints").glob("step_*")), "a checkpoint")
    process.send_signal(signal.SIGTERM)
    executor.stop()
    assert process.returncode == 130
    assert executor.running() == []
    run = RunFolder.open(folder)
    assert 200 <= (run.latest_checkpoint() or 0) < 100_000
    run.load_resume()


def test_who_will_not_wait_for_checkpoints_ends_the_cells(tmp_path: Path) -> None:
    """The waiting is interrupted, as by a second Ctrl-C, while a cell takes no notice of it."""
    executor = Processes()
    deaf = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"], stdin=subprocess.PIPE
    )
    executor.processes[tmp_path] = deaf

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.stop()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert deaf.returncode == -signal.SIGKILL
    assert executor.running() == []


def test_cells_that_share_a_gpu_do_not_tune_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they see frames, run alone, or this XLA may not know the flags. (That it does: the
    cells above ran with them.)"""
    robot, screen = tiny_cell("random"), Cell("Rooms-v0", "element", OnPolicyConfig("Rooms-v0"))
    learner = Cell("Rooms-v0", "element", FinetuneConfig(screen.reference), (screen,))
    assert compiler_flags(robot, 2) == {"XLA_FLAGS": NO_AUTOTUNING}
    assert compiler_flags(robot, 1) == compiler_flags(screen, 2) == compiler_flags(learner, 2) == {}
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"jaxlib": "0.12.0"}[name])
    assert compiler_flags(robot, 2) == {}


def test_a_cell_finds_the_flags_unless_the_user_has_set_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, env, **kwargs: started.append(env))
    for given in (None, "--xla_cpu_enable_fast_math=false"):
        monkeypatch.delenv("XLA_FLAGS", raising=False) if given is None else monkeypatch.setenv(
            "XLA_FLAGS", given
        )
        Processes(2).start(prepare(tmp_path, CELLS[0]), CELLS[0])
    assert [env["XLA_FLAGS"] for env in started] == [
        NO_AUTOTUNING,
        "--xla_cpu_enable_fast_math=false",
    ]


def test_progress_reads_what_cells_have_written(tmp_path: Path) -> None:
    cell, other = tiny_cell("random"), tiny_cell("random, other seeds", seed=7)
    folder = prepare(tmp_path, cell)
    assert json.loads((folder / CELL).read_text())["method"] == "random"
    assert steps_done(folder, 600) == 0
    lines = "step,seed\n120,0\n120,1\n"
    (folder / "metrics.csv").write_text("step,se")
    assert steps_done(folder, 600) == 0
    (folder / "metrics.csv").write_text(lines + "24")
    assert steps_done(folder, 600) == 120  # the last line is only half there
    (folder / "metrics.csv").write_text(lines * 1_000 + "240,0\n")
    assert steps_done(folder, 600) == 240
    note_failure(folder, "x" * 2_000)
    assert len((folder / FAILURE).read_text()) < 600
    now = progress([cell, other], tmp_path, [folder])
    assert now == GridProgress(0, 0, (cell.name,), 2, 480, 2_400)
    assert progress([cell, other], tmp_path, []).failed == 1


def test_names_of_cells() -> None:
    """The same settings are the same cell, whatever they are called; others are another; any name
    makes one folder."""
    assert tiny_cell("random").name == tiny_cell("nobody").name
    assert tiny_cell("random").name != tiny_cell("random", seed=1).name
    assert len(Path(tiny_cell("random", "own/module:Env-v0").name).parts) == 1
    assert os.sep not in tiny_cell("own", reward="/a/file.py:make").name
