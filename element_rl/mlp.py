"""Multilayer perceptrons, of agents and of rewards that learn.

A network takes a batch [B, ...]; populations come from `jax.vmap` over the module, which is a
pytree of arrays and of nothing else. Weights and biases start uniform in ±1/√fan_in, PyTorch's
default for `Linear`.

With layer normalisation (Ba et al., 2016, arXiv:1607.06450) a hidden layer is

    ReLU(scale · (y − mean(y)) / √(var(y) + ε) + offset),   y = x W + b

with mean and variance over the units of the layer, and scale 1 and offset 0 at the beginning.
"""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

NORM_EPSILON = 1e-5  # ε, PyTorch's


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last; `weights[i]` is [in, out].
    `scales` and `offsets` are of the hidden layers, where these are normalised."""

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    scales: tuple[Float[Array, "..."], ...] = ()
    offsets: tuple[Float[Array, "..."], ...] = ()

    @staticmethod
    def create(key: PRNGKeyArray, sizes: Sequence[int], normalised: bool = False) -> "MLP":
        # One draw for all layers: a draw for every array compiles several times more slowly.
        layers = list(pairwise(sizes))
        draws = jax.random.uniform(
            key, (sum((fan_in + 1) * fan_out for fan_in, fan_out in layers),), minval=-1.0
        )
        weights, biases, start = [], [], 0
        for fan_in, fan_out in layers:
            layer = fan_in**-0.5 * draws[start : start + (fan_in + 1) * fan_out].reshape(
                fan_in + 1, fan_out
            )
            start += layer.size
            weights.append(layer[:-1])
            biases.append(layer[-1])
        hidden = sizes[1:-1] if normalised else ()
        scales = tuple(jnp.ones(width) for width in hidden)
        return MLP(tuple(weights), tuple(biases), scales, tuple(map(jnp.zeros_like, scales)))

    def __call__(self, inputs: Float[Array, "B I"]) -> Float[Array, "B Y"]:
        hidden = inputs
        for layer, (weight, bias) in enumerate(
            zip(self.weights[:-1], self.biases[:-1], strict=True)
        ):
            hidden = hidden @ weight + bias[None]
            if self.scales:
                hidden = layer_norm(hidden, self.scales[layer], self.offsets[layer])
            hidden = jax.nn.relu(hidden)
        return hidden @ self.weights[-1] + self.biases[-1][None]


def layer_norm(
    hidden: Float[Array, "B H"], scale: Float[Array, " H"], offset: Float[Array, " H"]
) -> Float[Array, "B H"]:
    """Every row with mean 0 and variance 1, then scaled and moved."""
    centred = hidden - jnp.mean(hidden, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + NORM_EPSILON) * scale[None] + offset[None]
