"""ELEMENT's lifelong reward r_l of a state, from the distances d_1 ≤ … ≤ d_k to the nearest
remembered ones (Eq. 14 and 15, Proposition 2).

    knn     log(1 + ‖d‖)
    kde     −log Σ κ(d_j)       κ(d) = exp(−d² / 2σ)
    renyi2  −Σ κ(d_j)

The last two stand for the sums over all N remembered states where `proposition_2_holds`. Fewer than
k remembered states have infinite distances in the remaining places, which count for nothing.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def novelty(
    distances: Float[Array, "B K"], estimator: Literal["knn", "kde", "renyi2"], bandwidth: float
) -> Float[Array, " B"]:
    """r_l, before it is scaled; 0 where nothing is remembered."""
    known = jnp.isfinite(distances)
    near = jnp.where(known, distances, 0.0)
    if estimator == "knn":
        return jnp.log1p(jnp.sqrt(jnp.sum(near**2, axis=1)))
    similarity = jnp.sum(jnp.where(known, jnp.exp(-(near**2) / (2.0 * bandwidth)), 0.0), axis=1)
    if estimator == "renyi2":
        return -similarity
    return jnp.where(known[:, 0], -jnp.log(jnp.maximum(similarity, 1e-30)), 0.0)


def proposition_2_holds(
    neighbour_distances: Float[Array, "B K"],
    memory_size: Int[Array, ""],
    bandwidth: float,
    tolerance: float,
) -> Bool[Array, " B"]:
    """Whether the farthest of the k neighbours is beyond √(2σ log((N−k)/ε)), so that the rest of
    the sum is below ε."""
    k = neighbour_distances.shape[1]
    others = jnp.maximum(memory_size - k, 0)
    radius = jnp.sqrt(
        2.0 * bandwidth * jnp.maximum(jnp.log(jnp.maximum(others, 1) / tolerance), 0.0)
    )
    return (others == 0) | (neighbour_distances[:, -1] >= radius)
