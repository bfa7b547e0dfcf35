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

**Calibrated states.** Raw, all of this is in the environment's units. Humanoid observes numbers up
to hundreds, and every two of its states look different; MountainCar's are hundredths, and all look
the same. A `WarmUp`, rows of episodes of random actions, tells the units:

    embedding    f(asinh((o − mean) / deviation)), with mean and deviation of each column of the
                 observation; asinh is linear near the mean and logarithmic far from it, where no
                 random action leads
    blocks       embedding, position and orientation are each divided by √B times the root mean
                 square distance of two of their values in one episode, where B blocks vary

So the mean squared distance of two states of an episode of random actions is 1, each block has the
same part of it, and a bandwidth means the same on every environment. The units are frozen: a state
once remembered never moves.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


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


class WarmUp(NamedTuple):
    """Rows of some episodes of random actions, from which the units of states are taken."""

    observation: Float[np.ndarray, "N O"]
    position: Float[np.ndarray, "N C"]
    episode: Int[np.ndarray, " N"]  # which episode a row is of


class Units(eqx.Module):
    """What observations and the blocks of a state are measured in."""

    mean: Float[Array, " O"]  # of the observation
    deviation: Float[Array, " O"]
    blocks: Float[Array, " 3"]  # of embedding, position and orientation


class StateEncoder(eqx.Module):
    """Call it with one observation and its position; `vmap` it over many.

    It looks at as many columns as it was made for. What an observation has after these is a latent
    (`envs.latents`), which is no part of where the agent is.
    """

    embed: RandomMLP
    # first and last+1 column of the observation; equal when none
    orientation: tuple[int, int] = eqx.field(static=True)
    units: Units | None = None  # None: everything in the environment's own

    def __call__(
        self, observation: Float[Array, " O"], position: Float[Array, " C"]
    ) -> Float[Array, " D"]:
        """The state: what entropy and novelty are measured on."""
        observation = observation[: self.embed.weights[0].shape[1]]
        first, last = self.orientation
        orientation = observation[first:last]
        if self.units is None:
            return jnp.concatenate([self.embed(observation), position, orientation])
        inputs = jnp.arcsinh((observation - self.units.mean) / self.units.deviation)
        blocks = (self.embed(inputs), position, orientation)
        return jnp.concatenate([block / self.units.blocks[i] for i, block in enumerate(blocks)])


def make_state_encoder(
    seed: int,
    observation_dim: int,
    orientation: tuple[int, int] = (0, 0),
    embedding_dim: int = 5,
    warm_up: WarmUp | None = None,
) -> StateEncoder:
    """The state encoder of a seed; its states have `embedding_dim` + position + orientation
    columns. With a warm-up they are calibrated by it."""
    first, last = orientation
    if not 0 <= first <= last <= observation_dim:
        raise ValueError(
            f"The orientation columns {first} to {last} are not within an observation of width "
            f"{observation_dim}."
        )
    embed = make_random_mlp(seed, observation_dim, embedding_dim)
    if warm_up is None:
        return StateEncoder(embed, (first, last))
    return StateEncoder(embed, (first, last), _units(embed, (first, last), warm_up))


def _units(embed: RandomMLP, orientation: tuple[int, int], warm_up: WarmUp) -> Units:
    """The units in which two states of an episode of the warm-up are at a mean squared distance
    of 1."""
    rows = warm_up.observation[:, : embed.weights[0].shape[1]].astype(np.float64)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    # What rounding leaves of a constant is no deviation; a column that never moved keeps its unit.
    deviation = np.where(deviation > 1e-6 * np.maximum(np.abs(mean), 1e-3), deviation, 1.0)
    inputs = np.arcsinh((rows - mean) / deviation).astype(np.float32)
    embedding = np.asarray(jax.vmap(embed)(jnp.asarray(inputs)))
    blocks = (embedding, warm_up.position, rows[:, slice(*orientation)])
    squared = np.array([_squared_distance(block, warm_up.episode) for block in blocks])
    varies = squared > 1e-12
    units = np.sqrt(np.where(varies, max(varies.sum(), 1) * squared, 1.0))
    return Units(*(jnp.asarray(array, jnp.float32) for array in (mean, deviation, units)))


def _squared_distance(block: Float[np.ndarray, "N B"], episode: Int[np.ndarray, " N"]) -> float:
    """Mean squared distance of two rows of one episode: twice the sum of the variances of its
    columns, averaged over the episodes by their rows."""
    rows = np.asarray(block, np.float64)
    each = [(len(own), 2.0 * own.var(axis=0).sum()) for own in _split(rows, episode)]
    return sum(length * squared for length, squared in each) / max(len(rows), 1)


def _split(
    rows: Float[np.ndarray, "N B"], episode: Int[np.ndarray, " N"]
) -> list[Float[np.ndarray, "_ B"]]:
    return [rows[episode == number] for number in np.unique(episode)]
