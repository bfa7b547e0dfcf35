"""Merged notes equal a fresh exact query after any sequence of insertions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from element_rl.memory import exact
from element_rl.memory.exact import merge_distances

merge = jax.jit(merge_distances)


def fresh(points: np.ndarray, states: np.ndarray, k: int, own: np.ndarray) -> np.ndarray:
    """k smallest distances to the points, own row left out, inf where there are fewer."""
    distances = np.linalg.norm(
        states.astype(np.float64)[:, None] - points.astype(np.float64)[None], axis=-1
    )
    distances[np.arange(len(states))[own >= 0], own[own >= 0]] = np.inf
    distances = np.concatenate([distances, np.full((len(states), k), np.inf)], axis=1)
    return np.sort(distances, axis=1)[:, :k]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    batches=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    k=st.integers(1, 5),
    rounded=st.booleans(),
)
def test_merging_equals_querying_afresh(
    seed: int, batches: list[int], k: int, rounded: bool
) -> None:
    rng = np.random.default_rng(seed)
    draw = (
        (lambda n: rng.integers(0, 2, (n, 2)).astype(np.float32))
        if rounded
        else (lambda n: rng.normal(size=(n, 2)).astype(np.float32))
    )
    stored = draw(37)
    merged = jnp.full((37, k), jnp.inf)
    points = np.zeros((0, 2), np.float32)
    own_ids = np.full(37, -1)
    for size in batches:
        new = draw(size)
        own = np.full(37, -1, np.int32)
        # some of the new states are stored states: their own node
        for column in range(min(size, 5)):
            row = rng.integers(37)
            if own_ids[row] < 0:
                new[column], own[row], own_ids[row] = stored[row], column, len(points) + column
        padded = np.concatenate([new, np.full((20 - size, 2), 1e6, np.float32)])
        merged = merge(
            merged, jnp.asarray(stored), jnp.asarray(padded), jnp.asarray(size), jnp.asarray(own)
        )
        points = np.concatenate([points, new])
    np.testing.assert_allclose(merged, fresh(points, stored, k, own_ids), rtol=1e-5, atol=1e-6)


def test_blocks_overlap_without_counting_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "CPU_NOTES", 16)
    rng = np.random.default_rng(0)
    stored, new = (
        rng.normal(size=(37, 3)).astype(np.float32),
        rng.normal(size=(9, 3)).astype(np.float32),
    )
    merged = merge_distances(jnp.full((37, 3), jnp.inf), jnp.asarray(stored), jnp.asarray(new))
    np.testing.assert_allclose(merged, fresh(new, stored, 3, np.full(37, -1)), rtol=1e-5)


def test_rows_beyond_the_filled_ones_cost_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "CPU_NOTES", 8)
    stored, new = jnp.zeros((32, 2)), jnp.ones((4, 2))
    merged = jax.jit(
        lambda rows: merge_distances(jnp.full((32, 1), jnp.inf), stored, new, num_rows=rows)
    )(jnp.asarray(16))
    assert np.isfinite(merged[:16]).all()
    assert np.isinf(merged[16:]).all()


def test_wide_states_and_population() -> None:
    """More dimensions than are unrolled; vmapped over agents equals one at a time."""
    rng = np.random.default_rng(2)
    stored, new = (
        rng.normal(size=(3, 10, 40)).astype(np.float32),
        rng.normal(size=(3, 6, 40)).astype(np.float32),
    )
    start = jnp.full((3, 10, 2), jnp.inf)
    merged = jax.vmap(merge_distances)(start, jnp.asarray(stored), jnp.asarray(new))
    for agent in range(3):
        np.testing.assert_allclose(
            merged[agent], fresh(new[agent], stored[agent], 2, np.full(10, -1)), rtol=1e-5
        )


def test_merging_nothing_returns_the_notes_unchanged() -> None:
    noted = jnp.sort(
        jnp.asarray(np.random.default_rng(0).uniform(size=(50, 3)), jnp.float32), axis=1
    )
    merged = merge_distances(noted, jnp.zeros((50, 2)), jnp.zeros((8, 2)), new_count=jnp.asarray(0))
    np.testing.assert_array_equal(merged, noted)
