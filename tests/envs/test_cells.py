"""Cells without a map, and sides of those on a map without bounds."""

import numpy as np
import pytest

from element_rl.envs.cells import (
    DifferentObservations,
    DifferentPictures,
    StateCells,
    map_cell,
    mixtures,
    packed,
    state_cells,
    unpacked,
)
from element_rl.envs.make import describe
from element_rl.envs.measuring import _reach, rounded
from element_rl.envs.spec import EnvSpec, coverage_cell


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_indices_are_one_number_and_come_back(axes: int) -> None:
    reach = 2 ** (64 // axes - 1)
    generator = np.random.default_rng(0)
    indices = generator.integers(-min(reach, 2**52), min(reach, 2**52), (50, axes))
    indices[0], indices[1] = 0, -1
    cells = packed(indices.astype(np.float64))
    assert cells.dtype == np.int64
    np.testing.assert_array_equal(unpacked(cells, axes), indices)
    assert len(np.unique(cells)) == len(np.unique(indices, axis=0))


def test_what_lies_beyond_is_the_outermost() -> None:
    (far,) = unpacked(packed(np.array([[1e30, -1e30]])), 2).tolist()
    assert far == [2**31 - 1, -(2**31)]


def test_cells_of_a_map_are_the_same_wherever_the_agent_begins() -> None:
    places = np.array([[0.1, 0.1], [0.49, 0.0], [-0.1, 0.0], [1e7, -3.0]])
    found = unpacked(map_cell(places, (0.5, 1.0)), 2)
    assert found.tolist() == [[0, 0], [0, 0], [-1, 0], [20_000_000, -3]]


def test_state_cells_by_hand() -> None:
    """asinh((3 − 1) / 2) = 0.8814, half of which is cell 1; asinh(−4) = −2.0947, cell −5."""
    cells = StateCells((1.0, 0.0), (2.0, 0.5))
    assert cells.axes == 2
    found = unpacked(cells.cell(np.array([[3.0, -2.0], [1.0, 0.0]], np.float32)), 2)
    assert found.tolist() == [[1, -5], [0, 0]]
    # columns after these, a latent, tell nothing
    assert cells.cell(np.array([3.0, -2.0, 9.0])) == cells.cell(np.array([3.0, -2.0]))


def test_many_columns_are_mixed_the_same_for_ever() -> None:
    directions = mixtures(17)
    np.testing.assert_allclose(directions.T @ directions, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(directions[0], [0.3197, 0.0727, 0.1707, 0.5672], atol=5e-4)
    cells = StateCells((0.0,) * 17, (1.0,) * 17)
    observations = np.random.default_rng(0).standard_normal((100, 17))
    units = np.arcsinh(observations) @ directions
    found = unpacked(cells.cell(observations), 4)
    np.testing.assert_array_equal(found, np.floor(units / 0.5))


def test_units_are_of_the_environment_alone() -> None:
    rows = np.random.default_rng(0).normal([5.0, 0.0, 7.0], [2.0, 0.1, 0.0], (1000, 3))
    cells = state_cells(rows)
    assert isinstance(cells, StateCells)
    assert cells.mean == pytest.approx((5.0, 0.0, 7.0), abs=0.3)
    assert cells.deviation == pytest.approx((2.0, 0.1, 1.0), rel=0.1)  # what never moved has 1
    one, two = describe("Acrobot-v1"), describe("Acrobot-v1", max_episode_steps=500)
    assert one.other_cells == two.other_cells
    assert one.coverage_of == "state cells"


def test_observations_of_whole_numbers_are_counted_as_they_are() -> None:
    cells = state_cells(np.eye(16)[[0, 1, 2, 1]])
    assert cells == DifferentObservations(16)
    found = cells.cell(np.eye(16, dtype=np.float32)[[3, 5, 3, 7]])
    assert len(np.unique(found)) == 3
    assert found[0] == found[2]
    assert describe("FrozenLake-v1").coverage_of == "observations"


def test_pictures_are_seen_coarsely() -> None:
    """A cell of a picture is 12 × 7 pixels; greys are 32 apart."""
    frames = np.zeros((4, 84, 84), np.uint8)
    frames[1, 0, 0] = 255  # one pixel of 84: 3 on average
    frames[2, :12, :7] = 32
    frames[3, 12:24, :7] = 32
    found = DifferentPictures().cell(frames)
    assert found[0] == found[1]
    assert len(np.unique(found)) == 3
    spec = EnvSpec("x", (84, 84), 10, position_dim=2, other_cells=DifferentPictures())
    places = np.zeros((4, 2), np.float32)
    np.testing.assert_array_equal(coverage_cell(spec, places, frames), found)


@pytest.mark.parametrize(
    ("side", "nearest"),
    [
        (1.0, 1),
        (1.4, 1),
        (1.5, 2),
        (3.1, 2),
        (3.2, 5),
        (7.0, 5),
        (7.2, 10),
        (0.018, 0.02),
        (0.0, 0.0),
    ],
)
def test_sides_are_round_numbers(side: float, nearest: float) -> None:
    assert rounded(side) == nearest


def test_tiles_and_reach() -> None:
    tiles = np.array([[1, 1], [2, 1], [2, 1], [2, 2]], np.float64)
    assert _reach([tiles], tiles[:1]) == [1.0, 1.0]
    pixels = 3 * tiles
    assert _reach([pixels], pixels[:1]) == pytest.approx([3 / 5, 3 / 5])
