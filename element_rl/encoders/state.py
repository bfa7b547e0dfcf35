"""The state of a robot: embedding ⊕ spatial coordinates ⊕ torso orientation (the paper's appendix).

The coordinates are given beside the observation (robots do not observe where they are); the
orientation is a slice of the observation. Environments without either have states made of the
embedding alone.

The embedding is a fixed random encoder f(o): an untrained network of two hidden layers of 64, five
outputs. Its initialisation decides what the episodic reward can see. With weights and biases
uniform in ±1/√fan_in (what PyTorch's `Linear` does unless told otherwise, and so the reading here)
the embedding is of the order of a tenth to one and the coordinates beside it matter; with larger
weights the embedding drowns them, the Gram matrix is nearly diagonal, and every episode has the
largest possible entropy.

The weights come from NumPy's legacy generator, whose stream is frozen for all time (NEP 19): one
seed is one encoder, whatever the versions of NumPy and JAX, the platform or the device.
"""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class RandomMLP(eqx.Module):
    """Weights `[out, in]` and biases `[out]` of each layer; call it with one observation, `vmap` it
    over many."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __call__(self, observation: Float[Array, " O"]) -> Float[Array, " E"]:
        """The embedding of one observation; full precision, so that a state is the same on every
        device."""
        hidden = observation
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = jnp.matmul(weight, hidden, precision="highest") + bias
            if index < len(self.weights) - 1:
                hidden = jax.nn.relu(hidden)
        return hidden


def make_random_mlp(
    seed: int, observation_dim: int, embedding_dim: int = 5, hidden_sizes: Sequence[int] = (64, 64)
) -> RandomMLP:
    """The encoder of a seed."""
    generator = np.random.RandomState(seed)  # the frozen stream is the point
    sizes = [observation_dim, *hidden_sizes, embedding_dim]
    weights, biases = [], []
    for fan_in, fan_out in itertools.pairwise(sizes):
        bound = 1.0 / np.sqrt(fan_in)
        weights.append(
            jnp.asarray(generator.uniform(-bound, bound, (fan_out, fan_in)), jnp.float32)
        )
        biases.append(jnp.asarray(generator.uniform(-bound, bound, fan_out), jnp.float32))
    return RandomMLP(tuple(weights), tuple(biases))


class StateEncoder(eqx.Module):
    """Call it with one observation and its position; `vmap` it over many."""

    embed: RandomMLP
    # first and last+1 column of the observation; equal when none
    orientation: tuple[int, int] = eqx.field(static=True)

    def __call__(
        self, observation: Float[Array, " O"], position: Float[Array, " C"]
    ) -> Float[Array, " D"]:
        """The state: what entropy and novelty are measured on."""
        first, last = self.orientation
        return jnp.concatenate([self.embed(observation), position, observation[first:last]])


def make_state_encoder(
    seed: int, observation_dim: int, orientation: tuple[int, int] = (0, 0), embedding_dim: int = 5
) -> StateEncoder:
    """The state encoder of a seed; its states have `embedding_dim` + position + orientation
    columns."""
    first, last = orientation
    if not 0 <= first <= last <= observation_dim:
        raise ValueError(
            f"The orientation columns {first} to {last} are not within an observation of width "
            f"{observation_dim}."
        )
    return StateEncoder(make_random_mlp(seed, observation_dim, embedding_dim), (first, last))
