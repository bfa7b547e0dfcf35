"""Maps grow between checkpoints, and go back when a run does."""

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest

from element_rl.runs.folder import LATEST_VISITS, RunFolder
from element_rl.storage.files import FileError
from element_rl.training import measures
from element_rl.training.measures import LatestMap, Measures
from element_rl.watch.run import WatchedRun

CONFIG = {
    "env": "x$\\frac{$y",
    "reward": "element",
    "coverage_bounds": [[0, 10], [0, 20]],
    "coverage_axes": ["x$", "y"],
    "coverage_start": [5, 5],
    "settings": {"steps": 100, "seeds": 2},
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


def visits(*counts: int) -> np.ndarray:
    """Of two seeds, in one cell each."""
    made = np.zeros((2, 10, 10), np.int32)
    made[0, 5, 2], made[1, 6, 3] = counts
    return made


def log(run: RunFolder, step: int) -> None:
    run.append_metrics([{"step": step, "seed": seed} for seed in range(2)])


def shown(watched: WatchedRun, step: int, seed: int | None = None) -> np.ndarray:
    packed = watched.visits(step, seed)["cells"]
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<u4").reshape(10, 10)


def test_a_map_grows_and_is_played_back(run: RunFolder) -> None:
    watched = WatchedRun(run.path)
    watched.look()
    assert watched.facts()["map"] is None
    log(run, 10)
    run.write_latest_visits(10, visits(1, 2))
    watched.look()
    facts = watched.facts()["map"]
    assert (facts["steps"], facts["seeds"], facts["xLabel"]) == ([10], 2, "x$ (m)")
    np.testing.assert_array_equal(shown(watched, 10), visits(1, 2).sum(axis=0))
    np.testing.assert_array_equal(shown(watched, 10, 1), visits(1, 2)[1])
    log(run, 20)
    run.save_checkpoint(20, {"w": np.zeros(1)}, visits(3, 4), {"r": np.zeros(1)}, {})
    assert not (run.path / LATEST_VISITS).exists()
    log(run, 30)
    run.write_latest_visits(30, visits(5, 6))
    watched.look()
    assert watched.facts()["map"]["steps"] == [20, 30]
    np.testing.assert_array_equal(shown(watched, 20), visits(3, 4).sum(axis=0))
    np.testing.assert_array_equal(shown(watched, 30), visits(5, 6).sum(axis=0))
    run.truncate_metrics(20)  # resumed
    watched.look()
    assert watched.facts()["map"]["steps"] == [20]
    assert watched.visits(30, None) == {"step": 30, "cells": None}
    with pytest.raises(FileError, match="has 2 seeds"):
        watched.visits(20, 2)


def test_the_part_that_is_shown_has_been_visited(run: RunFolder) -> None:
    """Cells of 1 m × 2 m; visited are columns 5 to 6 and rows 2 to 3, begun at (5, 5)."""
    log(run, 10)
    run.write_latest_visits(10, visits(1, 1))
    watched = WatchedRun(run.path)
    watched.look()
    (left, right), (low, high) = watched.facts()["map"]["part"]
    # with a margin of 6 %: x from 4.88 to 7.12 m, y from 3.76 to 8.24 m
    assert (left, right, low, high) == (4, 8, 1, 5)


def test_what_was_shown_beyond_the_metrics_does_not_count(run: RunFolder) -> None:
    """A run that was killed while it went back."""
    log(run, 10)
    run.write_latest_visits(40, visits(1, 1))
    watched = WatchedRun(run.path)
    watched.look()
    assert watched.facts()["map"] is None


def test_the_latest_map_is_written_now_and_then(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(measures.time, "monotonic", lambda: clock[0])
    counts, latest = Measures(2, (10, 10)), LatestMap(run)
    for step, moment in ((1, 0.0), (2, 1.9), (3, 2.1), (4, 4.0)):
        clock[0] = moment
        counts.visit(0, np.array([7]))
        latest.show(step, counts)
        found = run.read_latest_visits()
        assert found is not None
        assert found[0] == {1: 1, 2: 1, 3: 3, 4: 3}[step]
        assert found[1][0, 0, 7] == found[0]
    (run.path / LATEST_VISITS).unlink()
    clock[0] = 10.0
    monkeypatch.setattr(
        RunFolder, "write_latest_visits", lambda *_: (_ for _ in ()).throw(FileError("full"))
    )
    latest.show(5, counts)  # a run does not end for it
    LatestMap(None).show(6, counts)
    LatestMap(run).show(6, Measures(2, None))
