"""Tables of visits that grow, and the pictures that are cut from them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from element_rl.envs.cells import packed, unpacked
from element_rl.runs import visits
from element_rl.runs.folder import RunFolder
from element_rl.runs.visits import (
    CellCounts,
    Unbounded,
    bounds_of,
    covered_cells,
    has_map,
    picture,
    window_of,
)
from element_rl.training.measures import Measures

GROWN = {
    "coverage_axes": ["x", "y"],
    "coverage_bounds": None,
    "coverage_cell_size": [0.5, 2.0],
    "coverage_start": [0.0, 0.0],
}


def cells(*places: tuple[int, int]) -> np.ndarray:
    return packed(np.array(places, np.float64).reshape(-1, 2))


def test_a_table_counts_as_a_dictionary_does() -> None:
    """Through several doublings, with neighbours, repetitions and zero."""
    generator = np.random.default_rng(0)
    table, expected = CellCounts(), Counter[int]()
    for _ in range(60):
        places = np.round(generator.normal(0, 40, (200, 2)))
        seen = packed(places)
        table.visit(seen)
        expected.update(seen.tolist())
    found, counts = table.rows()
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == expected
    assert table.filled == len(expected) > 2048
    assert (np.diff(found) > 0).all()


def test_a_full_table_counts_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "MOST_CELLS", 1024)
    table = CellCounts()
    table.visit(np.arange(1000))
    table.visit(np.arange(5000))
    assert 1000 < table.filled <= 1024
    assert len(table._cells) == 2048
    cells, counts = table.rows()
    assert (counts[np.isin(cells, np.arange(1000))] == 2).all()
    for _ in range(3):
        table.visit(np.arange(20_000))
    assert table.filled == 1024
    assert (table.rows()[1][:1000] == 5).all()


def test_visits_are_stored_by_agent() -> None:
    counted = Unbounded(2, 2, unpacked)
    counted.visit(np.array([1, 0, 1]), cells((3, -4), (0, 0), (3, -4)))
    counted.visit(1, cells((-1, 0)))
    stored = counted.stored
    assert stored["covered"].tolist() == [1, 2]
    rows = [
        (agent, *cell, number)
        for agent, cell, number in zip(
            stored["agent"].tolist(),
            stored["cell"].tolist(),
            stored["visits"].tolist(),
            strict=True,
        )
    ]
    assert sorted(rows) == [(0, 0, 0, 1), (1, -1, 0, 1), (1, 3, -4, 2)]
    again = Unbounded(2, 2, unpacked)
    again.restore(counted.to_arrays())
    for name, array in stored.items():
        np.testing.assert_array_equal(again.stored[name], array)
    assert covered_cells(stored) == 3
    assert covered_cells(stored, slice(1, 2)) == 2


def test_pictures_hold_what_was_visited() -> None:
    counted = Unbounded(2, 2, unpacked)
    counted.visit(0, cells((3, 0), (3, 0), (0, 1)))
    counted.visit(1, cells((-1, 0)))
    assert has_map(GROWN)
    window = window_of(GROWN, counted.stored)
    assert window is not None
    # columns −1 to 3, rows 0 and 1, and two cells around them
    assert (window.first, window.shape, window.every) == ((-3, -2), (9, 6), 1)
    assert bounds_of(GROWN, window) == [[-1.5, 3.0], [-4.0, 8.0]]
    shown = picture(counted.stored, window)
    assert shown.shape == (2, 9, 6)
    assert (shown[0, 6, 2], shown[0, 3, 3], shown[1, 2, 2], shown.sum()) == (2, 1, 1, 4)


def test_what_is_far_away_shares_pixels() -> None:
    counted = Unbounded(1, 2, unpacked)
    counted.visit(0, cells((0, 0), (1, 1), (100_000, -7)))
    window = window_of(GROWN, counted.stored)
    assert window is not None
    assert window.every == 256  # the least power of two with at most 400 pixels
    assert max(window.shape) <= visits.MOST_PIXELS + 1
    shown = picture(counted.stored, window)
    assert shown.sum() == 3
    assert np.count_nonzero(shown) == 2
    assert covered_cells(counted.stored) == 3


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "x", "settings": {}, **GROWN})
    counts = Measures(1, None, grown_axes=2)
    counts.visit(0, cells((5, 6), (5, 7)))
    run.write_latest_visits(10, counts.visits)
    latest = run.read_latest_visits()
    assert latest is not None
    assert covered_cells(latest[1]) == 2
    run.save_checkpoint(10, {"w": np.zeros(1)}, counts.visits, {"r": np.zeros(1)}, {})
    run.write_random_visits(counts.visits)
    for found in (run.load_visits(10), run.read_random_visits()):
        assert found["cell"].tolist() == [[5, 6], [5, 7]]
    assert counts.line(0, 0.0, 0)["coverage"] == 2
    assert counts.totals()["coverage"] == [2]
    older = {"coverage_axes": None, "coverage_bounds": None}
    assert not has_map(older)
