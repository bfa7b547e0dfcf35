"""Radius and directions of visits, by hand."""

import numpy as np
import pytest

from element_rl.studies.beta import STUDY, extent
from element_rl.studies.coverage import STUDY as COVERAGE
from element_rl.studies.episodic_entropy import STUDY as ENTROPY

BOUNDS = np.array([[-50.0, 50.0], [-50.0, 50.0]])
START = np.zeros(2)


def visits(*cells: tuple[int, int, int]) -> np.ndarray:
    grid = np.zeros((100, 100), np.int32)
    for column, row, count in cells:
        grid[column, row] = count
    return grid


def test_radius_holds_nearly_all_visits() -> None:
    # Cell (50, 50) is centred on (0.5, 0.5); (80, 50) on (30.5, 0.5). 4 of 100 visits are far away:
    # they do not count.
    near = extent(visits((50, 50, 96), (80, 50, 4)), BOUNDS, START)[0]
    assert near == pytest.approx(np.hypot(0.5, 0.5))
    far = extent(visits((50, 50, 90), (80, 50, 10)), BOUNDS, START)[0]
    assert far == pytest.approx(np.hypot(30.5, 0.5))


def test_directions_count_sectors_by_their_visits() -> None:
    right, up, left = (70, 50), (50, 70), (30, 50)
    assert extent(visits((*right, 5)), BOUNDS, START)[1] == pytest.approx(1.0)
    assert extent(visits((*right, 5), (*up, 5)), BOUNDS, START)[1] == pytest.approx(2.0)
    # Shares 1/2, 1/4, 1/4: exp(½ log 2 + ½ log 4) = 2^1.5.
    assert extent(visits((*right, 4), (*up, 2), (*left, 2)), BOUNDS, START)[1] == pytest.approx(
        2**1.5
    )
    # Within 5 m of the start nothing tells a direction.
    assert extent(visits((52, 50, 100)), BOUNDS, START)[1] == 0.0


def test_start_elsewhere() -> None:
    radius, directions = extent(visits((70, 50, 7)), BOUNDS, np.array([20.5, 0.5]))
    assert (radius, directions) == (pytest.approx(0.0), 0.0)


def test_cells_in_common_are_the_same_cells() -> None:
    names = {
        study.name: {cell.method: cell.name for cell in study.cells(study.scales["smoke"])}
        for study in (STUDY, COVERAGE, ENTROPY)
    }
    assert names["beta"]["β = 0.5"] == names["coverage"]["element (paper)"]
    assert names["beta"]["β = 0"] == names["episodic-entropy"]["element, β = 0 (paper)"]
    assert names["coverage"]["rnd"] == names["episodic-entropy"]["rnd"]
    assert len(set(names["beta"].values())) == 6
