"""Entropy of a set of states `[N, D]`, by the three estimators of the paper.

    renyi_entropy   matrix-based Rényi    H_α = 1/(1−α) · log2 tr(A^α),  A = K / tr K  (Eq. 2, bits)
    kde_entropy     kernel density        H = −1/N Σ_i log[ 1/N Σ_j κ(s_i, s_j) ]      (Eq. 3, nats)
    knn_entropy     Kozachenko–Leonenko   H = 1/N Σ_i log[ N r_i^D π^(D/2) / (k Γ(D/2+1)) ]
                                              + log k − Ψ(k)                           (Eq. 4, nats)

with the Gaussian kernel κ(x, y) = exp(−‖x−y‖² / (2σ)): σ, here `bandwidth`, plays a variance, as
printed. All three are functions of one set; `vmap` them over many. Padded sets pass a boolean `mask
[N]`: rows where it is False do not exist.

What each state adds to the entropy of its set (`renyi_shares`, `kde_shares`, `knn_shares`; beyond
the paper): h_i, whose mean over the set is H, and which is larger the fewer others are near s_i.
Eqs. 3 and 4 are such means as they stand. For Eq. 2

    h_i = H + ℓ_i − mean ℓ,   ℓ_i = 1/(1−α) · log2 (A^α)_ii

because tr(A^α) = Σ_i (A^α)_ii; for α → 1 it becomes −N (A log2 A)_ii, whose mean is the Shannon
limit of itself.

The first variation (`renyi_variation`, `kde_variation`, `knn_variation`; beyond the paper): how
fast H grows with the weight p_i of the state s_i, at equal weights p_i = 1/N,

    v_i = H + ∂H/∂p_i − mean ∂H/∂p

the direction of Frank–Wolfe in Hazan et al., 2019 (https://arxiv.org/abs/1812.02690). Weights sum
to 1, so a derivative by them is known up to a constant: that the mean of v is H is a convention,
which makes it comparable with the shares. docs/methods/element.md derives all three.

Defined everywhere, never NaN for finite states:
- One state, or all states equal: Rényi and KDE give 0. An empty mask gives 0 in all three.
- kNN: the distance of duplicates is 0 and its logarithm −∞, so radii are floored at
  `smallest_radius`; a set of n ≤ k states uses its farthest neighbour (the n−1-th) for the k-th,
  with k replaced by n−1 throughout; one state gives 0. Asking statically for k ≥ N is an error.

Departures from the paper: none in the formulas. Integer orders need no eigenvalues: tr(A²) is a
squared Frobenius norm and tr(A³) one matrix product (on CPUs a sixth of one), in general ⌈log2⌉
products; order 1 is the Shannon limit −Σ λ log2 λ.
"""

import math
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from element_rl.distances import squared_distances

# beyond this N^(1−α), the trace of N states far apart, nears the smallest float32
LARGEST_INTEGER_ORDER = 8
# entries of the trace-one Gram matrix below this add less than rounding to a trace of powers
NEGLIGIBLE = 1e-13
# states in a block of the cube's trace: products of this size run at full speed, smaller ones save
# more
CUBE_BLOCK = 125
EVALUATION_ORDER = 1.001
SMALLEST_RADIUS = 1e-12  # metres, say: keeps log(radius) of duplicates finite


def renyi_entropy(
    states: Float[Array, "N D"],
    order: int | float | Float[Array, ""] = 2.0,
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, ""]:
    """Matrix-based Rényi entropy in bits, between 0 and log2 N (Eq. 2).

    `order` as a Python number picks the cheapest route; as a traced array it takes eigenvalues (and
    must not be 1).
    """
    if isinstance(order, int | float):
        if not order > 0 or not math.isfinite(order):
            raise ValueError(
                f"The Rényi order must be a positive number, got {order!r}; 1 is the Shannon limit."
            )
        if order == 1:
            return shannon_from_eigenvalues(_eigenvalues(_trace_one_gram(states, bandwidth, mask)))
        if float(order).is_integer() and order <= LARGEST_INTEGER_ORDER:
            trace = _trace_of_gram_power(states, bandwidth, mask, int(order))
            return jnp.log2(jnp.where(trace > 0, trace, 1.0)) / (1 - order)
    eigenvalues = _eigenvalues(_trace_one_gram(states, bandwidth, mask))
    # Σ λ^α = 1 + Σ λ (λ^(α−1) − 1), because Σ λ = 1: no digit is lost for orders close to 1. Far
    # from it the sum may be smaller than any float32, its logarithm is not.
    logarithms = _log_or_zero(eigenvalues)
    near = jnp.log1p(jnp.sum(eigenvalues * jnp.expm1((order - 1.0) * logarithms)))
    far = jax.nn.logsumexp(order * logarithms, where=eigenvalues > 0)
    logarithm = jnp.where(
        jnp.abs(order - 1.0) < 0.5, near, jnp.where(jnp.any(eigenvalues > 0), far, 0.0)
    )
    return logarithm / ((1.0 - order) * math.log(2.0))


def evaluation_entropy(
    states: Float[Array, "N D"], mask: Bool[Array, " N"] | None = None
) -> Float[Array, ""]:
    """The entropy of an episode that runs are compared by, in bits: the matrix-based one of order
    1.001, which stands for Shannon's in the paper's evaluation, with bandwidth 1."""
    return renyi_entropy(states, EVALUATION_ORDER, 1.0, mask)


def kde_entropy(
    states: Float[Array, "N D"],
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, ""]:
    """Kernel density entropy in nats, between 0 and log N (Eq. 3; each state counts itself, as
    printed)."""
    return _mean(kde_shares(states, bandwidth, mask), mask)


def knn_entropy(
    states: Float[Array, "N D"],
    k: int = 3,
    mask: Bool[Array, " N"] | None = None,
    smallest_radius: float = SMALLEST_RADIUS,
) -> Float[Array, ""]:
    """Kozachenko–Leonenko entropy in nats (Eq. 4); a state is never its own neighbour."""
    return _mean(knn_shares(states, k, mask, smallest_radius), mask)


def renyi_shares(
    states: Float[Array, "N D"],
    order: int | float = 2.0,
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """What each state adds to `renyi_entropy`, in bits; their mean is the entropy. 0 in the
    padding."""
    mask = _full_mask(states) if mask is None else mask
    A = _trace_one_gram(states, bandwidth, mask)
    if float(order).is_integer() and 1 < order <= LARGEST_INTEGER_ORDER:
        diagonal = _diagonal_of_power(A, int(order))
        local, entropy = (
            _log_or_zero(part) / math.log(2.0) / (1.0 - order)
            for part in (diagonal, jnp.sum(diagonal))
        )
    else:
        eigenvalues, vectors = jnp.linalg.eigh(A)
        logarithms = _log_or_zero(eigenvalues)
        if order == 1:
            local = (
                -jnp.sum(mask)
                / math.log(2.0)
                * jnp.sum(vectors**2 * (eigenvalues * logarithms)[None], axis=1)
            )
        else:
            exponents = jnp.where(eigenvalues > 0, order * logarithms, -jnp.inf)
            powers = jax.nn.logsumexp(
                jnp.broadcast_to(exponents, vectors.shape), axis=1, b=vectors**2
            )
            local = powers / math.log(2.0) / (1.0 - order)
        entropy = renyi_entropy(states, order, bandwidth, mask)
    local = jnp.where(mask, local, 0.0)
    return jnp.where(mask, entropy + local - _mean(local, mask), 0.0)


def kde_shares(
    states: Float[Array, "N D"],
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """What each state adds to `kde_entropy`, in nats: minus the logarithm of the density where it
    is. 0 in the padding."""
    mask = _full_mask(states) if mask is None else mask
    count = jnp.maximum(jnp.sum(mask), 1)
    kernel_sums = jnp.sum(_gram(states, bandwidth, mask), axis=1)
    return -jnp.log(jnp.where(mask, kernel_sums / count, 1.0))


def knn_shares(
    states: Float[Array, "N D"],
    k: int = 3,
    mask: Bool[Array, " N"] | None = None,
    smallest_radius: float = SMALLEST_RADIUS,
) -> Float[Array, " N"]:
    """What each state adds to `knn_entropy`, in nats. 0 in the padding."""
    num_states, dim = states.shape
    if not 1 <= k < num_states:
        raise ValueError(f"k must be at least 1 and less than the {num_states} states, got k={k}.")
    mask = _full_mask(states) if mask is None else mask
    count = jnp.sum(mask)
    squared = squared_distances(_zero_outside(states, mask), _zero_outside(states, mask))
    neighbour = mask[:, None] & mask[None, :] & ~jnp.eye(num_states, dtype=bool)
    nearest = -jax.lax.top_k(jnp.where(neighbour, -squared, -jnp.inf), k)[0]
    k_present = jnp.clip(count - 1, 1, k)  # a small set has fewer than k neighbours
    radii = jnp.sqrt(jax.lax.dynamic_index_in_dim(nearest, k_present - 1, axis=1, keepdims=False))
    log_radii = jnp.log(jnp.maximum(jnp.where(mask & (count > 1), radii, 1.0), smallest_radius))
    log_unit_ball = dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1)
    log_count = jnp.log(jnp.maximum(count, 1).astype(states.dtype))
    # log(N V / k) + log k − Ψ(k): the two log k cancel.
    shares = dim * log_radii + (log_unit_ball + log_count - _digamma(k_present, k))
    return jnp.where(mask & (count > 1), shares, 0.0)


def renyi_variation(
    states: Float[Array, "N D"],
    order: int | float = 2.0,
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """The first variation of `renyi_entropy` at each state, in bits. 0 in the padding.

        v_i = H + 1/ln 2 · α/(1−α) · [ N (A^α)_ii / tr(A^α) − 1 ],   A_ij = √(p_i p_j) κ(s_i, s_j)

    For α = 1 it is −N (A log2 A)_ii, as the share. That the mean is H is a convention (see above).
    """
    mask = _full_mask(states) if mask is None else mask
    if order == 1:
        return renyi_shares(states, order, bandwidth, mask)
    A = _trace_one_gram(states, bandwidth, mask)
    count = jnp.maximum(jnp.sum(mask), 1)
    if float(order).is_integer() and 1 < order <= LARGEST_INTEGER_ORDER:
        diagonal = _diagonal_of_power(A, int(order))
        trace = jnp.sum(diagonal)
        excess = count * diagonal / jnp.where(trace > 0, trace, 1.0) - 1.0
        entropy = _log_or_zero(trace) / math.log(2.0) / (1.0 - order)
    else:
        excess = _excess_from_eigenvalues(A, order, count)
        entropy = renyi_entropy(states, order, bandwidth, mask)
    excess = jnp.where(mask, excess, 0.0)
    slope = order / (1.0 - order) / math.log(2.0)
    return jnp.where(mask, entropy + slope * (excess - _mean(excess, mask)), 0.0)


def kde_variation(
    states: Float[Array, "N D"],
    bandwidth: int | float | Float[Array, ""] = 1.0,
    mask: Bool[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """The first variation of `kde_entropy` at each state, in nats. 0 in the padding.

        v_i = −log q_i + 1 − 1/N Σ_j κ(s_i, s_j) / q_j,   q_i = 1/N Σ_j κ(s_i, s_j)

    A state counts where it is, and it makes the places near it denser. The mean of the second part
    is 1 whatever the states, so the mean of v is H; that this constant is added is a convention
    (see above).
    """
    mask = _full_mask(states) if mask is None else mask
    count = jnp.maximum(jnp.sum(mask), 1)
    kernel = _gram(states, bandwidth, mask)
    density = jnp.where(mask, jnp.sum(kernel, axis=1) / count, 1.0)
    crowding = jnp.sum(kernel / density[None, :], axis=1) / count
    return jnp.where(mask, -jnp.log(density) + 1.0 - crowding, 0.0)


def knn_variation(
    states: Float[Array, "N D"],
    k: int = 3,
    mask: Bool[Array, " N"] | None = None,
    smallest_radius: float = SMALLEST_RADIUS,
) -> Float[Array, " N"]:
    """The first variation of Shannon's entropy at each state, in nats, with the density of
    `knn_entropy` for the true one. 0 in the padding.

        δH/δp(s) = −log p(s) − 1,   log p(s_i) ≈ Ψ(k) − log(N V_i),   V_i the k-th neighbour's ball

    It is a plug-in, because the estimator itself has no derivative by weights: a radius knows
    whether a state is there, not what it weighs. With the constant that makes the mean H (a
    convention, see above) these are the shares. Radii are floored as there.
    """
    return knn_shares(states, k, mask, smallest_radius)


def shannon_from_eigenvalues(eigenvalues: Float[Array, " N"]) -> Float[Array, ""]:
    """−Σ λ log2 λ, the limit of Eq. 2 for α → 1; zero eigenvalues count 0."""
    return -jnp.sum(
        jnp.where(
            eigenvalues > 0,
            eigenvalues * jnp.log2(jnp.where(eigenvalues > 0, eigenvalues, 1.0)),
            0.0,
        )
    )


def _trace_of_gram_power(
    states: Float[Array, "N D"],
    bandwidth: int | float | Float[Array, ""],
    mask: Bool[Array, " N"] | None,
    order: int,
) -> Float[Array, ""]:
    def by_products(states: Array, bandwidth: Array, mask: Array) -> Array:
        return _trace_of_power(_trace_one_gram(states, bandwidth, mask), order)

    mask = _full_mask(states) if mask is None else mask
    arguments = (states, jnp.asarray(bandwidth, states.dtype), mask)
    if order == 3:  # many small products are fast on a CPU, few large ones on an accelerator
        return jax.lax.platform_dependent(*arguments, cpu=_trace_of_gram_cube, default=by_products)
    return by_products(*arguments)


def _trace_of_gram_cube(
    states: Float[Array, "N D"], bandwidth: Float[Array, ""], mask: Bool[Array, " N"]
) -> Float[Array, ""]:
    """tr(A³) with a sixth of the multiplications, from the blocks on and above the diagonal of A
    alone.

    Cut the states into blocks: tr(A³) = Σ_ijk ⟨A_ij A_jk, A_ik⟩, and A is symmetric, so the term of
    (i, j, k) does not depend on their order. Those with i ≤ j ≤ k suffice, each counted as often as
    its indices can be arranged: 6, 3 or 1 times.
    """
    num_states, dim = states.shape
    num_blocks = max(1, round(num_states / CUBE_BLOCK))
    size = -(-num_states // num_blocks)
    padding = num_blocks * size - num_states
    mask_of = jnp.pad(mask, (0, padding)).reshape(num_blocks, size)
    # One dimension after the other, so that the kernel reads neighbouring states from neighbouring
    # places.
    states_of = jnp.pad(_zero_outside(states, mask).T, ((0, 0), (0, padding))).reshape(
        dim, num_blocks, size
    )

    def block(i: Array, j: Array) -> Float[Array, "B B"]:
        squared = squared_distances(states_of[:, i].T, states_of[:, j].T)
        kernel = jnp.exp(-squared / (2.0 * bandwidth)) / jnp.maximum(jnp.sum(mask), 1)
        return jnp.where(
            mask_of[i][:, None] & mask_of[j][None, :] & (kernel >= NEGLIGIBLE), kernel, 0.0
        )

    pairs = list(combinations_with_replacement(range(num_blocks), 2))
    triples = list(combinations_with_replacement(range(num_blocks), 3))
    A = jax.vmap(block)(*jnp.asarray(pairs).T)
    place = {pair: index for index, pair in enumerate(pairs)}
    places = [(place[i, j], place[j, k], place[i, k]) for i, j, k in triples]
    times = [(1.0, 3.0, 6.0)[len(set(triple)) - 1] for triple in triples]

    def add(
        total: Float[Array, "B B"], triple: tuple[Int[Array, " 3"], Float[Array, ""]]
    ) -> tuple[Float[Array, "B B"], None]:
        (ij, jk, ik), times = triple
        return total + times * jnp.matmul(A[ij], A[jk], precision="highest") * A[ik], None

    total = jnp.zeros((size, size), states.dtype)
    return jnp.sum(
        jax.lax.scan(add, total, (jnp.asarray(places), jnp.asarray(times, states.dtype)))[0]
    )


def _trace_of_power(A: Float[Array, "N N"], order: int) -> Float[Array, ""]:
    """tr(A^order) = Σ_ij (A^a)_ij (A^b)_ij for symmetric A and a + b = order: no product beyond
    half the order."""
    return jnp.sum(_diagonal_of_power(A, order))


def _diagonal_of_power(A: Float[Array, "N N"], order: int) -> Float[Array, " N"]:
    # Dropping what cannot change the trace avoids denormal products, and keeps the CPU compiler
    # from computing the Gram anew, slowly, inside the final sum.
    A = jnp.where(A < NEGLIGIBLE, 0.0, A)
    half = order // 2
    lower = _power(A, half)
    upper = lower if order % 2 == 0 else (jnp.matmul(lower, A, precision="highest"))
    return jnp.sum(lower * upper, axis=1)


def _power(A: Float[Array, "N N"], exponent: int) -> Float[Array, "N N"]:
    if exponent == 1:
        return A
    root = _power(A, exponent // 2)
    square = jnp.matmul(root, root, precision="highest")
    return square if exponent % 2 == 0 else jnp.matmul(square, A, precision="highest")


def _excess_from_eigenvalues(
    A: Float[Array, "N N"], order: int | float, count: Int[Array, ""]
) -> Float[Array, " N"]:
    """N (A^α)_ii / tr(A^α) − 1 of a trace-one Gram matrix with A_ii = 1/N, for any order."""
    eigenvalues, vectors = jnp.linalg.eigh(A)
    eigenvalues = jnp.maximum(eigenvalues, 0.0)  # rounding makes some negative
    if abs(order - 1.0) < 0.5:
        # λ^α = λ + λ (λ^(α−1) − 1) and N A_ii = tr A = 1: no digit is lost for orders close to 1
        beyond = eigenvalues * jnp.expm1((order - 1.0) * _log_or_zero(eigenvalues))
        own = count * jnp.sum(vectors**2 * beyond[None, :], axis=1)
        return (own - jnp.sum(beyond)) / (1.0 + jnp.sum(beyond))
    # Far from 1 the powers may be smaller than any float32, their ratios are not.
    largest = jnp.max(eigenvalues)
    powers = (eigenvalues / jnp.where(largest > 0, largest, 1.0)) ** order
    own = count * jnp.sum(vectors**2 * powers[None, :], axis=1)
    return own / jnp.where(largest > 0, jnp.sum(powers), 1.0) - 1.0


def _eigenvalues(A: Float[Array, "N N"]) -> Float[Array, " N"]:
    """Eigenvalues of a trace-one Gram matrix; those that rounding made negative are 0, and their
    sum is 1 again."""
    eigenvalues = jnp.maximum(jnp.linalg.eigvalsh(A), 0.0)
    total = jnp.sum(eigenvalues)
    return eigenvalues / jnp.where(total > 0, total, 1.0)  # an empty set keeps its zeros


def _trace_one_gram(
    states: Float[Array, "N D"],
    bandwidth: int | float | Float[Array, ""],
    mask: Bool[Array, " N"] | None,
) -> Float[Array, "N N"]:
    mask = _full_mask(states) if mask is None else mask
    # κ(s, s) = 1, so tr K counts the states
    return _gram(states, bandwidth, mask) / jnp.maximum(jnp.sum(mask), 1)


def _gram(
    states: Float[Array, "N D"], bandwidth: int | float | Float[Array, ""], mask: Bool[Array, " N"]
) -> Float[Array, "N N"]:
    states = _zero_outside(states, mask)
    kernel = jnp.exp(-squared_distances(states, states) / (2.0 * bandwidth))
    return jnp.where(mask[:, None] & mask[None, :], kernel, 0.0)


def _zero_outside(states: Float[Array, "N D"], mask: Bool[Array, " N"]) -> Float[Array, "N D"]:
    return jnp.where(mask[:, None], states, 0.0)  # padding may hold anything, NaN included


def _mean(values: Float[Array, " N"], mask: Bool[Array, " N"] | None) -> Float[Array, ""]:
    """Over the states there are; the values in the padding are 0."""
    count = values.shape[0] if mask is None else jnp.maximum(jnp.sum(mask), 1)
    return jnp.sum(values) / count


def _log_or_zero(values: Float[Array, "*N"]) -> Float[Array, "*N"]:
    return jnp.log(jnp.where(values > 0, values, 1.0))


def _full_mask(states: Float[Array, "N D"]) -> Bool[Array, " N"]:
    return jnp.ones(states.shape[0], dtype=bool)


def _digamma(k_present: Array, k: int) -> Float[Array, ""]:
    """Ψ(k_present) for an integer between 1 and k: −γ + Σ 1/j, tabulated (exact, and cheap to
    trace)."""
    table = [-0.57721566490153286]
    for j in range(1, k):
        table.append(table[-1] + 1.0 / j)
    return jnp.asarray(table, dtype=jnp.float32)[k_present - 1]
