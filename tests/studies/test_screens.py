"""Studies on environments that show images, whole and tiny: an encoder, explorers on rollouts, maps
and paths of them.

Rooms-v0 goes through all of it, in real processes; Super Mario Bros through one cell, where it is
installed.
"""

import dataclasses
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.cli import main
from element_rl.commands.study import StudyCommand, chosen_cells, chosen_scale
from element_rl.encoders.frozen import FILE
from element_rl.envs import mario_emulator
from element_rl.envs.names import MARIO
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_arrays, to_json
from element_rl.studies import coverage, episodic_entropy, offline, trajectories, transfer
from element_rl.studies.engine import tasks
from element_rl.studies.engine.attempt import attempt, prepare
from element_rl.studies.engine.episodes import act_on_frames, acted
from element_rl.studies.engine.grid import Cell, Scale, cell_folder, finished, is_done, record
from element_rl.studies.engine.jobs import job_from_json, job_to_json
from element_rl.studies.engine.methods import SMALL, SMOKE, cell_of
from element_rl.studies.engine.results import read_results
from element_rl.studies.engine.runner import conclude
from element_rl.studies.engine.so_far import so_far
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.on_policy.config import OnPolicyConfig

INSTALLED = all(
    importlib.util.find_spec(name) for name in ("stable_retro", mario_emulator.ROM_PACKAGE)
)
ROOMS = "Rooms-v0"
TWO = ["--scale", "smoke", "--envs", "rooms", "--methods", "element", "random", "--together", "2"]


def scale_of(*envs: str, study=coverage.STUDY, **settings: object) -> Scale:
    return chosen_scale(study, StudyCommand(study.name, "smoke", envs=envs, **settings))


def cells(study=coverage.STUDY) -> list[Cell]:
    return chosen_cells(study, scale_of("rooms", study=study), ("element", "random"))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens") / "out"
    assert main(["study", "coverage", *TWO, "--out", str(folder)]) == 0
    return folder


def test_grids() -> None:
    """The same methods as elsewhere, all after one encoder; named alone, a method still has its
    encoder."""
    scale = scale_of("rooms")
    wide, deep = (chosen_cells(study.STUDY, scale, ()) for study in (coverage, episodic_entropy))
    assert [cell.method for cell in wide] == [
        "encoder",
        "element",
        "rnd",
        "ngu",
        "re3",
        "rise",
        "random",
    ]
    encoder, ours, *others = wide
    assert isinstance(encoder.config, PretrainConfig)
    assert all(cell.needs == (encoder,) for cell in wide[1:])
    assert all(isinstance(cell.config, OnPolicyConfig) for cell in wide[1:])
    assert ours.config.encoder == Path("..") / encoder.name
    assert encoder.config.env_options == ours.config.env_options == ("max_episode_steps=60",)
    assert [cell.config.scale_reward for cell in wide[1:]] == [False, True, True, True, True, False]
    assert [cell.seeds for cell in wide] == [1, 2, 2, 2, 2, 2, 2]
    assert deep[1].config.beta == 0.0
    assert {cell.name for cell in wide} & {cell.name for cell in deep} == {
        cell.name for cell in (encoder, *others)
    }
    assert encoder.name.startswith("Rooms-v0-encoder-")
    assert [cell.method for cell in chosen_cells(coverage.STUDY, scale, ["rnd"])] == [
        "encoder",
        "rnd",
    ]


def test_sizes() -> None:
    """Of screens and of robots beside each other; what is asked for is meant for both."""
    small = dataclasses.replace(
        SMALL, screens=dataclasses.replace(SMALL.screens, steps={ROOMS: 500_000})
    )
    assert [
        (cell.seeds, cell.steps)
        for cell in (cell_of("Ant-v5", "x", small), cell_of(ROOMS, "x", small))
    ] == [
        (5, 1_000_000),
        (3, 500_000),
    ]
    assert cell_of(ROOMS, "x", small).environments == 18  # six workers of three agents
    chosen = scale_of("rooms", "PointMaze", steps=77, seeds=1)
    both = chosen_cells(coverage.STUDY, chosen, ["random"])
    assert [(cell.env, cell.method, cell.seeds) for cell in both] == [
        (ROOMS, "encoder", 1),
        (ROOMS, "random", 1),
        ("PointMaze-v0", "random", 1),
    ]
    assert [cell.steps for cell in both[1:]] == [77, 77]


def test_jobs_come_back_from_json() -> None:
    for cell in chosen_cells(coverage.STUDY, scale_of("rooms"), ()):
        assert (
            job_from_json(json.loads(json.dumps(to_json(job_to_json(cell.config))))) == cell.config
        )


def test_coverage(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Maps are as large as the environment's, in its unit; the command again runs nothing."""
    results = read_results(out / "coverage")
    assert [(cell.method, cell.state) for cell in results.cells] == [
        ("encoder", "done"),
        ("element", "done"),
        ("random", "done"),
    ]
    (ours, _) = results.maps
    assert (ours.shape, ours.bounds) == ((49, 37), ((0.0, 49.0), (0.0, 37.0)))
    assert (ours.x_label, ours.y_label, ours.start, ours.equal_scales) == (
        "x (tiles)",
        "y (tiles)",
        (6.5, 6.5),
        True,
    )
    assert [frame.label for frame in ours.frames] == ["150 steps", "300 steps"]
    element = finished(out, cells()[1])
    assert element is not None
    visited = element.run.load_visits().sum(axis=0)
    assert visited.shape == (49, 37)
    np.testing.assert_array_equal(np.nan_to_num(ours.frames[-1].grid(ours.shape)), visited)
    assert [row[1:3] for row in results.tables[0].rows] == [("element", 2), ("random", 2)]
    assert "takes in 3 steps every 30" in results.notes[0]
    assert element.summary["encoder"] == "trained"
    assert str(out) not in (element.run.path / "config.json").read_text()
    assert (out / "coverage" / "report.html").stat().st_size > 10_000
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*")}
    assert main(["study", "coverage", *TWO, "--out", str(out)]) == 0
    assert "3 of 3 cells done" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*")} == before


def test_trajectories(out: Path) -> None:
    """Policies of the checkpoints act on the screen, for as many samples as asked for, the same
    ones again."""
    assert (
        main(["study", "trajectories", "--scale", "smoke", "--envs", ROOMS, "--out", str(out)]) == 0
    )
    results = read_results(out / "trajectories")
    (table,) = results.tables
    assert [row[:3] for row in table.rows] == [
        (ROOMS, 150, 4),
        (ROOMS, 300, 4),
    ]  # 200 samples in episodes of 60
    assert table.title.startswith("200 samples")
    assert " tiles away" in results.findings[0]
    (paths,) = results.paths
    assert (paths.x_label, paths.start) == ("x (tiles)", (6.5, 6.5))
    entry = finished(out, cells()[1])
    assert entry is not None
    agent = trajectories.median_seed(entry)
    kept = acted(entry.run, [300], agent, 200)[300]
    (_, other), (_, again) = act_on_frames(entry.run, [150, 300], agent, 200)
    assert [len(path) for path in kept] == [61, 61, 61, 21]
    assert all(np.array_equal(a, b) for a, b in zip(kept, again, strict=True))
    # a tile per step
    assert all(np.abs(np.diff(path, axis=0)).sum(axis=1).max() <= 1 for path in kept)
    assert not all(np.array_equal(a, b) for a, b in zip(kept, other, strict=True))


def test_stopped_cells_go_on(out: Path, tmp_path: Path) -> None:
    """An encoder and an explorer that were stopped end as those that were not."""
    undisturbed = {cell.method: cell_folder(out, cell) for cell in cells()}
    for cell in cells()[:2]:
        folder = prepare(tmp_path, cell)
        calls: Iterator[int] = iter(range(1_000_000))
        with pytest.raises(Interrupted):
            attempt(folder, lambda: next(calls) >= 4)  # noqa: B023 (called within the round)
        assert not is_done(folder)
        attempt(folder)
    ours, theirs = (
        read_arrays(cell_folder(place, cells()[0]) / FILE)[0] for place in (out, tmp_path)
    )
    assert_same((ours, {}), (theirs, {}))
    assert_same(
        outcome(RunFolder.open(undisturbed["element"])),
        outcome(RunFolder.open(cell_folder(tmp_path, cells()[1]))),
    )


def test_a_study_that_is_not_done(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out / "cells", tmp_path / "cells")
    (cell_folder(tmp_path, cells()[1]) / "summary.json").unlink()
    entries, notes = so_far(cells(), tmp_path)
    assert [(entry.cell.method, entry.summary["steps"]) for entry in entries] == [
        ("element", 300),
        ("random", 300),
    ]
    assert "because element went no further" in notes[0]
    results = conclude(
        coverage.STUDY, "smoke", SMOKE, cells(), tmp_path, "element study", unfinished=True
    )
    assert [cell.state for cell in results.cells] == ["done", "missing", "done"]


def test_transfer(out: Path) -> None:
    """A3C from nothing beside A3C that begins with what the explorer of the study on coverage has
    learned."""
    scale = scale_of("rooms", study=transfer.STUDY)
    grid = chosen_cells(transfer.STUDY, scale, ["element"])
    assert [(cell.method, type(cell.config).__name__, len(cell.needs)) for cell in grid] == [
        ("encoder", "PretrainConfig", 0),
        ("a3c", "OnPolicyConfig", 1),
        ("element", "OnPolicyConfig", 1),
        ("element", "FinetuneConfig", 1),
    ]
    assert {cell.name for cell in grid} >= {cell.name for cell in cells()[:2]}
    for cell in grid:
        attempt(prepare(out, cell))
    results = conclude(transfer.STUDY, "smoke", scale, grid, out, "element study transfer")
    assert [cell.state for cell in results.cells] == ["done"] * 4
    means, _, starts, _ = results.tables
    assert [row[:3] for row in means.rows] == [(ROOMS, "element", 2), (ROOMS, "a3c", 2)]
    assert [row[1] for row in starts.rows] == ["element", "a3c"]
    assert starts.rows[0][3] is not None
    assert any(note.startswith("a3c: from scratch") for note in results.notes)
    assert not any(note.startswith("sac") for note in results.notes)


def test_offline(out: Path) -> None:
    """Frames are collected, and learned from; what was learned online is judged on the screen."""
    scale = scale_of("rooms", study=offline.STUDY)
    grid = chosen_cells(offline.STUDY, scale, ["element"])
    for cell in grid:
        attempt(prepare(out, cell))
    results = conclude(offline.STUDY, "smoke", scale, grid, out, "element study offline")
    assert [(cell.method, cell.state) for cell in results.cells] == [
        *[("encoder", "done"), ("a3c", "done")],
        *[("element", "done"), ("random", "done")] * 3,  # explored, collected, learned from
    ]
    (returns,) = [table for table in results.tables if table.name == "returns"]
    assert [row[:3] for row in returns.rows] == [(ROOMS, "element", 400), (ROOMS, "random", 400)]
    assert (
        "Rooms-v0: 200 samples per seed, from all checkpoints of the explorers alike; 4 updates, "
        "conservative weight 1." in results.notes
    )
    (reached,) = (out / "cells").glob("*/reference.json")
    assert reached.parent == cell_folder(out, grid[1])
    assert returns.rows[0][-1] == json.loads(reached.read_text())["extrinsic_return"]


def test_the_task_online_on_mario() -> None:
    """Mario's own reward is scaled, as where it is learned after exploring."""
    small = dataclasses.replace(tasks.SMALL, envs=(MARIO,))
    assert isinstance(config := tasks.online(MARIO, small).config, OnPolicyConfig)
    assert (config.reward, config.reward_options, config.steps) == (
        "extrinsic",
        ("scale=0.1",),
        500_000,
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["beta", "--envs", ROOMS], "shows images: choose a robot, or the study coverage"),
        (["additivity", "--envs", "rooms"], "shows images: choose a robot"),
        (["coverage", "--envs", "CartPole-v1"], "has vectors with 2 choices: explore it with"),
    ],
)
def test_mistakes(
    arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *arguments, "--scale", "smoke", "--out", str(tmp_path / "out")]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert part in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(
    not INSTALLED, reason="NOT TESTED: Super Mario Bros is not installed; pip install -e '.[mario]'"
)
def test_mario(tmp_path: Path) -> None:
    """One agent that acts at random for 150 steps, and where it has been."""
    scale = scale_of("mario", seeds=1, steps=150)
    assert scale.envs == (MARIO,)
    grid = chosen_cells(coverage.STUDY, scale, ["random"])
    for cell in grid:
        attempt(prepare(tmp_path, cell))
    assert [record(tmp_path, cell).state for cell in grid] == ["done", "done"]
    (map_,) = conclude(coverage.STUDY, "smoke", scale, grid, tmp_path, "element study").maps
    assert (map_.shape, map_.x_label, map_.equal_scales, map_.start) == (
        (100, 200),
        "x (pixels)",
        False,
        (40.0, 79.0),
    )
    assert sum(map_.frames[-1].value) >= 150
    (figure,) = (tmp_path / "coverage" / "figures").glob("*where_the_agents*.png")
    assert figure.stat().st_size > 5_000
