"""The estimators against float64 NumPy written independently, closed forms, and the corners where
sets are small or equal."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from element_rl.entropy import (
    _trace_of_gram_cube,
    _trace_of_power,
    _trace_one_gram,
    evaluation_entropy,
    kde_entropy,
    kde_shares,
    knn_entropy,
    knn_shares,
    renyi_entropy,
    renyi_shares,
)

RELATIVE = 1e-4
# Compiled once per shape and setting; `test_invariances` has them operation by operation too.
renyi = jax.jit(renyi_entropy, static_argnums=1)
kde = jax.jit(kde_entropy)
knn = jax.jit(knn_entropy, static_argnums=1)


def reference_gram(states: np.ndarray, bandwidth: float) -> np.ndarray:
    states = states.astype(np.float64)
    return np.array(
        [[math.exp(-np.sum((x - y) ** 2) / (2 * bandwidth)) for y in states] for x in states]
    )


def reference_renyi(states: np.ndarray, order: float, bandwidth: float) -> float:
    kernel = reference_gram(states, bandwidth)
    eigenvalues = np.clip(np.linalg.eigvalsh(kernel / np.trace(kernel)), 0, None)
    if order == 1:
        positive = eigenvalues[eigenvalues > 0]
        return float(-np.sum(positive * np.log2(positive)))
    return float(np.log2(np.sum(eigenvalues**order)) / (1 - order))


def reference_kde(states: np.ndarray, bandwidth: float) -> float:
    return float(-np.mean(np.log(np.mean(reference_gram(states, bandwidth), axis=1))))


def reference_knn(states: np.ndarray, k: int) -> float:
    states = states.astype(np.float64)
    count, dim = states.shape
    total = 0.0
    for i in range(count):
        distances = np.sort([np.linalg.norm(states[i] - states[j]) for j in range(count) if j != i])
        radius = max(distances[k - 1], 1e-12)
        total += (
            math.log(count / k)
            + dim * math.log(radius)
            + dim / 2 * math.log(math.pi)
            - gammaln(dim / 2 + 1)
        )
    return float(total / count + math.log(k) - digamma(k))


def make_states(kind: str, count: int = 60, dim: int = 4) -> np.ndarray:
    rng = np.random.default_rng(7)
    if kind == "random":
        return rng.normal(size=(count, dim)).astype(np.float32)
    if kind == "clustered":
        centres = rng.normal(size=(3, dim)) * 10
        return (centres[rng.integers(0, 3, count)] + 0.3 * rng.normal(size=(count, dim))).astype(
            np.float32
        )
    if kind == "duplicated":
        return np.repeat(rng.normal(size=(count // 4, dim)), 4, axis=0).astype(np.float32)
    if kind == "far from the origin":  # where ‖x‖² + ‖y‖² − 2xy would have no correct digit
        return (
            np.array([40.0, -30.0, 20.0, 10.0][:dim]) + 0.02 * rng.normal(size=(count, dim))
        ).astype(np.float32)
    raise AssertionError(kind)


KINDS = ["random", "clustered", "duplicated", "far from the origin"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [0.5, 1.0, 1.001, 2.0, 3.0, 4.0, 5.0, 2.5])
def test_renyi_matches_float64(kind: str, order: float) -> None:
    states = make_states(kind)
    expected = reference_renyi(states, order, 0.7)
    # 0.5 amplifies eigenvalues that are pure rounding (√1e-8 each); its tolerance is what float32
    # can hold. Absolutely, 1e-4 bits: the entropy of states that almost coincide is itself a
    # hundredth of a bit.
    tolerance = 5e-2 if order == 0.5 else RELATIVE
    assert float(renyi(jnp.asarray(states), order, 0.7)) == pytest.approx(
        expected, rel=tolerance, abs=1e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_kde_matches_float64(kind: str) -> None:
    states = make_states(kind)
    expected = reference_kde(states, 0.7)
    assert float(kde(jnp.asarray(states), 0.7)) == pytest.approx(expected, rel=RELATIVE, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_knn_matches_float64(kind: str, k: int) -> None:
    states = make_states(kind)
    assert float(knn(jnp.asarray(states), k)) == pytest.approx(
        reference_knn(states, k), rel=RELATIVE
    )


def test_by_hand() -> None:
    """Two states at distance 2, σ = 1: κ = e⁻², A = [[1, κ], [κ, 1]] / 2."""
    states = jnp.array([[0.0], [2.0]])
    kappa = math.exp(-2)
    assert float(renyi_entropy(states, 2.0)) == pytest.approx(
        -math.log2((1 + kappa**2) / 2), rel=1e-6
    )
    high, low = (1 + kappa) / 2, (1 - kappa) / 2
    assert float(renyi_entropy(states, 1.0)) == pytest.approx(
        -high * math.log2(high) - low * math.log2(low), rel=1e-5
    )
    assert float(renyi_entropy(states, 3.0)) == pytest.approx(
        -0.5 * math.log2(high**3 + low**3), rel=1e-6
    )
    assert float(kde_entropy(states)) == pytest.approx(-math.log((1 + kappa) / 2), rel=1e-6)
    # N r^d π^½ / (k Γ(3/2)) with r = 2, d = 1: unit ball of length 2; log 2·2·2 + C_1, C_1 = γ
    assert float(knn_entropy(states, 1)) == pytest.approx(math.log(8) + 0.5772156649, rel=1e-6)


ESTIMATORS = [
    lambda states, mask=None: renyi_entropy(states, 2.0, 1.0, mask),
    lambda states, mask=None: renyi_entropy(states, 3.0, 1.0, mask),
    lambda states, mask=None: renyi_entropy(states, 1.5, 1.0, mask),
    lambda states, mask=None: renyi_entropy(states, 1.0, 1.0, mask),
    lambda states, mask=None: kde_entropy(states, 1.0, mask),
    lambda states, mask=None: knn_entropy(states, 3, mask),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padding_changes_nothing(estimator) -> None:
    """Padding may hold anything, NaN included."""
    states = make_states("random", 40)
    padded = np.full((64, 4), np.nan, np.float32)
    rows = np.sort(np.random.default_rng(0).permutation(64)[:40])
    padded[rows] = states
    mask = np.zeros(64, bool)
    mask[rows] = True
    compiled = jax.jit(estimator)
    expected = float(compiled(jnp.asarray(states)))
    assert float(compiled(jnp.asarray(padded), jnp.asarray(mask))) == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_invariances(estimator) -> None:
    states = jnp.asarray(make_states("random", 40))
    value = float(estimator(states))
    assert float(estimator(states[::-1])) == pytest.approx(value, rel=1e-5), "order of the states"
    assert float(jax.jit(estimator)(states)) == pytest.approx(value, rel=1e-5), "jit"
    pair = jnp.stack([states, 2 * states])
    batched = jax.jit(jax.vmap(estimator))(pair)
    assert batched.dtype == jnp.float32
    np.testing.assert_allclose(batched, [float(estimator(x)) for x in pair], rtol=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_small_and_equal_sets_are_finite(estimator) -> None:
    states, compiled = jnp.asarray(make_states("random", 8)), jax.jit(estimator)
    assert np.isfinite(float(compiled(np.ones((8, 4), np.float32))))
    for count in range(8):
        value = float(compiled(states, np.arange(8) < count))
        assert np.isfinite(value)
        if count <= 1:
            assert value == pytest.approx(0.0, abs=1e-6)
    gradient = jax.jit(jax.grad(lambda x: estimator(x)))(states)
    assert np.isfinite(np.asarray(gradient)).all()


def test_knn_with_fewer_states_than_k_uses_the_farthest() -> None:
    states = jnp.asarray(make_states("random", 8))
    mask = jnp.arange(8) < 3
    assert float(knn_entropy(states, 5, mask)) == pytest.approx(
        float(knn_entropy(states[:3], 2)), rel=1e-5
    )


def test_wrong_arguments_say_what_is_wrong() -> None:
    states = jnp.zeros((4, 2))
    with pytest.raises(
        ValueError, match="k must be at least 1 and less than the 4 states, got k=4"
    ):
        knn_entropy(states, 4)
    with pytest.raises(ValueError, match="positive number, got -1"):
        renyi_entropy(states, -1)


def test_renyi_bounds() -> None:
    assert float(renyi_entropy(jnp.ones((32, 3)), 2.0)) == pytest.approx(0.0, abs=1e-5)
    apart = jnp.arange(32.0)[:, None] * 100
    for order in (1.0, 2.0, 3.0, 1.5):
        assert float(renyi(apart, order)) == pytest.approx(5.0, rel=1e-5)  # log2 32


def test_integer_order_equals_the_eigenvalue_route() -> None:
    states, by_eigenvalues_of = jnp.asarray(make_states("clustered")), jax.jit(renyi_entropy)
    for order in (2, 3, 4, 5, 7, 8):
        by_products = float(renyi(states, order))
        by_eigenvalues = float(by_eigenvalues_of(states, jnp.float32(order)))
        assert by_products == pytest.approx(by_eigenvalues, rel=1e-4)


# one, three (the last one padded) and six blocks
@pytest.mark.parametrize("count", [100, 313, 700])
def test_order_3_by_blocks_equals_the_whole_product(count: int) -> None:
    states = make_states("clustered", count)
    mask = np.random.default_rng(1).random(count) < 0.8
    padded = np.where(mask[:, None], states, np.nan)
    kernel = (
        np.exp(-cdist(states[mask].astype(float), states[mask].astype(float), "sqeuclidean") / 1.4)
        / mask.sum()
    )
    truth = np.sum((kernel @ kernel) * kernel)
    arguments = (jnp.asarray(padded), jnp.float32(0.7), jnp.asarray(mask))
    assert float(jax.jit(_trace_of_gram_cube)(*arguments)) == pytest.approx(truth, rel=1e-5)
    whole = jax.jit(lambda *given: _trace_of_power(_trace_one_gram(*given), 3))
    assert float(whole(*arguments)) == pytest.approx(truth, rel=1e-5)
    together = jax.jit(jax.vmap(lambda states, mask: renyi_entropy(states, 3, 0.7, mask)))
    both = together(np.stack([padded] * 2), np.stack([mask] * 2))
    assert np.asarray(both) == pytest.approx([math.log2(truth) / -2] * 2, rel=1e-5)


def test_closed_forms() -> None:
    """Uniform cube: entropy 0 nats; Gaussian: D/2 log 2πe; scaling by c adds D log c. kNN, 2,000
    states, ±0.1 nats."""
    rng = np.random.default_rng(3)
    uniform = jnp.asarray(rng.uniform(size=(2000, 2)), jnp.float32)
    assert float(knn(uniform, 3)) == pytest.approx(0.0, abs=0.1)
    gaussian = jnp.asarray(rng.normal(size=(2000, 3)), jnp.float32)
    value = float(knn(gaussian, 3))
    assert value == pytest.approx(1.5 * math.log(2 * math.pi * math.e), abs=0.1)
    assert float(knn(5 * gaussian, 3)) == pytest.approx(value + 3 * math.log(5), rel=1e-5)


def test_kde_estimates_a_gaussian_density() -> None:
    """κ is unnormalised: H_KDE + D/2 log 2πσ is the entropy of the smoothed density, here N(0, 1 +
    σ) cross N(0, 1)."""
    rng = np.random.default_rng(4)
    sigma = 0.05
    states = jnp.asarray(rng.normal(size=(3000, 1)), jnp.float32)
    cross_entropy = 0.5 * math.log(2 * math.pi * (1 + sigma)) + 0.5 / (1 + sigma)
    assert float(kde(states, sigma)) + 0.5 * math.log(2 * math.pi * sigma) == pytest.approx(
        cross_entropy, abs=0.05
    )


def reference_renyi_shares(states: np.ndarray, order: float, bandwidth: float) -> np.ndarray:
    A = reference_gram(states, bandwidth) / len(states)
    eigenvalues, vectors = np.linalg.eigh(A)
    eigenvalues = np.clip(eigenvalues, 1e-300, None)
    if order == 1:
        return -len(A) * np.diag(vectors @ np.diag(eigenvalues * np.log2(eigenvalues)) @ vectors.T)
    local = np.log2(np.diag(vectors @ np.diag(eigenvalues**order) @ vectors.T)) / (1 - order)
    return reference_renyi(states, order, bandwidth) + local - local.mean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 1.5, 2, 3, 4.0])
def test_shares_of_the_renyi_entropy_match_float64(kind: str, order: float) -> None:
    states = make_states(kind)
    shares = renyi_shares(jnp.asarray(states), order, 0.7)
    np.testing.assert_allclose(
        shares, reference_renyi_shares(states, order, 0.7), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shares", "entropy"),
    [
        (lambda s, m: renyi_shares(s, 3, 0.7, m), lambda s, m: renyi_entropy(s, 3, 0.7, m)),
        (lambda s, m: renyi_shares(s, 1.5, 0.7, m), lambda s, m: renyi_entropy(s, 1.5, 0.7, m)),
        (lambda s, m: kde_shares(s, 0.7, m), lambda s, m: kde_entropy(s, 0.7, m)),
        (lambda s, m: knn_shares(s, 3, m), lambda s, m: knn_entropy(s, 3, m)),
    ],
    ids=["order 3", "order 1.5", "kde", "knn"],
)
def test_shares_have_the_entropy_as_their_mean_and_padding_has_none(
    kind: str, shares, entropy
) -> None:
    states = make_states(kind)
    padded = jnp.asarray(
        np.concatenate([states, np.full((5, states.shape[1]), np.nan, np.float32)])
    )
    mask = jnp.arange(len(padded)) < len(states)
    given = np.asarray(shares(padded, mask))
    assert not given[len(states) :].any()
    alone = shares(jnp.asarray(states), None)
    np.testing.assert_allclose(given[: len(states)], alone, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        np.mean(np.asarray(alone, np.float64)), entropy(padded, mask), rtol=1e-4, atol=1e-4
    )


def test_shares_by_hand() -> None:
    """Two states at one place, the third where their kernel is 0: A = [[1, 1, 0], [1, 1, 0], [0, 0,
    1]] / 3."""
    states = jnp.array([[0.0], [0.0], [100.0]])
    # A³ has 4/27, 4/27 and 1/27 on its diagonal: ℓ = −½ log2 of these, and H = −½ log2(9/27).
    entropy, local = 0.5 * math.log2(3), -0.5 * np.log2(np.array([4, 4, 1]) / 27)
    np.testing.assert_allclose(renyi_shares(states, 3), entropy + local - local.mean(), rtol=1e-6)
    # Densities 2/3, 2/3 and 1/3.
    np.testing.assert_allclose(kde_shares(states), -np.log([2 / 3, 2 / 3, 1 / 3]), rtol=1e-6)
    # In one dimension a ball of radius r has the volume 2r: log(N · 2r) − Ψ(1), with r the distance
    # to the nearest other.
    radii = np.array([1e-12, 1e-12, 100.0])
    np.testing.assert_allclose(knn_shares(states, 1), np.log(3 * 2 * radii) - digamma(1), rtol=1e-5)


def test_shares_of_one_state_or_none_are_zero() -> None:
    for count in (0, 1):
        mask = jnp.arange(4) < count
        for shares in (renyi_shares, kde_shares, knn_shares):
            np.testing.assert_allclose(shares(jnp.ones((4, 2)), mask=mask), np.zeros(4), atol=1e-6)


@pytest.mark.parametrize("order", [0.5, 1.5, 5.5, 8, 9, 16, 16.5, 40])
def test_states_far_apart_have_the_largest_entropy_at_any_order(order: float) -> None:
    """A = I / N, so tr(A^α) = N^(1−α), which float32 does not hold for large orders; H = log2 N,
    and every state adds that."""
    states = 100.0 * jnp.arange(300.0)[:, None]
    assert float(renyi_entropy(states, order)) == pytest.approx(math.log2(300), rel=1e-4)
    np.testing.assert_allclose(renyi_shares(states, order), math.log2(300), rtol=1e-4)


def test_the_evaluation_is_nearly_shannons_entropy() -> None:
    states = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.float32)
    mask = jnp.arange(20) < 15
    shannon = renyi_entropy(states[:15], 1)
    assert float(evaluation_entropy(states, mask)) == pytest.approx(float(shannon), rel=1e-3)
