"""APT: the mean distance of a state to its k nearest neighbours, in features that keep what the
agent controls.

    z = φ(s'),      r(s') = log(c + (1/k) Σ_j ‖z − z_j‖),  c = 1        (form "urlb")
                    the same, over the running mean of itself           (form "paper")

Behavior From the Void: Unsupervised Active Pre-Training, https://arxiv.org/abs/2103.04551; its
features are contrastive, for images. For vectors this is the variant the same authors wrote for the
Unsupervised Reinforcement Learning Benchmark, https://arxiv.org/abs/2110.15191, agent `icm_apt`
(github.com/rll-research/url_benchmark): φ is one linear layer, a LayerNorm and a tanh, trained with
a model of the action and one of what comes next,

    L = E ‖a − â(z, z')‖ + E ‖z' − ẑ'(z, a)‖            (norms, not squares; both train φ)

Official settings: 512 features, hidden layers of 1,024, Adam at 1e-4, k = 12 averaged, neighbours
within a batch of 1,024, distances not normalised (`knn_rms: false`; the paper divides the bonus by
its running mean).

Departures:
1. A batch here is 128. Neighbours come from the last 1,024 draws from the replay, the batch
   included (`sample_pool`): the pool keeps observations, and all are encoded anew for every batch,
   since φ learns.
2. A state is not its own neighbour: the mean is over 12 others. In the benchmark's code it is one
   of the 12, at distance 0.
3. The bonus is about the next observation. The benchmark encodes the current one.
4. Layers start as PyTorch's `Linear` does by default. In the benchmark orthogonal with zero biases.
5. The model learns at every update, from 128 transitions. In the benchmark at every second step,
   from 1,024, with DDPG.
6. With fewer than k neighbours in the pool the mean is over those there are, and with none the
   bonus is 0.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import InverseModel, gradient_step
from element_rl.rewards.sample_pool import (
    Pool,
    PoolReward,
    check_pool,
    empty_pool,
    mean_distance,
    neighbour_distances,
    transition_identity,
)
from element_rl.rewards.scaling import Moments, empty_moments, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class AptConfig:
    """The parameters of the benchmark's `icm_apt`."""

    num_neighbours: int = 12  # k, the state itself not counted
    pool_size: int = 1_024  # draws from the replay that a state is compared with
    form: Literal["urlb", "paper"] = "urlb"  # the logarithm as it is, or over its running mean
    feature_dim: int = 512  # of φ
    hidden_sizes: tuple[int, ...] = (1_024,)  # of the models of the action and of what comes next
    learning_rate: float = 1e-4  # Adam
    # whether φ also learns from predicting what comes next; without it half the cost
    forward_model: bool = True

    def __post_init__(self) -> None:
        positive = ("feature_dim", "learning_rate")
        check_settings(self, positive, num_neighbours=check_pool(self))


class AptModel(NamedTuple):
    """All that learns."""

    inverse: InverseModel  # its encoder is the linear layer of φ
    forward: MLP | tuple[()]  # () without a forward model


class AptState(NamedTuple):
    """What the reward of one agent knows."""

    model: AptModel
    optimiser: Any
    pool: Pool  # of next observations
    reward_moments: Moments  # of the logarithms; moved by form "paper" only


@dataclass(frozen=True)
class AptReward(PoolReward):
    """The reward of the paper, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "apt"
    unread: ClassVar[str] = "state"
    config: AptConfig = field(default_factory=AptConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (
            ("apt_forward_loss", "apt_inverse_loss")
            if self.config.forward_model
            else ("apt_inverse_loss",)
        )

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> AptState:
        inverse_key, forward_key = jax.random.split(key)
        width, hidden = self.config.feature_dim, self.config.hidden_sizes
        inverse = InverseModel.create(
            inverse_key, spec.observation_dim, spec.action_dim, width, (), hidden
        )
        forward: MLP | tuple[()] = ()
        if self.config.forward_model:
            forward = MLP.create(forward_key, (width + spec.action_dim, *hidden, width))
        model = AptModel(inverse, forward)
        pool = empty_pool(self.config.pool_size, spec.observation_dim)
        return AptState(
            model, optax.adam(self.config.learning_rate).init(model), pool, empty_moments()
        )

    def update(
        self, state: AptState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[AptState, dict[str, Array]]:
        """The batch enters the pool, the model takes one gradient step, form "paper" counts the
        bonuses of the batch."""
        del key
        gradient, metrics = jax.grad(feature_loss, has_aux=True)(state.model, batch)
        adam = optax.adam(self.config.learning_rate)
        model, optimiser = gradient_step(adam, gradient, state.optimiser, state.model)
        state = self.with_transitions(state._replace(model=model, optimiser=optimiser), batch)
        if self.config.form == "paper":
            state = state._replace(
                reward_moments=with_values(state.reward_moments, self.novelty(state, batch))
            )
        return state, metrics

    def vectors(self, state: AptState, batch: Transitions) -> Float[Array, "B O"]:
        """The pool keeps observations: φ learns, and they are encoded anew for every batch."""
        return batch.next_observation

    def reward(self, state: AptState, batch: Transitions) -> Float[Array, " B"]:
        novelty = self.novelty(state, batch)
        if self.config.form == "urlb":
            return novelty
        mean = state.reward_moments.mean
        return novelty / jnp.where(mean > 0, mean, 1.0)

    def novelty(self, state: AptState, batch: Transitions) -> Float[Array, " B"]:
        """log(1 + mean distance) in the features of the encoder as it is now."""
        # encoded in one product: equals stay equal
        together = jnp.concatenate([state.pool.vectors, batch.next_observation])
        encoded = features(state.model.inverse, together)
        number = batch.action.shape[0]
        pool, queries = state.pool._replace(vectors=encoded[:-number]), encoded[-number:]
        identity = transition_identity(batch)
        distances = neighbour_distances(queries, identity, pool, self.config.num_neighbours)
        return jnp.log1p(mean_distance(distances))


def features(model: InverseModel, observation: Float[Array, "B O"]) -> Float[Array, "B F"]:
    """φ: a linear layer, standardised over the features of each observation, and a tanh."""
    return jnp.tanh(jax.nn.standardize(model.features(observation), axis=-1))


def feature_loss(
    model: AptModel, batch: Transitions
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """E ‖a − â‖ + E ‖z' − ẑ'‖."""
    now = features(model.inverse, batch.observation)
    after = features(model.inverse, batch.next_observation)
    told = jnp.tanh(model.inverse.head(jnp.concatenate([now, after], axis=-1)))
    inverse_loss = jnp.mean(_norm(batch.action - told))
    if not isinstance(model.forward, MLP):
        return inverse_loss, {"apt_inverse_loss": inverse_loss}
    predicted = model.forward(jnp.concatenate([now, batch.action], axis=-1))
    forward_loss = jnp.mean(_norm(after - predicted))
    return inverse_loss + forward_loss, {
        "apt_inverse_loss": inverse_loss,
        "apt_forward_loss": forward_loss,
    }


def _norm(vectors: Float[Array, "B F"]) -> Float[Array, " B"]:
    """Lengths whose gradient is finite at 0."""
    return jnp.sqrt(jnp.sum(vectors**2, axis=-1) + 1e-12)
