"""Recent mean and variance against weights written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.rewards.recent_moments import (
    RecentMoments,
    empty_recent_moments,
    recent_deviation,
    with_batch,
)


def counted(batches: list[np.ndarray], half_life: float) -> RecentMoments:
    seen = empty_recent_moments()
    for batch in batches:
        seen = with_batch(seen, jnp.asarray(batch, jnp.float32), half_life)
    return seen


def test_by_hand() -> None:
    """Half-life 1: batches [0, 2] and [4, 8] weigh ⅓ and ⅔. Mean ⅓·1 + ⅔·6 = 13/3; mean square
    ⅓·2 + ⅔·40 = 82/3; variance 82/3 − 169/9 = 77/9."""
    first = counted([np.array([0.0, 2.0])], 1.0)
    assert [float(part) for part in first] == pytest.approx([0.5, 1.0, 1.0])
    seen = counted([np.array([0.0, 2.0]), np.array([4.0, 8.0])], 1.0)
    assert [float(part) for part in seen] == pytest.approx([0.75, 13 / 3, 77 / 9])
    assert float(recent_deviation(seen)) == pytest.approx((77 / 9) ** 0.5)


@pytest.mark.parametrize("half_life", [3.0, 100.0])
def test_weights_halve_in_a_half_life(half_life: float) -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(1e3 - number, 1e-1, size=8) for number in range(40)]
    seen = counted(batches, half_life)
    weights = np.repeat(2.0 ** (np.arange(40) / half_life), 8)
    values = np.concatenate(batches)
    mean = np.average(values, weights=weights)
    variance = np.average((values - mean) ** 2, weights=weights)
    np.testing.assert_allclose(float(seen.mean), mean, rtol=1e-5)
    np.testing.assert_allclose(float(seen.variance), variance, rtol=1e-3)


def test_nothing_and_constants_have_a_deviation_of_one() -> None:
    assert float(recent_deviation(empty_recent_moments())) == 1
    assert float(recent_deviation(counted([np.full(4, 7.0)] * 3, 5.0))) == 1


def test_a_population_counts_each_for_itself() -> None:
    values = jnp.asarray(np.random.default_rng(0).normal(size=(3, 8)), jnp.float32)
    empty = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), empty_recent_moments())
    together = jax.vmap(with_batch, in_axes=(0, 0, None))(empty, values, 2.0)
    np.testing.assert_allclose(together.mean, values.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(together.variance, values.var(axis=1), rtol=1e-5)
