"""The benchmark of pools measures what it says: a tiny run, against NumPy."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_pool_correlation
from benchmarks.bench_pool_correlation import Settings


def test_distance_to_the_third_nearest_of_some() -> None:
    states = np.array([[0.0], [1.0], [3.0], [7.0], [20.0]], np.float32)
    found = bench_pool_correlation.kth_distance(
        states, np.array([0, 3]), np.array([0, 1, 2, 4]), k=3
    )
    np.testing.assert_allclose(found, [20, 7])  # of 0: 1, 3, 20; of 7, which is not among them: 4


def test_all_states_rank_as_themselves_and_few_do_not(tmp_path: Path) -> None:
    settings = Settings(
        ("PointMaze",),
        steps=1_000,
        shares=(0.02, 0.5),
        queries=200,
        samples=2,
        max_episode_steps=100,
        page=False,
        out=tmp_path / "rows.json",
    )
    few, half, whole = bench_pool_correlation.main(settings)
    assert (few["states"], few["draws"], half["draws"]) == (1_000, 20, 500)
    assert whole["correlation"][0] == pytest.approx(1)
    assert np.mean(few["correlation"]) < np.mean(half["correlation"]) < 1
