"""A term of a reward in units of its own recent spread, which a few extreme values do not set.

Of every batch the 5 % and the 95 % quantile are taken, and averaged over about the last 1,000
batches n:

    l ← l + ρ_n (q_05 − l)        h ← h + ρ_n (q_95 − h)        ρ_n = max(1/n, 1/1000)

    term(x) = clip((x − l) / (h − l), 0, 2)

The first batch gives l and h whole, the n-th of the first 1,000 counts 1/n: their mean. Nine tenths
of what was seen lately lie within [0, 1], so that of two terms scaled like this neither outweighs
the other, and the weight between them is a ratio of signals. With minimum and maximum it depends on
the two most extreme states of the batch.

- A term keeps its value where the values are multiplied by a number above 0, or shifted.
- Values beyond the quantiles do not change l and h, however far they are, if they are fewer than
  one in twenty on their side.
- Below 0 is cut off: a state below all others earns nothing, and where dying ends an episode there
  is no reward that one would die to avoid. What is far above earns at most twice the spread.
- Before the first batch, and where all values are equal, the term is 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LOW, HIGH = 0.05, 0.95  # quantiles
RATE = 1e-3  # the averages remember about 1/RATE batches
MOST = 2.0  # of the spread, that a value can earn


class RobustScale(NamedTuple):
    """Recent quantiles of a term."""

    low: Float[Array, ""]
    high: Float[Array, ""]
    batches: Float[Array, ""]  # seen so far


def unseen() -> RobustScale:
    """Nothing seen yet."""
    return RobustScale(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def followed(
    scale: RobustScale, values: Float[Array, " B"], known: Bool[Array, " B"]
) -> RobustScale:
    """The scale with one more batch, of which the known values count; as it was where none is."""
    anything = jnp.any(known)
    shown = jnp.where(known | ~anything, values, jnp.nan)
    low, high = jnp.nanquantile(shown, jnp.array([LOW, HIGH]))
    batches = scale.batches + anything
    rate = jnp.where(anything, jnp.maximum(1.0 / jnp.maximum(batches, 1.0), RATE), 0.0)
    return RobustScale(
        scale.low + rate * (low - scale.low), scale.high + rate * (high - scale.high), batches
    )


def robustly_scaled(values: Float[Array, " B"], scale: RobustScale) -> Float[Array, " B"]:
    """clip((x − low) / (high − low), 0, 2); 0 where there is no spread."""
    span = scale.high - scale.low
    # what is left of a constant after rounding is no spread
    usable = span > 1e-6 * jnp.maximum(jnp.abs(scale.low), jnp.abs(scale.high))
    scaled = (values - scale.low) / jnp.where(usable, span, 1.0)
    return jnp.where(usable, jnp.clip(scaled, 0.0, MOST), 0.0)
