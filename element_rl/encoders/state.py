"""The state of a robot: embedding ⊕ spatial coordinates ⊕ torso orientation (the paper's appendix).

The coordinates are given beside the observation (robots do not observe where they are); the
orientation is a slice of the observation. Environments without either have states made of the
embedding alone.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from element_rl.encoders.random_mlp import RandomMLP, make_random_mlp


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
