"""The first variation of each estimator against derivatives of entropies with weights, in float64
NumPy written independently, and against what happens when a state is left out."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import digamma

from element_rl.entropy import (
    kde_entropy,
    kde_shares,
    kde_variation,
    knn_entropy,
    knn_shares,
    knn_variation,
    renyi_entropy,
    renyi_shares,
    renyi_variation,
)

SIGMA = 0.7
VARIATIONS: dict[str, Callable] = {
    "order 2": lambda states, mask=None: renyi_variation(states, 2, SIGMA, mask),
    "order 3": lambda states, mask=None: renyi_variation(states, 3, SIGMA, mask),
    "order 1.5": lambda states, mask=None: renyi_variation(states, 1.5, SIGMA, mask),
    "order 1": lambda states, mask=None: renyi_variation(states, 1, SIGMA, mask),
    "order 1.001": lambda states, mask=None: renyi_variation(states, 1.001, SIGMA, mask),
    "kde": lambda states, mask=None: kde_variation(states, SIGMA, mask),
    "knn": lambda states, mask=None: knn_variation(states, 3, mask),
}
ENTROPIES: dict[str, Callable] = {
    "order 2": lambda states, mask=None: renyi_entropy(states, 2, SIGMA, mask),
    "order 3": lambda states, mask=None: renyi_entropy(states, 3, SIGMA, mask),
    "order 1.5": lambda states, mask=None: renyi_entropy(states, 1.5, SIGMA, mask),
    "order 1": lambda states, mask=None: renyi_entropy(states, 1, SIGMA, mask),
    "order 1.001": lambda states, mask=None: renyi_entropy(states, 1.001, SIGMA, mask),
    "kde": lambda states, mask=None: kde_entropy(states, SIGMA, mask),
    "knn": lambda states, mask=None: knn_entropy(states, 3, mask),
}
every_estimator = pytest.mark.parametrize("estimator", VARIATIONS)


def trajectory(count: int = 60, dim: int = 4) -> np.ndarray:
    """A random walk that lingers for its first third: crowded places and rare ones."""
    rng = np.random.default_rng(5)
    size = np.where(np.arange(count) < count // 3, 0.05, 0.5)
    return np.cumsum(size[:, None] * rng.normal(size=(count, dim)), axis=0).astype(np.float32)


def gram(states: np.ndarray) -> np.ndarray:
    states = states.astype(np.float64)
    return np.exp(-cdist(states, states, "sqeuclidean") / (2 * SIGMA))


def weighted_renyi(states: np.ndarray, weights: np.ndarray, order: float) -> float:
    root = np.sqrt(weights)
    eigenvalues = np.clip(np.linalg.eigvalsh(root[:, None] * gram(states) * root), 1e-300, None)
    if order == 1:
        return float(-np.sum(eigenvalues * np.log2(eigenvalues)))
    return float(np.log2(np.sum(eigenvalues**order)) / (1 - order))


def weighted_kde(states: np.ndarray, weights: np.ndarray) -> float:
    return float(-np.sum(weights * np.log(gram(states) @ weights)))


def towards_each_state(entropy: Callable[[np.ndarray], float], count: int) -> np.ndarray:
    """d/dt H((1−t) p + t δ_i) at t = 0, p the equal weights, by central differences."""
    equal, slopes, t = np.full(count, 1 / count), [], 1e-5
    for i in range(count):
        direction = np.eye(count)[i] - equal
        slopes.append((entropy(equal + t * direction) - entropy(equal - t * direction)) / (2 * t))
    return np.array(slopes)


@pytest.mark.parametrize("order", [2, 3, 1.5, 1, 1.001, 0.7, 5, 2.5, 9])
def test_renyi_is_the_derivative_of_the_entropy_with_weights(order: float) -> None:
    states = trajectory(24)
    slopes = towards_each_state(lambda weights: weighted_renyi(states, weights, order), 24)
    variation = np.asarray(renyi_variation(jnp.asarray(states), order, SIGMA), np.float64)
    entropy = weighted_renyi(states, np.full(24, 1 / 24), order)
    tolerance = 2e-2 if order < 1 else 1e-3  # eigenvalues that are rounding, as in the entropy
    np.testing.assert_allclose(variation - entropy, slopes, rtol=tolerance, atol=tolerance)


def test_kde_is_the_derivative_of_the_entropy_with_weights() -> None:
    states = trajectory(24)
    slopes = towards_each_state(lambda weights: weighted_kde(states, weights), 24)
    variation = np.asarray(kde_variation(jnp.asarray(states), SIGMA), np.float64)
    entropy = weighted_kde(states, np.full(24, 1 / 24))
    np.testing.assert_allclose(variation - entropy, slopes, rtol=1e-4, atol=1e-5)


def test_by_hand() -> None:
    """Two states at one place, the third where their kernel is 0: A = [[1, 1, 0], [1, 1, 0], [0, 0,
    1]] / 3."""
    states, log2 = jnp.array([[0.0], [0.0], [100.0]]), math.log(2)
    # A³ has 4/27, 4/27 and 1/27 on its diagonal, 9/27 together: 3 · 4/9 − 1 = 1/3, and 3/9 − 1.
    third = 0.5 * math.log2(3) - 1.5 / log2 * np.array([1 / 3, 1 / 3, -2 / 3])
    np.testing.assert_allclose(renyi_variation(states, 3), third, rtol=1e-6)
    # A² has 2/9, 2/9 and 1/9, 5/9 together: 3 · 2/5 − 1 = 1/5, and 3/5 − 1.
    second = math.log2(9 / 5) - 2 / log2 * np.array([1 / 5, 1 / 5, -2 / 5])
    np.testing.assert_allclose(renyi_variation(states, 2), second, rtol=1e-6)
    # At order 3/2 the eigenvalues 2/3 and 1/3 give (2/3)^1.5 / 2 twice and (1/3)^1.5.
    powers = np.array([(2 / 3) ** 1.5 / 2, (2 / 3) ** 1.5 / 2, (1 / 3) ** 1.5])
    between = -2 * math.log2(powers.sum()) - 3 / log2 * (3 * powers / powers.sum() - 1)
    np.testing.assert_allclose(renyi_variation(states, 1.5), between, rtol=1e-5)
    # Densities 2/3, 2/3, 1/3; each state's neighbours add (1 / ⅔ + 1 / ⅔) / 3 = 1, or 1 / ⅓ / 3.
    np.testing.assert_allclose(kde_variation(states), -np.log([2 / 3, 2 / 3, 1 / 3]), rtol=1e-6)
    # In one dimension a ball of radius r has the volume 2r.
    radii = np.array([1e-12, 1e-12, 100.0])
    expected = np.log(3 * 2 * radii) - digamma(1)
    np.testing.assert_allclose(knn_variation(states, 1), expected, rtol=1e-5)


def test_both_parts_of_the_kde_by_hand() -> None:
    """Three states on a line, the middle one near both: κ = ½ between neighbours, 1/16 between the
    ends; densities (25, 32, 25) / 48."""
    distance = math.sqrt(2 * math.log(2))
    states = jnp.array([[0.0], [distance], [2 * distance]])
    density = np.array([25, 32, 25]) / 48
    ends = (1 / density[0] + 0.5 / density[1] + 1 / 16 / density[2]) / 3
    middle = (0.5 / density[0] + 1 / density[1] + 0.5 / density[2]) / 3
    expected = -np.log(density) + 1 - np.array([ends, middle, ends])
    np.testing.assert_allclose(kde_variation(states), expected, rtol=1e-5)
    assert ends == pytest.approx(0.93)
    assert middle == pytest.approx(1.14)


@every_estimator
def test_the_mean_is_the_entropy(estimator: str) -> None:
    states = jnp.asarray(trajectory())
    variation = np.asarray(VARIATIONS[estimator](states), np.float64)
    assert variation.mean() == pytest.approx(float(ENTROPIES[estimator](states)), rel=1e-4)


@every_estimator
def test_order_of_the_states_and_jit_change_nothing(estimator: str) -> None:
    states = jnp.asarray(trajectory(40))
    variation = np.asarray(VARIATIONS[estimator](states))
    rows = np.random.default_rng(0).permutation(40)
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(VARIATIONS[estimator](states[rows]), variation[rows], **close)
    np.testing.assert_allclose(jax.jit(VARIATIONS[estimator])(states), variation, **close)
    pair = jnp.stack([states, 2 * states])
    each = [VARIATIONS[estimator](one) for one in pair]
    np.testing.assert_allclose(jax.vmap(VARIATIONS[estimator])(pair), np.stack(each), **close)


@every_estimator
def test_a_mask_is_a_shorter_episode(estimator: str) -> None:
    """Padding may hold anything, NaN included, and earns nothing."""
    states = trajectory(40)
    rows = np.sort(np.random.default_rng(0).permutation(64)[:40])
    padded, mask = np.full((64, 4), np.nan, np.float32), np.zeros(64, bool)
    padded[rows], mask[rows] = states, True
    given = np.asarray(VARIATIONS[estimator](jnp.asarray(padded), jnp.asarray(mask)))
    alone = VARIATIONS[estimator](jnp.asarray(states))
    np.testing.assert_allclose(given[rows], alone, rtol=1e-3, atol=1e-3)
    assert not given[~mask].any()


@every_estimator
def test_small_and_equal_sets_are_finite(estimator: str) -> None:
    states, variation = jnp.asarray(trajectory(8)), jax.jit(VARIATIONS[estimator])
    equal = np.asarray(variation(jnp.ones((8, 4)), jnp.ones(8, bool)))
    assert np.isfinite(equal).all()
    assert np.ptp(equal) < 1e-4
    for count in range(8):
        given = np.asarray(variation(states, jnp.arange(8) < count))
        assert np.isfinite(given).all()
        if count <= 1:
            np.testing.assert_allclose(given, np.zeros(8), atol=1e-6)
    doubled = np.asarray(variation(jnp.repeat(states, 2, axis=0), jnp.ones(16, bool)))
    assert np.isfinite(doubled).all()
    np.testing.assert_allclose(doubled[::2], doubled[1::2], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("order", [0.5, 1.5, 5.5, 8, 9, 16.5, 40])
def test_states_far_apart_earn_the_same_at_any_order(order: float) -> None:
    """A = I / N: powers that float32 does not hold, in ratios that it does."""
    states = 100.0 * jnp.arange(300.0)[:, None]
    np.testing.assert_allclose(renyi_variation(states, order), math.log2(300), rtol=1e-4)


def test_a_wrong_order_says_what_is_wrong() -> None:
    for order in (0, -1, -0.5):
        with pytest.raises(ValueError, match=f"positive number, got {order}"):
            renyi_variation(jnp.zeros((4, 2)), order)


# shares, entropy with weights, and the correlations that the variation and the shares have with
# what leaving a state out costs
LEAVE_ONE_OUT: dict[str, tuple[Callable, Callable, float, float]] = {
    "order 2": (partial(renyi_shares, order=2), partial(weighted_renyi, order=2), 0.99999, 0.983),
    "order 3": (partial(renyi_shares, order=3), partial(weighted_renyi, order=3), 0.99999, 0.970),
    "order 1.5": (
        partial(renyi_shares, order=1.5),
        partial(weighted_renyi, order=1.5),
        0.99993,
        0.995,
    ),
    "kde": (kde_shares, weighted_kde, 0.9993, 0.993),
}


def left_out(states: np.ndarray, entropy: Callable[[np.ndarray, np.ndarray], float]) -> np.ndarray:
    """By how much the entropy falls when a state is left out."""
    count = len(states)
    whole = entropy(states, np.full(count, 1 / count))
    others = np.full(count - 1, 1 / (count - 1))
    return np.array([whole - entropy(np.delete(states, i, 0), others) for i in range(count)])


@pytest.mark.parametrize("estimator", LEAVE_ONE_OUT)
def test_it_tells_what_leaving_a_state_out_costs_better_than_the_log_share(estimator: str) -> None:
    shares, entropy, of_variation, of_shares = LEAVE_ONE_OUT[estimator]
    states = trajectory(120)
    loss = left_out(states, entropy)
    given = jnp.asarray(states)
    variation, share = (
        float(np.corrcoef(np.asarray(values, np.float64), loss)[0, 1])
        for values in (VARIATIONS[estimator](given), shares(given, bandwidth=SIGMA))
    )
    assert variation == pytest.approx(of_variation, abs=1e-5 if of_variation > 0.9999 else 1e-4)
    assert share == pytest.approx(of_shares, abs=1e-3)
    assert variation > share


def test_the_variation_of_the_neighbours_is_the_share() -> None:
    states = jnp.asarray(trajectory())
    np.testing.assert_array_equal(knn_variation(states, 3), knn_shares(states, 3))
