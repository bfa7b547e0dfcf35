"""Mean and variance of what was seen of late: statistics that follow values which change over time.

    w_t = w_{t−1} + ρ (1 − w_{t−1})          how much of the average is data; w_0 = 0
    ρ_t = ρ / w_t                            1 at the first batch, ρ in the long run
    m_t = m_{t−1} + ρ_t δ,                   δ = mean of the batch − m_{t−1}
    v_t = (1 − ρ_t) (v_{t−1} + ρ_t δ²) + ρ_t · variance of the batch

This is the exponential average of the batches, corrected for its start at 0 as Adam's: m and v are
mean and variance of all values seen, each batch weighed 2^(−age/h). With a half-life of h batches
ρ = 1 − 2^(−1/h). No difference of large squares is taken, so nothing cancels in float32.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class RecentMoments(NamedTuple):
    """Mean and variance of recent values."""

    weight: Float[Array, ""]  # w, from 0 to 1
    mean: Float[Array, ""]
    variance: Float[Array, ""]


def empty_recent_moments() -> RecentMoments:
    """Nothing seen yet."""
    return RecentMoments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def with_batch(seen: RecentMoments, values: Float[Array, " B"], half_life: float) -> RecentMoments:
    """The moments that also count a batch; older batches lose half their weight in `half_life`
    batches."""
    rate = 1.0 - 0.5 ** (1.0 / half_life)
    weight = seen.weight + rate * (1.0 - seen.weight)
    share = rate / weight
    difference = jnp.mean(values) - seen.mean
    variance = (1.0 - share) * (seen.variance + share * difference**2) + share * jnp.var(values)
    return RecentMoments(weight, seen.mean + share * difference, variance)


def recent_deviation(seen: RecentMoments) -> Float[Array, ""]:
    """The standard deviation; 1 where nothing, or one value only, was seen."""
    varies = seen.variance > 0
    return jnp.where(varies, jnp.sqrt(jnp.where(varies, seen.variance, 1.0)), 1.0)
