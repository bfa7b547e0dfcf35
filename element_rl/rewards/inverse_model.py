"""An encoder that keeps what the agent controls: features from which the action between two
observations can be told.

    φ(s), φ(s') → â,     L = E ‖a − â‖² / A        coordinates of a Box, â by a tanh
                         L = −E Σ a log â           a one-hot choice, â by a softmax

(Pathak et al., 2017: the second; the first is its form for continuous actions.) ICM, APT, NGU, E3B
and RIDE look at the world through it; each trains its own.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.mlp import MLP


class InverseModel(eqx.Module):
    """An encoder and a head that tells the action from two encodings. A pytree of arrays, and of
    whether actions are a choice."""

    encoder: MLP
    head: MLP
    chooses: bool = eqx.field(static=True, default=False)

    @staticmethod
    def create(
        key: PRNGKeyArray,
        observation_dim: int,
        action_dim: int,
        feature_dim: int,
        encoder_sizes: Sequence[int],
        head_sizes: Sequence[int],
        chooses: bool = False,
    ) -> "InverseModel":
        encoder_key, head_key = jax.random.split(key)
        return InverseModel(
            MLP.create(encoder_key, (observation_dim, *encoder_sizes, feature_dim)),
            MLP.create(head_key, (2 * feature_dim, *head_sizes, action_dim)),
            chooses,
        )

    def features(self, observation: Float[Array, "B O"]) -> Float[Array, "B F"]:
        return self.encoder(observation)

    def __call__(
        self, observation: Float[Array, "B O"], next_observation: Float[Array, "B O"]
    ) -> Float[Array, "B A"]:
        """The action that led from one observation to the other, in (−1, 1); of a choice the
        probabilities."""
        outputs = self.outputs(observation, next_observation)
        return jax.nn.softmax(outputs, axis=-1) if self.chooses else jnp.tanh(outputs)

    def outputs(
        self, observation: Float[Array, "B O"], next_observation: Float[Array, "B O"]
    ) -> Float[Array, "B A"]:
        """Of the head, before its tanh or softmax."""
        both = jnp.concatenate(
            [self.features(observation), self.features(next_observation)], axis=-1
        )
        return self.head(both)


def inverse_loss(
    model: InverseModel,
    observation: Float[Array, "B O"],
    next_observation: Float[Array, "B O"],
    action: Float[Array, "B A"],
) -> Float[Array, ""]:
    """Mean squared error of the action told, over batch and action dimensions; of a choice the mean
    cross-entropy."""
    if model.chooses:
        told = jax.nn.log_softmax(model.outputs(observation, next_observation), axis=-1)
        return -jnp.mean(jnp.sum(action * told, axis=-1))
    return jnp.mean((model(observation, next_observation) - action) ** 2)


def clipped_adam(
    learning_rate: float, max_gradient_norm: float, epsilon: float = 1e-8
) -> optax.GradientTransformation:
    """Adam, after the gradient was scaled down to a norm."""
    return optax.chain(
        optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate, eps=epsilon)
    )


def gradient_step(
    optimiser: optax.GradientTransformation, gradient: Any, optimiser_state: Any, model: Any
) -> tuple[Any, Any]:
    """The model after one step, and the optimiser's state."""
    updates, optimiser_state = optimiser.update(gradient, optimiser_state, model)
    return optax.apply_updates(model, updates), optimiser_state
