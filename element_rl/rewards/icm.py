"""Intrinsic curiosity: what the agent does and cannot foresee is interesting (Pathak et al., 2017).

https://arxiv.org/abs/1705.05363; the variant for vectors from the URL benchmark,
https://arxiv.org/abs/2110.15191. Features φ are those from which the agent's own action can be
told (`inverse_model.py`), and a forward model says what they will be:

    â      = g(φ(s), φ(s'))              L_I = E ‖â − a‖² / A                inverse model
    φ̂(s') = f(φ(s), a)                   L_F = E ½ ‖φ̂(s') − φ(s')‖²        forward model
    L      = (1 − β) L_I + β L_F,  β = 0.2
    r      = η/2 ‖φ̂(s') − φ(s')‖²                                           form "paper"
    r      = log(1 + η ‖φ̂(s') − φ(s')‖)                                     form "urlb"

Where gradients go, as in the authors' code: L_I trains g and φ; L_F trains f and, through both its
input φ(s) and its target φ(s'), φ as well. L_F alone would let φ collapse to a constant, which is
foreseen perfectly; L_I, which has four times its weight, forbids that, for no action can be told
from a constant. No gradient is stopped. The bonus itself trains nothing.

There is no normaliser: not of observations, not of features, not of the bonus. Its size follows the
scale of φ and falls as the forward model learns; the SAC temperature has to follow it.

Settings: β = 0.2, Adam with learning rate 1e-3 (the paper; its code has 1e-4 and a loss ten times
as large, the URL benchmark 1e-4), 288 features and hidden layers of 256 in g and f (the code). η is
0.01 in the code, against a game score clipped to ±1; here the bonus is all there is, and η = 1 as
in the URL benchmark.

Departures:
1. SAC instead of A3C: all parts learn from replayed batches, one step per SAC step, and the bonus
   of a transition is computed anew whenever it is sampled.
2. Of continuous actions L_I is a squared error over tanh outputs; of a choice it is the paper's
   cross-entropy.
3. Observations are vectors: φ has two layers of 256 ReLU units and a linear one where the original
   has four convolutions with ELU. The URL benchmark has no φ for vectors (it predicts the
   observation itself), hidden layers of 1024, and unsquared distances in both losses with equal
   weights; form "urlb" takes its bonus only.
4. The policy is not trained through this loss: the paper's joint objective −λ E[Σ r] + L is split,
   SAC has its own part.
5. Layers start as `element_rl.mlp` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import InverseModel, gradient_step, inverse_loss
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class IcmConfig:
    """The paper's parameters; see the head of the file for those that had to be chosen."""

    feature_dim: int = 288  # of φ; the forward error is a sum over them
    encoder_sizes: tuple[int, ...] = (256, 256)  # hidden layers of φ
    inverse_sizes: tuple[int, ...] = (256,)  # hidden layers of g, which tells the action
    forward_sizes: tuple[int, ...] = (256,)  # hidden layers of f, which foresees the features
    forward_weight: float = 0.2  # β, share of the forward loss in the joint one
    learning_rate: float = 1e-3  # of all three, Adam
    reward_scale: float = 1.0  # η
    # half the squared error, or the logarithm of 1 + error
    form: Literal["paper", "urlb"] = "paper"

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("feature_dim", "learning_rate", "reward_scale"),
            forward_weight=(0.0 < self.forward_weight < 1.0, "above 0 and below 1"),
        )


class CuriosityModels(NamedTuple):
    """All that learns."""

    inverse: InverseModel  # φ and g
    forward: MLP  # f

    @staticmethod
    def create(
        key: PRNGKeyArray,
        spec: RewardSpec,
        feature_dim: int,
        encoder_sizes: Sequence[int],
        inverse_sizes: Sequence[int],
        forward_sizes: Sequence[int],
    ) -> "CuriosityModels":
        inverse_key, forward_key = jax.random.split(key)
        dims = (spec.observation_dim, spec.action_dim, feature_dim)
        inputs = feature_dim + spec.action_dim
        return CuriosityModels(
            InverseModel.create(inverse_key, *dims, encoder_sizes, inverse_sizes, spec.chooses),
            MLP.create(forward_key, (inputs, *forward_sizes, feature_dim)),
        )


class IcmState(NamedTuple):
    """What the reward of one agent knows."""

    models: CuriosityModels
    optimiser: PyTree[Array]


@dataclass(frozen=True)
class IcmReward:
    """The error of a forward model in learnt features, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "icm"
    config: IcmConfig = field(default_factory=IcmConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("icm_inverse_loss", "icm_forward_loss")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> IcmState:
        config = self.config
        sizes = (config.encoder_sizes, config.inverse_sizes, config.forward_sizes)
        models = CuriosityModels.create(key, spec, config.feature_dim, *sizes)
        return IcmState(models, optax.adam(config.learning_rate).init(models))

    def observe(self, state: IcmState, episode: Episode) -> tuple[IcmState, dict[str, Array]]:
        """Nothing is kept of an episode: all is learnt from batches."""
        return state, {}

    def update(
        self, state: IcmState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[IcmState, dict[str, Array]]:
        """One step of φ, g and f on the joint loss."""
        del key
        gradient, metrics = jax.grad(curiosity_loss, has_aux=True)(
            state.models, batch, self.config.forward_weight
        )
        adam = optax.adam(self.config.learning_rate)
        return IcmState(*gradient_step(adam, gradient, state.optimiser, state.models)), metrics

    def reward(self, state: IcmState, batch: Transitions) -> Float[Array, " B"]:
        squared_error = squared_forward_error(state.models, batch)
        if self.config.form == "paper":
            return 0.5 * self.config.reward_scale * squared_error
        return jnp.log1p(self.config.reward_scale * jnp.sqrt(squared_error))

    def reward_terms(self, state: IcmState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}


def curiosity_loss(
    models: CuriosityModels, batch: Transitions, forward_weight: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """L = (1 − β) L_I + β L_F."""
    inverse = inverse_loss(models.inverse, batch.observation, batch.next_observation, batch.action)
    forward = 0.5 * jnp.mean(squared_forward_error(models, batch))
    loss = (1.0 - forward_weight) * inverse + forward_weight * forward
    return loss, {"icm_inverse_loss": inverse, "icm_forward_loss": forward}


def squared_forward_error(models: CuriosityModels, batch: Transitions) -> Float[Array, " B"]:
    """‖f(φ(s), a) − φ(s')‖², a sum over the features."""
    features = models.inverse.features(batch.observation)
    foreseen = models.forward(jnp.concatenate([features, batch.action], axis=-1))
    return jnp.sum((foreseen - models.inverse.features(batch.next_observation)) ** 2, axis=-1)
