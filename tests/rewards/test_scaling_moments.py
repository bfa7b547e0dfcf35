"""Running mean and deviation against NumPy over everything seen at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values


def assert_moments_of(seen: Moments, values: np.ndarray, rtol: float = 1e-5) -> None:
    assert float(seen.number) == len(values)
    np.testing.assert_allclose(seen.mean, values.mean(axis=0), rtol=rtol, atol=1e-6)
    np.testing.assert_allclose(
        seen.squares, ((values - values.mean(axis=0)) ** 2).sum(axis=0), rtol=rtol, atol=1e-6
    )
    np.testing.assert_allclose(standard_deviation(seen), values.std(axis=0), rtol=rtol)


def test_by_hand() -> None:
    """1, 3 then 2, 6: the mean goes 2 → 3, the squared deviations 2 → 4 + 0 + 1 + 9 = 14."""
    seen = with_values(empty_moments(), jnp.array([1.0, 3.0]))
    assert tuple(map(float, seen)) == (2.0, 2.0, 2.0)
    assert float(standard_deviation(seen)) == 1.0
    seen = with_values(seen, jnp.array([2.0, 6.0]))
    assert tuple(map(float, seen)) == (4.0, 3.0, 14.0)
    np.testing.assert_allclose(standard_deviation(seen), np.sqrt(3.5), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_batches_of_any_size(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    seen, together = empty_moments(shape), np.zeros((0, *shape))
    for number, size in enumerate([5, 1, 64, 2, 1, 17]):
        values = rng.normal(loc=3.0 * number, scale=1.0 + number, size=(size, *shape)).astype(
            np.float32
        )
        together = np.concatenate([together, values.astype(np.float64)])
        seen = with_values(seen, jnp.asarray(values))
        if len(together) > 1:
            assert_moments_of(seen, together)


@pytest.mark.parametrize("shape", [(), (4,)])
@pytest.mark.parametrize("garbage", [1e6, -1e30, np.nan])
def test_masked_values_do_not_count(shape: tuple[int, ...], garbage: float) -> None:
    rng = np.random.default_rng(1)
    seen, kept = empty_moments(shape), []
    for size in (8, 3, 8, 12):
        values = rng.normal(size=(size, *shape)).astype(np.float32)
        mask = rng.random(size) < 0.5
        kept += list(values[mask].astype(np.float64))
        values[~mask] = garbage
        seen = with_values(seen, jnp.asarray(values), jnp.asarray(mask))
    assert_moments_of(seen, np.array(kept))


def test_nothing_one_and_equal_values() -> None:
    seen = empty_moments((2,))
    np.testing.assert_array_equal(standard_deviation(seen), [1.0, 1.0])
    nothing = with_values(seen, jnp.full((3, 2), 9.0), jnp.zeros(3, bool))
    for ours, theirs in zip(nothing, seen, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    one = with_values(nothing, jnp.array([[5.0, -1.0]]))
    np.testing.assert_array_equal(one.mean, [5.0, -1.0])
    np.testing.assert_array_equal(standard_deviation(one), [1.0, 1.0])
    equal_and_not = with_values(one, jnp.array([[5.0, 1.0]]))
    # 1 for want of another; 1 by computation
    np.testing.assert_array_equal(standard_deviation(equal_and_not), [1.0, 1.0])
    np.testing.assert_array_equal(equal_and_not.squares, [0.0, 2.0])
    unchanged = with_values(equal_and_not, jnp.full((4, 2), jnp.inf), jnp.zeros(4, bool))
    for ours, theirs in zip(unchanged, equal_and_not, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_far_from_zero_and_for_long() -> None:
    """A small spread around a large mean survives a thousand batches: sums of squares would lose it
    in float32."""
    values = (
        np.random.default_rng(2).normal(loc=1000.0, scale=0.5, size=(1000, 20)).astype(np.float32)
    )

    def step(seen: Moments, batch: jax.Array) -> tuple[Moments, None]:
        return with_values(seen, batch), None

    seen, _ = jax.lax.scan(step, empty_moments(), jnp.asarray(values))
    assert float(seen.number) == values.size
    np.testing.assert_allclose(seen.mean, values.mean(dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(standard_deviation(seen), values.std(dtype=np.float64), rtol=1e-3)


def test_a_population_shares_nothing() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(loc=np.arange(3)[:, None, None], size=(3, 6, 2)).astype(np.float32)
    mask = rng.random((3, 6)) < 0.7
    population = jax.vmap(lambda _: empty_moments((2,)))(jnp.arange(3))
    population = jax.vmap(with_values)(population, jnp.asarray(values), jnp.asarray(mask))
    for agent in range(3):
        alone = jax.tree.map(lambda leaf, agent=agent: leaf[agent], population)
        assert_moments_of(alone, values[agent][mask[agent]].astype(np.float64))
