"""E3B, exploration by elliptical episodic bonuses (Henaff et al., 2022, arXiv:2210.05805): a count
of directions.

    b(s_{t+1}) = φ(s_{t+1})ᵀ C_t⁻¹ φ(s_{t+1}),    C_t = λ I + Σ_{i=0…t} φ(s_i) φ(s_i)ᵀ

The sum is over the states of the same episode before s_{t+1}, the first one included and s_{t+1}
itself not. With one-hot features b is 1 / (number of earlier visits + λ); in general it is large
where few states of the episode point. φ is learned with an inverse model. A new state changes C⁻¹
by a matrix of rank one (Sherman and Morrison), which is applied to a square root of it, C⁻¹ = S Sᵀ
(Potter): with v = Sᵀ φ, so that b = ‖v‖² and cannot fall below 0,

    C⁻¹ ← C⁻¹ − (S v)(S v)ᵀ / (1 + b),    which is    S ← S − (S v) vᵀ / (1 + b + √(1 + b))

The root needs half the digits: in float32 C⁻¹ itself loses all of them once ‖φ‖²/λ times the number
of steps exceeds 10⁶.

Defaults are those of the authors' reward-free runs (their Habitat code): 512 features, λ = 0.1,
Adam at 2.5e-4, gradients clipped to a norm of 0.2, the bonus as it is. Their MiniHack runs are

    E3bConfig(feature_dim=1024, encoder_sizes=(1024,), learning_rate=1e-4, max_gradient_norm=40.0,
              normalise=True, largest_reward=1.0)

that is, b divided by its running standard deviation (nothing subtracted), then clipped to 1.

Departures from the paper and its code:
1. The reward of a transition is about the state it leads to. In the authors' code it is about the
   state it leaves, so that b(s_0) is a reward (0 in MiniHack) and the last state of an episode
   earns nothing; here s_0 enters C and earns nothing.
2. Bonuses are noted once, when the episode ends, with φ as it is then. There actors compute them
   while acting, and φ may change in the middle of an episode.
3. φ is trained on the replay batches SAC learns from, one step per update, not on the rollouts of
   PPO or IMPALA.
4. Observations are vectors: an MLP with as many hidden units as features takes the place of a
   residual network, and of continuous actions the inverse model has a squared error in the place
   of a softmax. Its head has one hidden layer of 256 units, as there.
5. The standard deviation, where used, is that of each agent's bonuses, each counted once, when its
   episode ends.
6. Habitat's weight of 0.1 is left out: with no other reward beside it, it is but a unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import (
    InverseModel,
    clipped_adam,
    gradient_step,
    inverse_loss,
)
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class E3bConfig:
    """The authors' settings for reward-free exploration."""

    ridge: float = 0.1  # λ
    feature_dim: int = 512  # of φ; the cost of a step grows with its square
    encoder_sizes: tuple[int, ...] = (512,)  # hidden layers of φ
    head_sizes: tuple[int, ...] = (256,)  # hidden layers of the head that tells the action
    learning_rate: float = 2.5e-4  # Adam
    max_gradient_norm: float = 0.2  # the gradient is scaled down to this
    normalise: bool = False  # divide the bonus by its running standard deviation
    largest_reward: float | None = None  # clip the reward to this; None does not

    def __post_init__(self) -> None:
        positive = ("ridge", "feature_dim", "learning_rate", "max_gradient_norm")
        clip = self.largest_reward
        check_settings(
            self, positive, largest_reward=(clip is None or clip > 0, "above 0, or None")
        )


class E3bState(NamedTuple):
    """What the reward of one agent knows; C⁻¹ begins anew with every episode, so it is not here."""

    inverse_model: InverseModel  # φ and its head
    optimiser: PyTree[Array]
    bonuses: Moments  # of every bonus so far


@dataclass(frozen=True)
class E3bReward:
    """The elliptical episodic bonus, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "e3b"
    config: E3bConfig = field(default_factory=E3bConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("e3b_inverse_loss",)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"elliptical_bonus": ()}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> E3bState:
        config = self.config
        inverse_model = InverseModel.create(
            key,
            spec.observation_dim,
            spec.action_dim,
            config.feature_dim,
            config.encoder_sizes,
            config.head_sizes,
            spec.chooses,
        )
        return E3bState(inverse_model, _optimiser(config).init(inverse_model), empty_moments())

    def observe(self, state: E3bState, episode: Episode) -> tuple[E3bState, dict[str, Array]]:
        """The bonus of every state of the episode but the first."""
        visited = jnp.concatenate([episode.observation[:1], episode.next_observation])  # s_0 … s_T
        features = state.inverse_model.features(visited)
        present = jnp.concatenate([jnp.ones(1, bool), episode.mask])
        # Padding becomes the zero vector, whose bonus is 0 and which leaves C as it is.
        visits = jnp.where(present[:, None], features, 0.0)
        bonus = elliptical_bonuses(visits, self.config.ridge)[1:]
        state = state._replace(bonuses=with_values(state.bonuses, bonus, episode.mask))
        return state, {"elliptical_bonus": bonus}

    def update(
        self, state: E3bState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[E3bState, dict[str, Array]]:
        del key  # nothing here is random
        loss, gradient = jax.value_and_grad(inverse_loss)(
            state.inverse_model, batch.observation, batch.next_observation, batch.action
        )
        model, optimiser = gradient_step(
            _optimiser(self.config), gradient, state.optimiser, state.inverse_model
        )
        return state._replace(inverse_model=model, optimiser=optimiser), {"e3b_inverse_loss": loss}

    def reward(self, state: E3bState, batch: Transitions) -> Float[Array, " B"]:
        reward = batch.notes["elliptical_bonus"]
        if self.config.normalise:
            reward = reward / standard_deviation(state.bonuses)
        largest = self.config.largest_reward
        return reward if largest is None else jnp.minimum(reward, largest)

    def reward_terms(self, state: E3bState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        """The bonus as noted, before it is scaled or clipped."""
        del state
        return {"reward_episodic": batch.notes["elliptical_bonus"]}


def elliptical_bonuses(features: Float[Array, "N F"], ridge: float) -> Float[Array, " N"]:
    """b of each row given the rows before it: φ_nᵀ (λ I + Σ_{i<n} φ_i φ_iᵀ)⁻¹ φ_n."""

    def visit(root: Float[Array, "F F"], feature: Float[Array, " F"]) -> tuple[Array, Array]:
        v = jnp.matmul(feature, root, precision="highest")
        bonus = jnp.sum(v**2)
        shrink = v / (1.0 + bonus + jnp.sqrt(1.0 + bonus))
        return root - jnp.matmul(root, v, precision="highest")[:, None] * shrink[None, :], bonus

    root = jnp.eye(features.shape[1], dtype=features.dtype) / ridge**0.5
    return jax.lax.scan(visit, root, features)[1]


def _optimiser(config: E3bConfig) -> optax.GradientTransformation:
    return clipped_adam(config.learning_rate, config.max_gradient_norm)
