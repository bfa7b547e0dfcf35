"""Random network distillation: what a network has not yet learnt to predict is new (Burda et al.,
2018).

https://arxiv.org/abs/1810.12894; for vectors as in the URL benchmark,
https://arxiv.org/abs/2110.15191. A target network f is random and stays so; a predictor f̂ learns
to say the same. Where the agent has rarely been, it still fails:

    x(s')  = clip((s' − mean) / std, ±5)              whitened by all next observations seen
    e(s')  = ‖f̂(x(s')) − f(x(s'))‖² / F              the mean over the F features
    R_t    = γ R_{t−1} + e(s'_t),  γ = 0.99            along all of the agent's episodes
    r(s')  = c e(s') / std(R)                          no mean subtracted, nothing clipped

The predictor descends the mean of e over each batch. Statistics run over the time of one agent, in
the order things happened, when an episode ends: first the whitening takes in the episode, then the
errors of its transitions pass through the filter R. The random steps before learning therefore warm
both up. Before anything was seen mean, std and std(R) are 0, 1 and 1.

Settings of the papers' codes, which are the defaults: F = 512, Adam with learning rate 1e-4, clip
±5, γ = 0.99, c = 1, the predictor trained on all of each batch; hidden layers of 1024 and 1024
units for target and predictor (URL benchmark; for images the original has convolutions, and two
more layers in the predictor: `predictor_sizes` can add them).

Departures:
1. SAC instead of PPO: the predictor learns from replayed batches, one step per SAC step, and the
   bonus of a transition is computed anew whenever it is sampled (as in the URL benchmark), not once
   when it happened.
2. One critic. The original learns intrinsic and extrinsic returns apart and lets the intrinsic one
   run through the ends of episodes; here SAC's `terminated` ends both. The filter R is
   non-episodic, as in the original.
3. The scale std(R) comes from the errors when the episode ended, with the predictor of that moment.
   The URL benchmark divides by the running deviation of the errors of sampled batches instead, and
   its whitening is batch normalisation.
4. Statistics include the episode that is being judged; the original whitens with those up to the
   rollout before it, and draws its warm-up from steps that it then forgets.
5. One predictor step per environment step, where the original takes one per few hundred: e falls
   much faster than std(R), which remembers the beginning, and r is small (c can make up for it).
6. Layers start as `element_rl.mlp` says, not orthogonal; ReLU, not leaky, in the hidden layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class RndConfig:
    """The papers' parameters."""

    feature_dim: int = 512  # F, what target and predictor say about an observation
    target_sizes: tuple[int, ...] = (1024, 1024)  # hidden layers of the target
    predictor_sizes: tuple[int, ...] = (1024, 1024)  # hidden layers of the predictor
    learning_rate: float = 1e-4  # of the predictor, Adam
    # share of each batch the predictor learns from; less slows the bonus's decay
    trained_share: float = 1.0
    observation_clip: float = 5.0  # whitened observations are cut to ± this
    return_discount: float = 0.99  # γ of the intrinsic return whose deviation scales the bonus
    reward_scale: float = 1.0  # c, times the scaled bonus

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("feature_dim", "learning_rate", "observation_clip", "reward_scale"),
            trained_share=(0.0 < self.trained_share <= 1.0, "above 0 and at most 1"),
            return_discount=(0.0 <= self.return_discount < 1.0, "from 0 to below 1"),
        )


class RndState(NamedTuple):
    """What the reward of one agent knows."""

    target: MLP  # never changes
    predictor: MLP
    optimiser: PyTree[Array]
    observations: Moments  # of all next observations, [O]
    running_return: Float[Array, ""]  # R after the last transition seen
    returns: Moments  # of R over time


@dataclass(frozen=True)
class RndReward:
    """The prediction error of a random network, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "rnd"
    config: RndConfig = field(default_factory=RndConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("rnd_loss", "rnd_return_std")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> RndState:
        target_key, predictor_key = jax.random.split(key)
        config, inputs = self.config, spec.observation_dim
        predictor = MLP.create(predictor_key, (inputs, *config.predictor_sizes, config.feature_dim))
        return RndState(
            target=MLP.create(target_key, (inputs, *config.target_sizes, config.feature_dim)),
            predictor=predictor,
            optimiser=optax.adam(config.learning_rate).init(predictor),
            observations=empty_moments((inputs,)),
            running_return=jnp.zeros(()),
            returns=empty_moments(),
        )

    def observe(self, state: RndState, episode: Episode) -> tuple[RndState, dict[str, Array]]:
        """The episode enters the whitening, then its errors the filter that scales the bonus."""
        state = state._replace(
            observations=with_values(state.observations, episode.next_observation, episode.mask)
        )
        errors = self.prediction_error(state, episode.next_observation)
        running, returns = discounted_returns(
            state.running_return, errors, episode.mask, self.config.return_discount
        )
        return state._replace(
            running_return=running, returns=with_values(state.returns, returns, episode.mask)
        ), {}

    def update(
        self, state: RndState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[RndState, dict[str, Array]]:
        """One step of the predictor on the batch, or on a random share of it."""
        config = self.config
        trained = jax.random.uniform(key, batch.next_observation.shape[:1]) < config.trained_share
        inputs = whitened(batch.next_observation, state.observations, config.observation_clip)
        target = state.target(inputs)
        loss, gradient = jax.value_and_grad(distillation_loss)(
            state.predictor, inputs, target, trained
        )
        updates, optimiser = optax.adam(config.learning_rate).update(gradient, state.optimiser)
        state = state._replace(
            predictor=optax.apply_updates(state.predictor, updates), optimiser=optimiser
        )
        return state, {"rnd_loss": loss, "rnd_return_std": standard_deviation(state.returns)}

    def reward(self, state: RndState, batch: Transitions) -> Float[Array, " B"]:
        error = self.prediction_error(state, batch.next_observation)
        return self.config.reward_scale * error / standard_deviation(state.returns)

    def reward_terms(self, state: RndState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}

    def prediction_error(
        self, state: RndState, observation: Float[Array, "B O"]
    ) -> Float[Array, " B"]:
        """e: the squared error of the predictor, a mean over the features; not yet scaled."""
        inputs = whitened(observation, state.observations, self.config.observation_clip)
        return mean_squared_error(state.predictor, state.target, inputs)


def whitened(observation: Float[Array, "B O"], seen: Moments, clip: float) -> Float[Array, "B O"]:
    """(o − mean) / std, cut to ±clip; an entry that never changed is only shifted."""
    return jnp.clip((observation - seen.mean[None]) / standard_deviation(seen)[None], -clip, clip)


def mean_squared_error(
    predictor: MLP, target: MLP, inputs: Float[Array, "B O"]
) -> Float[Array, " B"]:
    """‖f̂(x) − f(x)‖² / F."""
    return jnp.mean((predictor(inputs) - target(inputs)) ** 2, axis=-1)


def discounted_returns(
    running: Float[Array, ""], errors: Float[Array, " T"], mask: Bool[Array, " T"], discount: float
) -> tuple[Float[Array, ""], Float[Array, " T"]]:
    """R ← γ R + e along time, from `running` on; steps that are padding leave R as it is."""

    def step(carried: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        error, present = now
        carried = jnp.where(present, discount * carried + error, carried)
        return carried, carried

    # unrolled: a step alone is less than its overhead
    return jax.lax.scan(step, running, (errors, mask), unroll=16)


def distillation_loss(
    predictor: MLP,
    inputs: Float[Array, "B O"],
    target: Float[Array, "B F"],
    trained: Bool[Array, " B"],
) -> Float[Array, ""]:
    """Mean of e over the rows that are trained on; 0 if there is none."""
    errors = jnp.mean((predictor(inputs) - target) ** 2, axis=-1)
    return jnp.sum(jnp.where(trained, errors, 0.0)) / jnp.maximum(jnp.sum(trained), 1)
