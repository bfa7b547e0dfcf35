"""Cells and visits within an episode against loops with a dictionary."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of

from element_rl.rewards.scaling import Moments
from element_rl.rewards.visit_cells import (
    NOT_VISITED,
    Cells,
    cells_of,
    random_cells,
    signs_of,
    visits_in_episode,
    visits_so_far,
)

AS_THEY_ARE = Moments(
    *map(jnp.asarray, (0.0, np.zeros(3, np.float32), np.zeros(3, np.float32)))
)  # mean 0, deviation 1
count = jax.jit(visits_so_far)
drawn = jax.jit(random_cells, static_argnums=(1, 2))
cells_at = jax.jit(cells_of, static_argnums=3)
visits = jax.jit(visits_in_episode, static_argnums=3)


def counted(keys: Any) -> list[int]:
    """Visits of each key up to each one."""
    seen: Counter[Any] = Counter()
    found = []
    for key in keys:
        seen[key] += 1
        found.append(seen[key])
    return found


def cells_by_hand(cells: Cells, vectors: np.ndarray, mean: Any, std: Any, width: float) -> Any:
    directions, offsets = (np.asarray(part, np.float64) for part in cells)
    inputs = (np.asarray(vectors, np.float64) - mean) / std
    return np.floor(inputs @ directions / width + offsets).astype(int)


def test_visits_by_hand() -> None:
    """Two cells in turn; the padding's cell is that of the first row, and it is not counted."""
    cells = jnp.array([[0, 1], [2, 1], [0, 1], [0, 2], [0, 1], [2, 1], [0, 1]], jnp.int32)
    present = jnp.array([True, True, True, True, True, True, False])
    np.testing.assert_array_equal(count(cells, present), [1, 1, 2, 1, 3, 2, 0])


@pytest.mark.parametrize("columns", [1, 3])
def test_visits_are_those_of_a_dictionary(columns: int) -> None:
    rng = np.random.default_rng(columns)
    cells = rng.integers(-2, 2, size=(60, columns)).astype(np.int32)
    present = rng.uniform(size=60) < 0.8  # also in the middle
    expected = np.zeros(60)
    expected[present] = counted(map(tuple, cells[present]))
    np.testing.assert_array_equal(count(jnp.asarray(cells), jnp.asarray(present)), expected)


@pytest.mark.parametrize(("dim", "projections"), [(2, 4), (3, 3), (9, 4)])
def test_cells_are_rounded_projections_of_whitened_vectors(dim: int, projections: int) -> None:
    """No more than K entries are not projected; directions have length 1."""
    cells = drawn(jax.random.key(0), dim, projections)
    if dim <= projections:
        np.testing.assert_array_equal(cells.directions, np.eye(dim))
    else:
        assert cells.directions.shape == (dim, projections)
        np.testing.assert_allclose(
            np.linalg.norm(cells.directions, axis=0), np.ones(projections), rtol=1e-6
        )
    assert ((np.asarray(cells.offsets) >= 0) & (np.asarray(cells.offsets) < 1)).all()
    rng = np.random.default_rng(0)
    past = rng.normal(3.0, 2.0, size=(50, dim)).astype(np.float32)
    seen = Moments(*map(jnp.float32, (50.0, past.mean(0), 50 * past.var(0))))
    vectors = rng.normal(3.0, 2.0, size=(20, dim)).astype(np.float32)
    expected = cells_by_hand(cells, vectors, past.mean(0), past.std(0), 0.7)
    found = np.asarray(cells_at(cells, jnp.asarray(vectors), seen, 0.7))
    np.testing.assert_array_equal(found, expected)
    assert found.min() > NOT_VISITED


def test_far_away_cells_are_as_small_as_near_ones() -> None:
    """Where a sign tells nothing apart, and what is beyond all numbers stays a cell."""
    cells = Cells(jnp.eye(1), jnp.array([0.25]))
    seen = Moments(jnp.asarray(4.0), jnp.array([10.0]), jnp.array([16.0]))  # deviation 2
    vectors = jnp.array([[10.0], [10.8], [1010.0], [1011.2], [1e30], [-1e30], [jnp.inf]])
    np.testing.assert_array_equal(
        cells_at(cells, vectors, seen, 0.5)[:, 0],
        [0, 1, 1000, 1001, 2_000_000, -2_000_000, 2_000_000],
    )
    np.testing.assert_array_equal(signs_of(cells, vectors, seen)[:, 0], [0, 1, 1, 1, 1, 0, 1])


def test_the_first_state_of_an_episode_is_a_visit() -> None:
    """There, away, back, away: the way back is a second visit. Padding is none."""
    places = np.array([[0.2, 0, 0], [5.2, 0, 0], [0.3, 0, 0], [5.2, 0, 0], [0.2, 0, 0]])
    cells = Cells(jnp.eye(3), jnp.full(3, 0.25))
    for rows, garbage in ((4, 0.0), (8, 0.2), (8, 1e9)):
        found = np.asarray(visits(cells, episode_of(places, rows, garbage), AS_THEY_ARE, 0.5))
        np.testing.assert_array_equal(found[:4], [1, 2, 2, 3])
        assert not found[4:].any()


def test_visits_of_a_walk_are_those_of_a_dictionary() -> None:
    rng = np.random.default_rng(3)
    walk = np.cumsum(0.3 * rng.normal(size=(31, 3)), axis=0).astype(np.float32)
    cells = drawn(jax.random.key(1), 3, 2)
    keys = cells_by_hand(cells, walk, np.zeros(3), np.ones(3), 0.5)
    expected = counted(map(tuple, keys))[1:]
    found = visits(cells, episode_of(walk), AS_THEY_ARE, 0.5)
    np.testing.assert_array_equal(found[:30], expected)
    assert max(expected) > 1
    np.testing.assert_array_equal(  # standing still
        visits(cells, episode_of(np.ones((11, 3))), AS_THEY_ARE, 0.5)[:10], np.arange(2, 12)
    )
