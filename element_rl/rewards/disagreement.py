"""Disagreement: where models of the world that learnt from the same data differ, there is something
to learn (Pathak, Gandhi and Gupta, 2019).

https://arxiv.org/abs/1906.04161; for vectors as in the URL benchmark,
https://arxiv.org/abs/2110.15191. Models f_1 … f_N with weights of their own foresee the next
observation:

    x(s)   = clip((s − mean) / std, ±5)                 whitened by all next observations seen
    L_n    = E ‖f_n(x(s), a) − x(s')‖² / O              the mean over the O entries, and over a
                                                        share of the batch that model n has drawn
    v      = Σ_o Var_n[f_n(x(s), a)_o] / O              variance over the models, 1/N Σ (f_n − f̄)²
    R_t    = γ R_{t−1} + v_t,  γ = 0.99                 along all of the agent's episodes
    r      = c v / std(R)                               no mean subtracted, nothing clipped

What cannot be foreseen because it is random, all models learn to foresee by its mean: they agree,
and it pays nothing, where ICM pays for it for ever. No model sees the next observation when the
bonus is computed. Statistics are RND's (`rnd.py`), in the same order: when an episode ends, first
the whitening takes it in, then the variances of its transitions pass through the filter R. Each
model descends its own loss; the bonus trains nothing.

Settings: N = 5, Adam with learning rate 1e-4 (paper's code and URL benchmark), each model learns
from 0.8 of every batch, γ = 0.99, scaled by std(R) (the paper's code, which inherits it from Burda
et al., 2018b); one hidden layer of 1024 units (URL benchmark; for images the paper's models have
nine layers of 512 with residual connections).

Departures:
1. SAC instead of PPO: the models learn from replayed batches, one step per SAC step, and the bonus
   of a transition is computed anew whenever it is sampled. The paper's differentiable exploration,
   which trains the policy through the models, is left out.
2. Observations are vectors: the models foresee these, as in the URL benchmark, where the paper has
   512 features of a fixed random network over images. They are whitened and clipped as RND's; the
   paper whitens frames by a random agent's moments, the URL benchmark does not whiten.
3. The loss is the squared error of the paper's code. The URL benchmark has the distance itself,
   divides the variance by N − 1, and scales nothing: `normalise=False` gives c v.
4. std(R) comes from the variances when the episode ended, with the models of that moment.
5. Layers start as `element_rl.mlp` says.
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
from element_rl.rewards.inverse_model import gradient_step
from element_rl.rewards.rnd import discounted_returns, whitened
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class DisagreementConfig:
    """The papers' parameters."""

    num_models: int = 5  # N
    hidden_sizes: tuple[int, ...] = (1024,)  # hidden layers of each model
    learning_rate: float = 1e-4  # of all models, Adam
    trained_share: float = 0.8  # share of each batch that a model learns from, drawn for each alone
    observation_clip: float = 5.0  # whitened observations are cut to ± this
    normalise: bool = True  # divide the variance by the deviation of its discounted return
    return_discount: float = 0.99  # γ of that return
    reward_scale: float = 1.0  # c

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("learning_rate", "observation_clip", "reward_scale"),
            num_models=(self.num_models >= 2, "at least 2: one model agrees with itself"),
            trained_share=(0.0 < self.trained_share <= 1.0, "above 0 and at most 1"),
            return_discount=(0.0 <= self.return_discount < 1.0, "from 0 to below 1"),
        )


class DisagreementState(NamedTuple):
    """What the reward of one agent knows."""

    models: MLP  # f_1 … f_N; every array has a leading axis M
    optimiser: PyTree[Array]
    observations: Moments  # of all next observations, [O]
    running_return: Float[Array, ""]  # R after the last transition seen
    returns: Moments  # of R over time


@dataclass(frozen=True)
class DisagreementReward:
    """The variance of an ensemble's predictions, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "disagreement"
    config: DisagreementConfig = field(default_factory=DisagreementConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("disagreement_loss", "disagreement_return_std")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> DisagreementState:
        outputs = spec.observation_dim
        sizes = (outputs + spec.action_dim, *self.config.hidden_sizes, outputs)
        keys = jax.random.split(key, self.config.num_models)
        models = jax.vmap(lambda model_key: MLP.create(model_key, sizes))(keys)
        return DisagreementState(
            models=models,
            optimiser=optax.adam(self.config.learning_rate).init(models),
            observations=empty_moments((outputs,)),
            running_return=jnp.zeros(()),
            returns=empty_moments(),
        )

    def observe(
        self, state: DisagreementState, episode: Episode
    ) -> tuple[DisagreementState, dict[str, Array]]:
        """The episode enters the whitening, then its variances the filter that scales the bonus."""
        state = state._replace(
            observations=with_values(state.observations, episode.next_observation, episode.mask)
        )
        variance = self.variance(state, episode.observation, episode.action)
        running, returns = discounted_returns(
            state.running_return, variance, episode.mask, self.config.return_discount
        )
        return state._replace(
            running_return=running, returns=with_values(state.returns, returns, episode.mask)
        ), {}

    def update(
        self, state: DisagreementState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[DisagreementState, dict[str, Array]]:
        """One step of every model, each on its own share of the batch."""
        config = self.config
        shape = (config.num_models, batch.action.shape[0])
        trained = jax.random.uniform(key, shape) < config.trained_share
        inputs = self.inputs(state, batch.observation, batch.action)
        target = whitened(batch.next_observation, state.observations, config.observation_clip)
        loss, gradient = jax.value_and_grad(ensemble_loss)(state.models, inputs, target, trained)
        adam = optax.adam(config.learning_rate)
        models, optimiser = gradient_step(adam, gradient, state.optimiser, state.models)
        return state._replace(models=models, optimiser=optimiser), {
            "disagreement_loss": loss / config.num_models,
            "disagreement_return_std": standard_deviation(state.returns),
        }

    def reward(self, state: DisagreementState, batch: Transitions) -> Float[Array, " B"]:
        bonus = self.config.reward_scale * self.variance(state, batch.observation, batch.action)
        return bonus / standard_deviation(state.returns) if self.config.normalise else bonus

    def reward_terms(
        self, state: DisagreementState, batch: Transitions
    ) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}

    def variance(
        self,
        state: DisagreementState,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
    ) -> Float[Array, " B"]:
        """v: variance of the predictions over the models, a mean over their entries."""
        foreseen = predictions(state.models, self.inputs(state, observation, action))
        return jnp.mean(jnp.var(foreseen, axis=0), axis=-1)

    def inputs(
        self,
        state: DisagreementState,
        observation: Float[Array, "B O"],
        action: Float[Array, "B A"],
    ) -> Float[Array, "B I"]:
        """What the models see: the whitened observation and the action."""
        seen = whitened(observation, state.observations, self.config.observation_clip)
        return jnp.concatenate([seen, action], axis=-1)


def predictions(models: MLP, inputs: Float[Array, "B I"]) -> Float[Array, "M B O"]:
    """What each model foresees."""
    return jax.vmap(lambda model: model(inputs))(models)


def ensemble_loss(
    models: MLP,
    inputs: Float[Array, "B I"],
    target: Float[Array, "B O"],
    trained: Bool[Array, "M B"],
) -> Float[Array, ""]:
    """Σ_n L_n, so that each model's gradient is that of its own loss; 0 for one without a row."""
    errors = jnp.mean((predictions(models, inputs) - target[None]) ** 2, axis=-1)
    rows = jnp.maximum(jnp.sum(trained, axis=1), 1)
    return jnp.sum(jnp.sum(jnp.where(trained, errors, 0.0), axis=1) / rows)
