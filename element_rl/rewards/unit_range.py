"""Terms of a reward scaled to [0, 1] by their smallest and largest value, or to mean 0 and
deviation 1."""

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
