"""Mean and variance of rewards and observations, kept over time.

Exact for batches of any size (Chan, Golub & LeVeque, 1979). The moments are of one agent; a
population `vmap`s them, so its agents never share a statistic.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Moments(NamedTuple):
    """Mean and variance of everything seen, element by element."""

    number: Float[Array, ""]  # of values
    mean: Float[Array, "..."]
    squares: Float[Array, "..."]  # sum of squared deviations from the mean


def empty_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Nothing seen yet."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def with_values(
    seen: Moments, values: Float[Array, "B ..."], mask: Bool[Array, " B"] | None = None
) -> Moments:
    """The moments that also count the given values (those where the mask is True; the others may
    hold anything)."""
    mask = jnp.ones(values.shape[0], bool) if mask is None else mask
    present = mask.reshape(-1, *[1] * (values.ndim - 1))
    number = jnp.sum(mask).astype(values.dtype)
    mean = jnp.sum(jnp.where(present, values, 0.0), axis=0) / jnp.maximum(number, 1.0)
    squares = jnp.sum(jnp.where(present, values - mean[None], 0.0) ** 2, axis=0)
    count = seen.number + number
    share = number / jnp.maximum(count, 1.0)
    difference = mean - seen.mean
    return Moments(
        count,
        seen.mean + share * difference,
        seen.squares + squares + share * seen.number * difference**2,
    )


def standard_deviation(seen: Moments) -> Float[Array, "..."]:
    """√(squares / count); 1 where nothing, or one value only, was seen."""
    variance = seen.squares / jnp.maximum(seen.number, 1.0)
    return jnp.where(variance > 0, jnp.sqrt(jnp.where(variance > 0, variance, 1.0)), 1.0)
