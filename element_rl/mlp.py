"""Multilayer perceptrons, of agents and of rewards that learn.

A network takes a batch [B, ...]; populations come from `jax.vmap` over the module, which is a
pytree of arrays and of nothing else. Weights and biases start uniform in ±1/√fan_in, PyTorch's
default for `Linear`.
"""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last; `weights[i]` is [in, out]."""

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    @staticmethod
    def create(key: PRNGKeyArray, sizes: Sequence[int]) -> "MLP":
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
        return MLP(tuple(weights), tuple(biases))

    def __call__(self, inputs: Float[Array, "B I"]) -> Float[Array, "B Y"]:
        hidden = inputs
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = jax.nn.relu(hidden @ weight + bias[None])
        return hidden @ self.weights[-1] + self.biases[-1][None]
