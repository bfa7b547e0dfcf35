"""Multilayer perceptrons of the actor and the twin critics, and the distribution the actor describes.

Networks take a batch [B, ...] of one agent; populations come from `jax.vmap` over the modules. Every module is a pytree
of arrays and of nothing else. The two critics are one network whose arrays have a leading axis of 2: their layers run
as batched products, half as many operations on an accelerator and as fast as two networks on a CPU.

Weights and biases start uniform in ±1/√fan_in, PyTorch's default for `Linear`.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log, pi

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.agents.host_policy import LOG_STD_MAX, LOG_STD_MIN


class Actor(eqx.Module):
    """Observation → mean and log standard deviation of a Gaussian, before the tanh that bounds the action."""

    network: "MLP"

    @staticmethod
    def create(key: PRNGKeyArray, observation_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> "Actor":
        return Actor(MLP.create(key, (observation_dim, *hidden_sizes, 2 * action_dim)))

    def __call__(self, observation: Float[Array, "B O"]) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        mean, log_std = jnp.split(self.network(observation), 2, axis=-1)
        return mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)


class TwinCritics(eqx.Module):
    """Two action values, of independent initialisation: arrays of `networks` have a leading axis of 2."""

    networks: "MLP"

    @staticmethod
    def create(key: PRNGKeyArray, observation_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> "TwinCritics":
        sizes = (observation_dim + action_dim, *hidden_sizes, 1)
        return TwinCritics(jax.vmap(lambda twin_key: MLP.create(twin_key, sizes))(jax.random.split(key)))

    def __call__(self, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, "2 B"]:
        inputs = jnp.concatenate([observation, action], axis=-1)
        return jax.vmap(lambda network: network(inputs))(self.networks)[..., 0]


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last; `weights[i]` is [in, out]."""

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    @staticmethod
    def create(key: PRNGKeyArray, sizes: Sequence[int]) -> "MLP":
        # One draw for all layers: a draw for every array compiles several times more slowly.
        layers = list(pairwise(sizes))
        draws = jax.random.uniform(key, (sum((fan_in + 1) * fan_out for fan_in, fan_out in layers),), minval=-1.0)
        weights, biases, start = [], [], 0
        for fan_in, fan_out in layers:
            layer = fan_in**-0.5 * draws[start : start + (fan_in + 1) * fan_out].reshape(fan_in + 1, fan_out)
            start += layer.size
            weights.append(layer[:-1])
            biases.append(layer[-1])
        return MLP(tuple(weights), tuple(biases))

    def __call__(self, inputs: Float[Array, "B I"]) -> Float[Array, "B Y"]:
        hidden = inputs
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = jax.nn.relu(hidden @ weight + bias[None])
        return hidden @ self.weights[-1] + self.biases[-1][None]


def squashed_gaussian(
    mean: Float[Array, "B A"], log_std: Float[Array, "B A"], noise: Float[Array, "B A"]
) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
    """Actions a = tanh(u), u = μ + σ·noise, with log π(a) = Σ_A log N(u; μ, σ) - log(1 - tanh²(u)).

    The last term is written 2·(log 2 - u - softplus(-2u)), which neither underflows nor needs an ε for large |u|.
    """
    pre_tanh = mean + jnp.exp(log_std) * noise
    log_gaussian = -0.5 * noise**2 - log_std - 0.5 * log(2 * pi)
    log_derivative = 2.0 * (log(2.0) - pre_tanh - jax.nn.softplus(-2.0 * pre_tanh))
    return jnp.tanh(pre_tanh), jnp.sum(log_gaussian - log_derivative, axis=-1)


def policy_parameters(actor: Actor) -> dict[str, Array]:
    """Flat names for `host_policy` (and for files): weight_i [in, out], bias_i [out]; a population keeps its leading P.

    The host multiplies observation @ weight, which reads a row-major [in, out] matrix straight through, so the layout
    the networks train in is handed over as it is.
    """
    parameters = {f"weight_{i}": weight for i, weight in enumerate(actor.network.weights)}
    return parameters | {f"bias_{i}": bias for i, bias in enumerate(actor.network.biases)}
