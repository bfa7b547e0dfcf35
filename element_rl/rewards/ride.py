"""RIDE, rewarding impact-driven exploration: a step that changes much pays, unless it leads where
the episode has been (Raileanu and Rocktäschel, 2020).

https://arxiv.org/abs/2002.12292. Features φ are those of ICM (`icm.py`): from them an inverse model
g tells the action, and a forward model f foresees the next ones. The bonus does not ask whether
they were foreseen, but how far they moved:

    r   = c ‖φ(s') − φ(s)‖₂ / √N_ep(s')                impact, over the visits of s' in its episode
    L   = (1 − β) L_I + β L_F,  β = 0.2                ICM's loss
    L_I = E ‖g(φ(s), φ(s')) − a‖² / A                  L_F = E ½ ‖f(φ(s), a) − φ(s')‖²

N_ep(s') counts visits of the cell of s' (`visit_cells.py`) up to this step, this one included, and
begins anew with every episode. 1/√N_ep is noted when the episode ends; the impact is computed with
the φ of the moment, whenever a transition is sampled. Unlike a prediction error it does not vanish
as the models learn. Without the count, to go back and forth between two unlike states would pay
for ever.

Where gradients go, as in the authors' code: L_I trains g and φ, L_F trains f and φ, through both
φ(s) and φ(s'); none is stopped. The bonus trains nothing.

Settings of the authors' code, which are the defaults but for β: 128 features (MiniGrid; 288 for
images), hidden layers of 256 in g and f, RMSProp with learning rate 1e-4, smoothing 0.99 and ε =
1e-5, gradients scaled down to a norm of 40. It weighs the bonus with 0.5 beside the task's reward;
here c = 1, for the bonus is all there is.

Departures:
1. SAC instead of IMPALA: φ, g and f learn from replayed batches, one step per SAC step, with an
   optimiser of their own; there they are part of one loss, a sum over 100 steps of an unroll, and
   the gradient of each network is scaled down alone. The sum of rewards is clipped to ±1 there, and
   nothing here.
2. Of continuous actions L_I is a squared error over tanh outputs, not a cross-entropy, and L_F a
   squared distance, where the authors' code takes the distance itself. It weighs L_I with 0.1 and
   L_F with 10. With a squared error, which is a tenth of a cross-entropy, φ then collapses to a
   constant and nothing has an impact (measured: docs/methods/ride.md); so β is ICM's.
3. Observations are vectors: φ is a multilayer perceptron with two hidden layers of 256 ReLU units
   where the original has three convolutions with ELU. φ sees them as they are.
4. N_ep counts cells, not equal observations, of which a continuous world has none. The whitening
   of the cells is that of the episodes before.
5. The first state of an episode counts as visited. In the authors' code the counts are emptied just
   after it was counted.
6. Layers start as `element_rl.mlp` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.icm import CuriosityModels, curiosity_loss
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import InverseModel, gradient_step
from element_rl.rewards.scaling import Moments, empty_moments, with_values
from element_rl.rewards.settings import check_settings
from element_rl.rewards.visit_cells import Cells, random_cells, visits_in_episode


@dataclass(frozen=True)
class RideConfig:
    """The settings of the authors' code; β is ICM's, the widths of φ and the cells are ours."""

    feature_dim: int = 128  # of φ
    encoder_sizes: tuple[int, ...] = (256, 256)  # hidden layers of φ
    inverse_sizes: tuple[int, ...] = (256,)  # hidden layers of g, which tells the action
    forward_sizes: tuple[int, ...] = (256,)  # hidden layers of f, which foresees the features
    forward_weight: float = 0.2  # β, share of the forward loss in the joint one
    learning_rate: float = 1e-4  # of all three, RMSProp
    rms_decay: float = 0.99  # smoothing of the squared gradients
    rms_epsilon: float = 1e-5
    max_gradient_norm: float = 40.0  # the gradient is scaled down to this
    cell_projections: int = 4  # K: vectors of more entries are projected to as many
    cell_width: float = 0.5  # w, in standard deviations
    reward_scale: float = 1.0  # c

    def __post_init__(self) -> None:
        check_settings(
            self,
            _POSITIVE,
            rms_decay=(0.0 <= self.rms_decay < 1.0, "from 0 to below 1"),
            forward_weight=(0.0 < self.forward_weight < 1.0, "above 0 and below 1"),
        )


_POSITIVE = (
    *("feature_dim", "learning_rate", "rms_epsilon", "max_gradient_norm"),
    *("cell_projections", "cell_width", "reward_scale"),
)


class RideState(NamedTuple):
    """What the reward of one agent knows; visits begin anew with every episode, so they are not
    here."""

    models: CuriosityModels  # φ, g and f
    optimiser: PyTree[Array]
    cells: Cells
    observations: Moments  # of all next observations, [O]; they whiten the cells


@dataclass(frozen=True)
class RideReward:
    """The impact of a step over visits in the episode, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "ride"
    config: RideConfig = field(default_factory=RideConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("ride_inverse_loss", "ride_forward_loss")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"inverse_root_visits": ()}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> RideState:
        config = self.config
        models_key, cells_key = jax.random.split(key)
        sizes = (config.encoder_sizes, config.inverse_sizes, config.forward_sizes)
        models = CuriosityModels.create(models_key, spec, config.feature_dim, *sizes)
        return RideState(
            models=models,
            optimiser=_optimiser(config).init(models),
            cells=random_cells(cells_key, spec.observation_dim, config.cell_projections),
            observations=empty_moments((spec.observation_dim,)),
        )

    def observe(self, state: RideState, episode: Episode) -> tuple[RideState, dict[str, Array]]:
        """1/√N_ep of every step, by the whitening of before; then the episode enters that."""
        visits = visits_in_episode(state.cells, episode, state.observations, self.config.cell_width)
        noted = jnp.where(episode.mask, jax.lax.rsqrt(jnp.maximum(visits, 1.0)), 0.0)
        seen = with_values(state.observations, episode.next_observation, episode.mask)
        return state._replace(observations=seen), {"inverse_root_visits": noted}

    def update(
        self, state: RideState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[RideState, dict[str, Array]]:
        """One step of φ, g and f on the joint loss."""
        del key  # nothing here is random
        gradient, losses = jax.grad(curiosity_loss, has_aux=True)(
            state.models, batch, self.config.forward_weight
        )
        models, optimiser = gradient_step(
            _optimiser(self.config), gradient, state.optimiser, state.models
        )
        return state._replace(models=models, optimiser=optimiser), {
            "ride_inverse_loss": losses["icm_inverse_loss"],
            "ride_forward_loss": losses["icm_forward_loss"],
        }

    def reward(self, state: RideState, batch: Transitions) -> Float[Array, " B"]:
        terms = self.reward_terms(state, batch)
        return self.config.reward_scale * terms["reward_episodic"] * terms["reward_lifelong"]

    def reward_terms(self, state: RideState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        """1/√N_ep as noted, and the impact; the reward is c times their product."""
        return {
            "reward_episodic": batch.notes["inverse_root_visits"],
            "reward_lifelong": impact_distance(state.models.inverse, batch),
        }


def impact_distance(model: InverseModel, batch: Transitions) -> Float[Array, " B"]:
    """‖φ(s') − φ(s)‖₂."""
    change = model.features(batch.next_observation) - model.features(batch.observation)
    return jnp.sqrt(jnp.sum(change**2, axis=-1))


def _optimiser(config: RideConfig) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.rmsprop(
            config.learning_rate, config.rms_decay, config.rms_epsilon, eps_in_sqrt=False
        ),
    )
