"""Quantiles of recent batches as the scale of a term: by hand, and what does not change it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.rewards.robust_scale import RATE, RobustScale, followed, robustly_scaled, unseen

follow, scaled = jax.jit(followed), jax.jit(robustly_scaled)


def after(*batches: np.ndarray) -> RobustScale:
    scale = unseen()
    for batch in batches:
        scale = follow(scale, jnp.asarray(batch, jnp.float32), jnp.ones(len(batch), bool))
    return scale


def test_by_hand() -> None:
    """Of 0, 1, …, 20 the quantiles are 1 and 19: 1 earns 0, 10 a half, 19 one, 0 nothing, 100 two.
    A second batch of 0, 2, …, 40 has 2 and 38; the mean of both is 1.5 and 28.5."""
    scale = after(np.arange(21))
    assert [float(part) for part in scale] == pytest.approx([1.0, 19.0, 1.0])
    values = scaled(jnp.array([0.0, 1.0, 10.0, 19.0, 28.0, 100.0]), scale)
    np.testing.assert_allclose(values, [0.0, 0.0, 0.5, 1.0, 1.5, 2.0], rtol=1e-5)
    scale = after(np.arange(21), 2 * np.arange(21))
    assert [float(part) for part in scale] == pytest.approx([1.5, 28.5, 2.0])


def test_late_batches_count_a_thousandth() -> None:
    scale = RobustScale(jnp.zeros(()), jnp.ones(()), jnp.asarray(5_000.0))
    scale = follow(scale, jnp.arange(21.0), jnp.ones(21, bool))
    assert float(scale.low) == pytest.approx(RATE * 1.0)
    assert float(scale.high) == pytest.approx(1.0 + RATE * (19.0 - 1.0))


@pytest.mark.parametrize(("factor", "shift"), [(7.0, 0.0), (1.0, -40.0), (1e-3, 2.0)])
def test_units_and_origin_do_not_matter(factor: float, shift: float) -> None:
    batches = np.random.default_rng(0).normal(size=(5, 200))
    before = scaled(jnp.asarray(batches[-1], jnp.float32), after(*batches))
    moved = factor * batches + shift
    then = scaled(jnp.asarray(moved[-1], jnp.float32), after(*moved))
    np.testing.assert_allclose(then, before, atol=2e-3)


def test_a_few_extreme_values_change_nothing_for_the_others() -> None:
    """Four of a hundred on either side; minimum and maximum would leave the others 1e-6 apart."""
    batch = np.sort(np.random.default_rng(0).normal(size=100))
    wild = batch.copy()
    wild[:4], wild[-4:] = -1e6, 1e6
    usual, others = after(batch), slice(4, -4)
    np.testing.assert_allclose(after(wild)[:2], usual[:2], rtol=1e-5)
    np.testing.assert_allclose(
        scaled(jnp.asarray(wild, jnp.float32), after(wild))[others],
        scaled(jnp.asarray(batch, jnp.float32), usual)[others],
        atol=1e-5,
    )


def test_nothing_known_and_nothing_different() -> None:
    nothing = jnp.zeros(8, bool)
    scale = follow(unseen(), jnp.arange(8.0), nothing)
    assert [float(part) for part in scale] == [0.0, 0.0, 0.0]
    assert not scaled(jnp.arange(8.0), scale).any()
    assert not scaled(jnp.full(8, 3.0), after(np.full(8, 3.0))).any()
    known = jnp.arange(8) < 3
    scale = follow(scale, jnp.array([1.0, 2.0, 3.0, *[1e9] * 5]), known)
    assert [float(part) for part in scale] == pytest.approx([1.1, 2.9, 1.0])
    again = follow(scale, jnp.arange(8.0), nothing)
    assert [float(part) for part in again] == [float(part) for part in scale]
