"""Scales of rewards and observations, kept over time.

    Range      smallest and largest value: min–max scaling to [0, 1]; constant input gives 0, never NaN
    Moments    mean and variance of everything seen, exact for batches of any size (Chan, Golub & LeVeque, 1979)

States of one agent; a population `vmap`s them, so its agents never share a statistic.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Range(NamedTuple):
    """The smallest and the largest value seen; (inf, −inf) before the first."""

    low: Float[Array, ""]
    high: Float[Array, ""]


def empty_range() -> Range:
    """Nothing seen yet."""
    return Range(jnp.asarray(jnp.inf), jnp.asarray(-jnp.inf))


def widened(
    seen: Range, values: Float[Array, " B"], mask: Bool[Array, " B"] | None = None
) -> Range:
    """The range that also holds the given values (those where the mask is True)."""
    low = values if mask is None else jnp.where(mask, values, jnp.inf)
    high = values if mask is None else jnp.where(mask, values, -jnp.inf)
    return Range(jnp.minimum(seen.low, jnp.min(low)), jnp.maximum(seen.high, jnp.max(high)))


def unit_scaled(values: Float[Array, " B"], seen: Range) -> Float[Array, " B"]:
    """(x − low) / (high − low), clipped to [0, 1]; 0 where nothing, or one value only, was seen."""
    span = seen.high - seen.low
    usable = jnp.isfinite(span) & (span > 0)
    low = jnp.where(usable, seen.low, 0.0)
    scaled = (values - low) / jnp.where(usable, span, 1.0)
    return jnp.where(usable, jnp.clip(scaled, 0.0, 1.0), 0.0)


def standardised(values: Float[Array, " B"]) -> Float[Array, " B"]:
    """(x − mean) / standard deviation of the values themselves; 0 where they are all alike."""
    deviation = jnp.std(values)
    # What is left of a constant after rounding is no deviation.
    varies = deviation > 1e-6 * jnp.max(jnp.abs(values))
    return jnp.where(varies, (values - jnp.mean(values)) / jnp.where(varies, deviation, 1.0), 0.0)


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
