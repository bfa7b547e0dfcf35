"""What a study tells the leaderboard: everything of its cells, and nothing that is not whole."""

import dataclasses
import json
from pathlib import Path

import pytest
from support.tiny_study import tiny_cell

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError
from element_rl.studies import additivity, coverage
from element_rl.studies.engine.attempt import attempt, prepare
from element_rl.studies.engine.grid import Cell, FinishedCell, Scale, cell_folder
from element_rl.studies.engine.methods import reward_cell
from element_rl.studies.engine.submission import (
    Submission,
    check_name,
    read_submission,
    submission_of,
    write_submission,
)

SEEDS = (1_000, 1_001, 1_002, 1_003, 1_004)
OWN_REWARD = (
    "from element_rl.rewards import make_reward\n\n\ndef make():\n    return make_reward('rnd')\n"
)
SCALE = Scale(("PointMaze-v0",), 5, {"PointMaze-v0": 600}, first_seed=1_000)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedCell:
    """A cell of five random policies on report seeds, at a commit without changes."""
    out = tmp_path_factory.mktemp("study")
    cell = tiny_cell("random", seed=SEEDS[0], seeds=5, log_every=20)
    attempt(prepare(out, cell))
    run = RunFolder.open(cell_folder(out, cell))
    return FinishedCell(cell, run, run.read_summary() | {"commit": "0123456789abcdef"})


def submitted(*cells: FinishedCell) -> Submission:
    return submission_of(coverage.STUDY, "smoke", "my reward", "element study coverage", cells)


def test_scores_curves_and_origin_are_those_of_the_cells(done: FinishedCell) -> None:
    submission = submitted(done)
    (entry,) = submission.entries
    assert (entry.environment, entry.method, entry.steps) == ("PointMaze-v0", "random", 600)
    assert entry.seeds == SEEDS
    assert list(entry.scores) == done.summary["coverage"]
    assert entry.curve_steps[-1] == 600
    assert [curve[-1] for curve in entry.curves] == done.summary["coverage"]
    assert entry.settings["sac"]["hidden_sizes"] == [8]
    assert entry.settings["chunk_steps"] == 20
    assert "steps" not in entry.settings  # said once
    assert submission.commit == "0123456789abcdef"
    assert f"mujoco {done.summary['versions']['mujoco']}" in submission.versions


def test_a_file_is_read_as_it_was_written(done: FinishedCell, tmp_path: Path) -> None:
    path = write_submission(tmp_path, submitted(done))
    assert path.name == "coverage-my-reward.json"
    assert read_submission(path) == submitted(done)


def test_long_curves_are_thinned_and_keep_their_ends(done: FinishedCell) -> None:
    steps, _ = done.curves("coverage")
    (entry,) = submitted(done).entries
    assert len(entry.curve_steps) == min(len(steps), 50)
    assert (entry.curve_steps[0], entry.curve_steps[-1]) == (steps[0], steps[-1])


def test_what_cannot_be_measured_again_is_refused(done: FinishedCell) -> None:
    changed = dataclasses.replace(done, summary={**done.summary, "commit": "0123-dirty"})
    with pytest.raises(ValueError, match="0123-dirty"):
        submitted(changed)
    other = dataclasses.replace(done, summary={**done.summary, "commit": "456"})
    with pytest.raises(ValueError, match="one commit"):
        submitted(done, other)


def test_development_seeds_are_refused(done: FinishedCell) -> None:
    development = dataclasses.replace(done, cell=tiny_cell("random", seeds=5))
    with pytest.raises(ValueError, match="--report"):
        submitted(development)


def test_too_few_seeds_are_refused(done: FinishedCell, tmp_path: Path) -> None:
    values = json.loads(write_submission(tmp_path, submitted(done)).read_text())
    entry = values["entries"][0]
    for name in ("seeds", "scores", "curves"):
        entry[name] = entry[name][:4]
    (tmp_path / "few.json").write_text(json.dumps(values))
    with pytest.raises(FileError, match=r"few\.json.*5 different seeds"):
        read_submission(tmp_path / "few.json")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("format", 2, "format 2"),
        ("by", "../../etc", "letters"),
        ("entries", [{"environment": "Ant-v5"}], "method"),
    ],
)
def test_a_stranger_s_file_is_one_sentence(
    done: FinishedCell, tmp_path: Path, name: str, value: object, says: str
) -> None:
    values = json.loads(write_submission(tmp_path, submitted(done)).read_text())
    (tmp_path / "other.json").write_text(json.dumps(values | {name: value}))
    with pytest.raises(FileError, match=says):
        read_submission(tmp_path / "other.json")


def test_any_reward_can_be_a_method(tmp_path: Path) -> None:
    """One of the user's own is another cell when its code changes."""
    own = tmp_path / "mine.py"
    own.write_text(OWN_REWARD)

    def cell(name: str) -> Cell:
        return reward_cell("PointMaze-v0", name, SCALE)

    assert cell("apt").config.recent_scale  # type: ignore[union-attr]
    assert not cell("element-paper").config.recent_scale  # type: ignore[union-attr]
    assert not cell("element + rnd").config.recent_scale  # type: ignore[union-attr]
    before = cell(f"{own}:make").name
    own.write_text(OWN_REWARD + "# changed\n")
    assert cell(f"{own}:make").name != before
    with pytest.raises(ValueError, match="no reward called 'rdn'"):
        cell("rdn")


def test_the_command_refuses_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    study = ["study", "coverage", "--scale", "smoke", "--submit"]
    for arguments, says in (
        ([*study, "me"], "--report"),
        ([*study, "me", "--report", "--so-far"], "--so-far"),
        ([*study, "../me", "--report"], "--submit takes a name"),
        (["study", "beta", "--scale", "smoke", "--report", "--submit", "me"], "no leaderboard"),
        (["study", "beta", "--scale", "smoke", "--methods", "apt"], "no method 'apt'"),
    ):
        assert main(arguments) == 2
        assert says in capsys.readouterr().err
    check_name("ELEMENT 2.0")
    assert additivity.STUDY.score is None
