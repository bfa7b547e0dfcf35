"""Distances keep their digits where the usual expansion loses them all."""

import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.distances import squared_distances


@pytest.mark.parametrize("dim", [1, 11, 40])
def test_close_states_far_away(dim: int) -> None:
    rng = np.random.default_rng(0)
    a = (100 + 1e-3 * rng.normal(size=(20, dim))).astype(np.float32)
    b = (100 + 1e-3 * rng.normal(size=(30, dim))).astype(np.float32)
    expected = ((a.astype(np.float64)[:, None] - b.astype(np.float64)[None]) ** 2).sum(-1)
    np.testing.assert_allclose(
        squared_distances(jnp.asarray(a), jnp.asarray(b)), expected, rtol=1e-5
    )


def test_a_state_is_at_distance_zero_from_itself() -> None:
    states = jnp.asarray(np.random.default_rng(1).normal(size=(9, 5)) * 1e3, jnp.float32)
    assert (np.diag(squared_distances(states, states)) == 0).all()
