"""Pairwise squared Euclidean distances, accurate in float32 on every device.

The usual expansion ‖x‖² + ‖y‖² − 2x·y cancels: two states one millimetre apart, twenty metres from
the origin, come out with no correct digit (and worse in TF32, the default of matrix products on
recent GPUs). States here have few dimensions, so the differences are taken directly; the compiler
fuses the whole sum into whatever consumes it, and no matrix unit, hence no reduced precision, is
involved.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# above this the sum over dimensions is a loop, to bound the size of the compiled program
UNROLLED_DIMENSIONS = 32


def squared_distances(
    queries: Float[Array, "Q D"], points: Float[Array, "M D"]
) -> Float[Array, "Q M"]:
    """Squared distance of every query to every point, summed one dimension at a time."""
    num_queries, dim = queries.shape
    total = jnp.zeros((num_queries, points.shape[0]), queries.dtype)
    if dim <= UNROLLED_DIMENSIONS:
        for d in range(dim):
            total = _add_dimension(total, queries[:, d], points[:, d])
        return total

    def add(d: Array, total: Array) -> Array:
        return _add_dimension(total, queries[:, d], points[:, d])

    return jax.lax.fori_loop(0, dim, add, total)


def _add_dimension(
    total: Float[Array, "Q M"], x: Float[Array, " Q"], y: Float[Array, " M"]
) -> Float[Array, "Q M"]:
    difference = x[:, None] - y[None, :]
    return total + difference * difference
