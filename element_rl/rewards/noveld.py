"""NovelD: a step from what is known to what is new pays, once in an episode (Zhang et al., 2021).

https://proceedings.neurips.cc/paper/2021/hash/d428d070622e0f4363fceae11f4a3576-Abstract.html,
before it known as BeBold, https://arxiv.org/abs/2012.08621. The novelty of a state is the error of
random network distillation (`rnd.py`), and a step is paid for the difference:

    nov(s) = ‖f̂(x(s)) − f(x(s))‖₂                      f random and fixed; f̂ learns to say the same
    r      = c max(nov(s') − α nov(s), 0) · 1{N_ep(s') = 1},    α = 0.5
    x(s)   = clip((s − mean) / std, ±5)                whitened by all next observations seen

So the bonus is at the boundary of what has been explored, not everywhere beyond it, and the step
back pays nothing. N_ep(s') counts visits of the cell of s' in its episode (`visit_cells.py`, the
same count as RIDE's); only the first visit pays. It is noted when the episode ends, and the
novelties are computed with the f̂ of the moment, whenever a transition is sampled. f̂ descends the
mean of ‖f̂ − f‖² / F over each batch, of next observations as in the authors' code.

Settings of the authors' code, which are the defaults: α = 0.5, F = 128, hidden layers of 128, 128
and 128 units in f and of 1024, 1024, 128 and 128 in f̂, Adam with learning rate 1e-4, gradients
scaled down to a norm of 40. It weighs the bonus with 0.5 beside the task's reward; here c = 1, for
the bonus is all there is.

Departures:
1. SAC instead of the IMPALA of the code: f̂ learns from replayed batches, one step per SAC step.
   The sum of rewards is clipped to ±1 there, and nothing here.
2. f and f̂ see the observation, whitened and clipped as RND's. In the authors' code they see 1024
   features of it, by an untrained copy of the policy's first layers, not whitened.
3. N_ep counts cells, not equal observations, of which a continuous world has none. The whitening
   of the cells is that of the episodes before, not clipped.
4. The first state of an episode counts as visited: the step back to it pays nothing.
5. Layers start as `element_rl.mlp` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import clipped_adam, gradient_step
from element_rl.rewards.rnd import distillation_loss, mean_squared_error, whitened
from element_rl.rewards.scaling import Moments, empty_moments, with_values
from element_rl.rewards.settings import check_settings
from element_rl.rewards.visit_cells import Cells, random_cells, visits_in_episode


@dataclass(frozen=True)
class NoveldConfig:
    """The settings of the authors' code; clip and cells are ours."""

    novelty_decay: float = 0.5  # α, the share of nov(s) that is subtracted
    feature_dim: int = 128  # F, what target and predictor say about an observation
    target_sizes: tuple[int, ...] = (128, 128, 128)  # hidden layers of the target
    predictor_sizes: tuple[int, ...] = (1024, 1024, 128, 128)  # hidden layers of the predictor
    learning_rate: float = 1e-4  # of the predictor, Adam
    max_gradient_norm: float = 40.0  # its gradient is scaled down to this
    observation_clip: float = 5.0  # whitened observations are cut to ± this
    cell_projections: int = 4  # K: vectors of more entries are projected to as many
    cell_width: float = 0.5  # w, in standard deviations
    reward_scale: float = 1.0  # c

    def __post_init__(self) -> None:
        check_settings(
            self, _POSITIVE, novelty_decay=(0.0 <= self.novelty_decay <= 1.0, "from 0 to 1")
        )


_POSITIVE = (
    *("feature_dim", "learning_rate", "max_gradient_norm", "observation_clip"),
    *("cell_projections", "cell_width", "reward_scale"),
)


class NoveldState(NamedTuple):
    """What the reward of one agent knows; visits begin anew with every episode, so they are not
    here."""

    target: MLP  # never changes
    predictor: MLP
    optimiser: PyTree[Array]
    cells: Cells
    observations: Moments  # of all next observations, [O]


@dataclass(frozen=True)
class NoveldReward:
    """The difference in novelty, at first visits, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "noveld"
    config: NoveldConfig = field(default_factory=NoveldConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("noveld_rnd_loss", "noveld_paid")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"first_visit": ()}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> NoveldState:
        target_key, predictor_key, cells_key = jax.random.split(key, 3)
        config, inputs = self.config, spec.observation_dim
        predictor = MLP.create(predictor_key, (inputs, *config.predictor_sizes, config.feature_dim))
        return NoveldState(
            target=MLP.create(target_key, (inputs, *config.target_sizes, config.feature_dim)),
            predictor=predictor,
            optimiser=_optimiser(config).init(predictor),
            cells=random_cells(cells_key, inputs, config.cell_projections),
            observations=empty_moments((inputs,)),
        )

    def observe(self, state: NoveldState, episode: Episode) -> tuple[NoveldState, dict[str, Array]]:
        """Which steps were first visits, by the whitening of before; then the episode enters
        that."""
        visits = visits_in_episode(state.cells, episode, state.observations, self.config.cell_width)
        seen = with_values(state.observations, episode.next_observation, episode.mask)
        return state._replace(observations=seen), {
            "first_visit": (visits == 1.0).astype(jnp.float32)
        }

    def update(
        self, state: NoveldState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[NoveldState, dict[str, Array]]:
        """One step of the predictor on the batch."""
        del key  # nothing here is random
        inputs = self.inputs(state, batch.next_observation)
        trained = jnp.ones(inputs.shape[0], bool)
        loss, gradient = jax.value_and_grad(distillation_loss)(
            state.predictor, inputs, state.target(inputs), trained
        )
        predictor, optimiser = gradient_step(
            _optimiser(self.config), gradient, state.optimiser, state.predictor
        )
        state = state._replace(predictor=predictor, optimiser=optimiser)
        paid = jnp.mean(self.difference(state, batch) > 0.0)
        return state, {"noveld_rnd_loss": loss, "noveld_paid": paid}

    def reward(self, state: NoveldState, batch: Transitions) -> Float[Array, " B"]:
        terms = self.reward_terms(state, batch)
        return self.config.reward_scale * terms["reward_episodic"] * terms["reward_lifelong"]

    def reward_terms(self, state: NoveldState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        """Whether it was a first visit, and the difference in novelty; the reward is c times their
        product."""
        return {
            "reward_episodic": batch.notes["first_visit"],
            "reward_lifelong": self.difference(state, batch),
        }

    def difference(self, state: NoveldState, batch: Transitions) -> Float[Array, " B"]:
        """max(nov(s') − α nov(s), 0)."""
        after, before = (
            self.novelty(state, seen) for seen in (batch.next_observation, batch.observation)
        )
        return jnp.maximum(after - self.config.novelty_decay * before, 0.0)

    def novelty(self, state: NoveldState, observation: Float[Array, "B O"]) -> Float[Array, " B"]:
        """nov: the distance of what the predictor says from what the target says."""
        inputs = self.inputs(state, observation)
        mean_squares = mean_squared_error(state.predictor, state.target, inputs)
        return jnp.sqrt(self.config.feature_dim * mean_squares)

    def inputs(self, state: NoveldState, observation: Float[Array, "B O"]) -> Float[Array, "B O"]:
        """x: what target and predictor see of an observation."""
        return whitened(observation, state.observations, self.config.observation_clip)


def _optimiser(config: NoveldConfig) -> optax.GradientTransformation:
    return clipped_adam(config.learning_rate, config.max_gradient_norm)
