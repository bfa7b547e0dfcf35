"""What the comparisons make of finished runs, by hand: scores, curves, maps and notes; and which
cells they share."""

from pathlib import Path

import numpy as np
import pytest

from element_rl.runs.folder import RunFolder
from element_rl.studies import coverage, episodic_entropy
from element_rl.studies.engine import maps
from element_rl.studies.engine.analysis import (
    curves_of,
    length_notes,
    maps_of,
    mean_of,
    means_table,
    scores_of,
)
from element_rl.studies.engine.grid import FinishedCell
from element_rl.studies.engine.methods import BASELINES, SCALES, SMOKE, cell_of
from element_rl.studies.engine.results import Frame

BOUNDS = [[-50.0, 50.0], [-50.0, 50.0]]


def finished_run(path: Path, env: str, method: str, with_map: bool = True) -> FinishedCell:
    """The folder of a run of two seeds that has a planned checkpoint at 100 and at 200, and was
    stopped at 130."""
    config = {
        "settings": {"checkpoint_every": 100, "chunk_steps": 10},
        "coverage_bounds": BOUNDS if with_map else None,
        "coverage_axes": ["x", "y"] if with_map else None,
    }
    run = RunFolder.create(path / f"{env}-{method}", config)
    visits = np.zeros((2, 100, 100), np.int32)
    for step in (100, 130, 200):
        visits[:, 50, step // 10] = 1
        run.save_checkpoint(step, {"w": np.zeros((2, 1))}, visits if with_map else None, {}, {})
        coverage_of = {0: step / 10, 1: step / 5} if with_map else {0: None, 1: None}
        run.append_metrics(
            [{"step": step, "seed": seed, "coverage": coverage_of[seed]} for seed in (0, 1)]
        )
    summary = {
        "seeds": [0, 1],
        "coverage": [20, 40] if with_map else [None, None],
        "episodic_entropy": [3.0, None],
        "reward": "element" if method == "element" else method,
        "steps": 200,
        "update_interval": 20,
        "update_steps": 2,
    }
    run.write_summary(summary)
    return FinishedCell(cell_of("PointMaze-v0", method, SMOKE), run, summary)


def test_scores_and_means(tmp_path: Path) -> None:
    done = [finished_run(tmp_path, "PointMaze-v0", method) for method in ("element", "rnd")]
    scores = scores_of(done, "episodic_entropy")
    assert list(scores) == ["PointMaze-v0"]
    assert list(scores["PointMaze-v0"]) == ["element", "rnd"]
    np.testing.assert_array_equal(scores["PointMaze-v0"]["rnd"], [3.0, np.nan])
    assert mean_of(done[0].summary, "episodic_entropy") == 3.0
    assert mean_of({"x": [None, None]}, "x") is None


def test_means_as_a_table(tmp_path: Path) -> None:
    done = [finished_run(tmp_path, "PointMaze-v0", method) for method in ("element", "rnd")]
    quantities = {"cells": "coverage", "entropy": "episodic_entropy", "not there": "nothing"}
    table = means_table("t", "T", done, quantities)
    assert table.columns == ("environment", "method", "cells", "entropy", "not there")
    assert table.rows[1] == ("PointMaze-v0", "rnd", 30.0, 3.0, None)


def test_curves_are_averages_of_the_seeds(tmp_path: Path) -> None:
    done = [finished_run(tmp_path, "PointMaze-v0", "element")]
    (curves,) = curves_of(done, "coverage", "cells")
    assert [
        curves_of(done, column, "y")[0].counts
        for column in ("coverage", "episode_length", "extrinsic_return")
    ] == [
        True,
        True,
        False,
    ]
    (series,) = curves.series
    assert series.x == (100.0, 130.0, 200.0)
    assert series.ends == (20.0, 40.0)
    assert series.middle == (15.0, 19.5, 30.0)
    assert all(
        low <= value <= high
        for low, value, high in zip(series.low, series.middle, series.high, strict=True)
    )


def test_maps_show_the_planned_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = finished_run(tmp_path, "PointMaze-v0", "element")
    assert done.run.planned_checkpoints() == [100, 200]
    (map_,) = maps_of([done])
    assert [frame.label for frame in map_.frames] == ["100 steps", "200 steps"]
    assert map_.frames[0] == Frame("100 steps", (50 * 100 + 10,), (2.0,))
    # what was visited before the run was stopped is still visited
    assert len(map_.frames[1].index) == 3
    monkeypatch.setattr(maps, "MOST_FRAMES", 1)
    assert [frame.label for frame in maps_of([done])[0].frames] == ["100 steps"]


def test_an_environment_without_a_map(tmp_path: Path) -> None:
    """Everything is made, with nothing in it."""
    done = [
        finished_run(tmp_path, "Pendulum-v1", method, with_map=False)
        for method in ("element", "random")
    ]
    found = coverage.analyse(done, SMOKE)
    assert found.maps == ()
    assert found.curves[0].series[0].x == ()
    assert found.sentences == ()
    assert [row[2] for row in found.tables[0].rows] == [0, 0]


def test_notes_say_how_the_memory_was_fed(tmp_path: Path) -> None:
    (note,) = length_notes(
        [finished_run(tmp_path, "PointMaze-v0", method) for method in ("element", "rnd")]
    )
    assert "200 steps per seed; the lifelong memory takes in 2 steps every 20" in note
    assert length_notes([finished_run(tmp_path / "other", "PointMaze-v0", "rnd")]) == ()


@pytest.mark.parametrize("name", SCALES)
def test_the_two_comparisons_share_their_baselines(name: str) -> None:
    scale = SCALES[name]
    wide, deep = (
        {cell.name: cell for cell in study.STUDY.cells(scale)}
        for study in (coverage, episodic_entropy)
    )
    shared = wide.keys() & deep.keys()
    assert {wide[cell].method for cell in shared} == {*BASELINES, "random"}
    assert len(shared) == len(scale.envs) * 5
    assert len(wide) == len(deep) == len(scale.envs) * 7  # both forms of ELEMENT are not shared
    other = {cell.name for cell in coverage.STUDY.cells(SMOKE)} if name != "smoke" else set()
    assert not other & wide.keys()  # other settings are other cells
