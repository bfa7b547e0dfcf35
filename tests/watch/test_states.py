"""What a run is doing is told by its lock and its files."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from element_rl.runs.folder import RunFolder
from element_rl.watch import states
from element_rl.watch.folders import Watch
from element_rl.watch.run import WatchedRun

SETTINGS = {"steps": 100, "seeds": 1, "seed": 0, "checkpoint_every": 40, "chunk_steps": 10}
CONFIG = {"kind": "explore", "env": "Ant-v5", "reward": "element", "settings": SETTINGS}
TRAINS = """
import sys
from element_rl.runs.folder import RunFolder
with RunFolder.open(sys.argv[1]).exclusively():
    print("trains", flush=True)
    sys.stdin.read()
"""


def made(path: Path, logged: int = 0, saved: tuple[int, ...] = (), **config: Any) -> RunFolder:
    """A run that nobody holds, as far as it is said."""
    run = RunFolder.create(path, CONFIG | config)
    with run.exclusively():
        pass
    if logged:
        rows = [
            {"step": step, "seed": 0, "coverage": step, "wall_seconds": step / 5}
            for step in range(10, logged + 1, 10)
        ]
        run.append_metrics(rows)
    for step in saved:
        run.save_checkpoint(step, {"w": np.zeros(1)}, None, {"r": np.zeros(1)}, {})
    return run


def facts_of(path: Path) -> dict[str, Any]:
    watched = WatchedRun(path)
    watched.look()
    return watched.facts()


def test_a_process_that_trains_and_is_killed(tmp_path: Path) -> None:
    run = made(tmp_path / "run", logged=60, saved=(40,))
    watched = WatchedRun(run.path)
    command = [sys.executable, "-c", TRAINS, str(run.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"trains\n"
        watched.look()
        facts = watched.facts()
        assert (facts["state"], facts["step"], facts["steps"]) == ("running", 60, 100)
        assert (facts["rate"], facts["secondsLeft"]) == (5.0, 8.0)
        process.send_signal(signal.SIGKILL)
    watched.look()
    facts = watched.facts()
    assert facts["state"] == "died"
    assert facts["sentence"].endswith(
        "The run goes on from step 40, its newest checkpoint, when it is resumed."
    )
    assert facts["command"] == f"element explore --resume {run.path}"
    assert facts["secondsLeft"] is None


@pytest.mark.parametrize(
    ("logged", "saved", "summary", "state"),
    [
        (100, (40, 80, 100), 100, "finished"),
        (100, (40, 80, 100), None, "died"),  # before its summary was written
        (50, (40, 50), None, "stopped"),  # a step of no plan, and nothing after it
        (50, (40, 53), None, "stopped"),
        (40, (40,), None, "died"),  # killed after a checkpoint that was due
        (60, (40,), None, "died"),
        (20, (), None, "died"),
        (0, (), None, "died"),
    ],
)
def test_of_a_run_that_nobody_trains(
    tmp_path: Path, logged: int, saved: tuple[int, ...], summary: int | None, state: str
) -> None:
    run = made(tmp_path / "run", logged, saved)
    if summary is not None:
        run.write_summary({"steps": summary, "seeds": [0]})
    facts = facts_of(run.path)
    assert facts["state"] == state
    assert bool(facts["command"]) == (state != "finished")


def test_a_run_that_was_given_more_steps(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 130, (40, 80, 100, 120))
    run.write_summary({"steps": 100, "seeds": [0]})
    facts = facts_of(run.path)
    assert (facts["step"], facts["steps"]) == (130, None)  # config.json does not say how many


def test_without_locks_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(tmp_path / "run", 60, (40,))
    monkeypatch.setattr(RunFolder, "is_training", lambda self: None)
    facts = facts_of(run.path)
    assert facts["state"] == "unknown"
    assert "no locks" in facts["sentence"]


def test_all_steps_made_and_the_random_policy_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path / "run", 100, (40, 80, 100))
    monkeypatch.setattr(RunFolder, "is_training", lambda self: True)
    assert facts_of(run.path)["sentence"] == "All steps are made; a random policy is measured."


@pytest.mark.parametrize(
    ("config", "unit", "command"),
    [
        ({"kind": "offline"}, "updates", "element offline --resume {}"),
        ({"kind": "on-policy"}, "steps", "element on-policy --resume {}"),
        ({"kind": "encoder"}, "epochs", "element pretrain-encoder --resume {}"),
        ({"kind": "collect"}, "steps", "the study that it is a cell of"),
    ],
)
def test_other_kinds_of_runs(tmp_path: Path, config: dict, unit: str, command: str) -> None:
    run = made(tmp_path / "a run", 20, **config)
    facts = facts_of(run.path)
    assert (facts["unit"], facts["command"]) == (unit, command.format(f"'{run.path}'"))


def test_fine_tuning_is_continued_as_one(tmp_path: Path) -> None:
    run, scratch = made(tmp_path / "transferred"), made(tmp_path / "scratch")
    (run.path / "transfer.json").write_text("{}")
    for half in (run, scratch):
        assert states.resume_command(half) == f"element finetune --resume {tmp_path}"


def test_a_run_that_is_removed_and_begun_again(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 60)
    watched = WatchedRun(run.path)
    watched.look()
    before = watched.facts()["generation"]
    shutil.rmtree(run.path)
    watched.look()
    assert watched.facts()["state"] == "gone"
    made(tmp_path / "run", 20, reward="rnd")
    watched.look()
    facts = watched.facts()
    assert (facts["state"], facts["step"], facts["reward"]) == ("died", 20, "rnd")
    assert facts["generation"] > before
    assert watched.curves(before, 5)["step"] == [10, 20]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.json", "{", "config.json is damaged"),
        ("config.json", '{"kind": "<script>"}', "no kind of runs '<script>'"),
        ("config.json", '{"settings": {"steps": "many"}}', "its 'steps' is \"many\""),
        ("metrics.csv", "step,seed\n1,0\n2\n", "metrics.csv is damaged in line 3"),
        ("summary.json", "[]", "summary.json is damaged"),
        ("latest_visits.safetensors", "junk", "latest_visits.safetensors is damaged"),
    ],
)
def test_what_is_damaged_is_said_and_the_rest_goes_on(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    bounds = {"coverage_bounds": [[-1, 1], [-1, 1]], "coverage_axes": ["x", "y"]}
    made(tmp_path / "damaged", 60, **bounds)
    (tmp_path / "damaged" / name).write_text(text)
    made(tmp_path / "whole", 60)
    watch = Watch([tmp_path / "damaged", tmp_path / "whole"])
    watch.look()
    damaged, whole = (run.facts() for run in watch.runs)
    assert len(damaged["problems"]) == 1
    assert says in damaged["problems"][0]
    assert (damaged["state"] == "damaged") == (name == "config.json")
    assert (whole["step"], whole["problems"]) == (60, [])


def test_runs_of_a_folder_and_those_that_begin_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("element_rl.watch.folders.MOST_RUNS", 2)
    for number in range(3):
        made(tmp_path / f"study/cells/{number}", 10)
    watch = Watch([tmp_path])
    assert (len(watch.runs), watch.left_out) == (2, 1)
    held = RunFolder.create(tmp_path / "later", CONFIG)
    watch.look()
    assert [run.path.name for run in watch.runs[2:]] == ["later"]
    assert watch.runs[2].facts()["state"] == "running"
    (old,) = (
        tmp_path / f"study/cells/{number}"
        for number in range(3)
        if f"{number}" not in {run.path.name for run in watch.runs}
    )
    with RunFolder.open(old).exclusively():  # one that was left out is resumed
        watch.look()
    assert [run.path for run in watch.runs[3:]] == [old]
    assert watch.left_out == 0
    del held


@pytest.mark.parametrize("name", ["missing", "other"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"There is no folder|is no run .* and holds none"):
        Watch([tmp_path / name])


def test_an_empty_folder_is_waited_in(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    watch = Watch([tmp_path])
    watch.look()
    assert watch.runs == ()
    made(tmp_path / "first", 10)
    watch.look()
    assert len(watch.runs) == 1
