"""Stored policies in JAX, for acting on the device: what `acting.host_policy` computes in NumPy."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float

from element_rl.acting.host_policy import is_told
from element_rl.agents.networks import Actor, network_from, squashed_gaussian

NOISE = "exploration_noise"  # the array that tells TD3's policies (and IQL's) from SAC's


def policy_actions(
    parameters: Mapping[str, Array],
    observation: Float[Array, "B O"],
    position: Float[Array, "B C"],
    noise: Float[Array, "B A"],
) -> Float[Array, "B A"]:
    """Actions in [-1, 1] of one agent's stored policy; noise ~ N(0, 1). The position is looked at
    by policies that are told it."""
    if is_told(parameters):
        centre, unit = (parameters[name][None] for name in ("place_centre", "place_unit"))
        place = (position[:, :2] - centre) / unit
        observation = jnp.concatenate([observation, place], axis=1)
    network = network_from(parameters)
    if NOISE in parameters:
        deviation = jnp.broadcast_to(parameters[NOISE], noise.shape)
        return jnp.clip(jnp.tanh(network(observation)) + deviation * noise, -1.0, 1.0)
    mean, log_std = Actor(network)(observation)
    return squashed_gaussian(mean, log_std, noise)[0]
