"""METRA, metric-aware abstraction (Park, Rybkin & Levine, ICLR 2024, arXiv:2310.08887): skills that
go as far apart as time allows.

    r(s, z, s') = (φ(s') − φ(s)) · z

z is the skill, a random vector that the policy and its critics are told and that stays for an
episode. φ maps states to a space of as many dimensions, in which a step is never longer than 1:

    maximise  E[(φ(s') − φ(s)) · z]     subject to  ‖φ(s') − φ(s)‖² ≤ 1     for all steps

(the temporal distance between s and s' is 1). So φ lays out the
states such that straight lines are the directions in which most can be reached in a given time,
and a skill is paid for how far it gets in its direction. The constraint is held by dual gradient
descent, with a multiplier λ:

    φ:  minimise  L_φ = −E[(φ(s') − φ(s)) · z + λ min(ε, 1 − ‖φ(s') − φ(s)‖²)]
    λ:  minimise  L_λ = λ E[min(ε, 1 − ‖φ(s') − φ(s)‖²)],  as log λ, as the authors' code does

z is on the unit sphere (Ant, Humanoid: 2 dimensions), or a choice of skills (HalfCheetah: 16, with
`latent_kind="choice"`), zero-centred. It is read from the last columns of the observation before
the action (`envs.latents`).

Departures from the paper and its code:
1. ‖·‖² is a sum over the dimensions, as printed. The code has their mean, so that its steps may be
   √dim as long.
2. φ sees observations shifted and scaled by the mean and deviation of the first 2,000 that were
   observed, which then stay as they are. The code has such numbers prepared, of random actions in
   each environment. They must not move on: φ would change under what is paid for it.
3. φ and λ learn with every update of the agent from the batch the agent learns from, and r is
   computed with the φ after that step, as in the code; there 50 updates follow 8 episodes of 200
   steps. Episodes here are the environment's own, mostly 1,000 steps:
   `--env-options max_episode_steps=200` is theirs.
4. The agent is this library's SAC: theirs has two layers of 1,024, a learning rate of 1e-4, a
   temperature that begins at 0.01, and a target entropy of half the action's dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import Latent, RewardSpec
from element_rl.rewards.inverse_model import gradient_step
from element_rl.rewards.rle import latent_width, parted
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class MetraConfig:
    """The authors' settings for Ant."""

    latent_dim: int = 2  # of z and of φ
    # z is on the unit sphere, or one of `latent_dim` skills
    latent_kind: Literal["sphere", "choice"] = "sphere"
    encoder_sizes: tuple[int, ...] = (1024, 1024)  # hidden layers of φ
    learning_rate: float = 1e-4  # Adam, of φ
    multiplier: float = 30.0  # λ at the beginning
    multiplier_learning_rate: float = 1e-4  # Adam, of log λ
    slack: float = 1e-3  # ε: what a step is shorter than 1 counts up to this
    warm_up: int = 2_000  # transitions whose observations decide what φ's inputs are measured in

    def __post_init__(self) -> None:
        positive = ("latent_dim", "learning_rate", "multiplier", "multiplier_learning_rate")
        several = self.latent_kind == "sphere" or self.latent_dim >= 2
        check_settings(
            self,
            (*positive, "slack"),
            warm_up=(self.warm_up >= 0, "0 or more"),
            latent_dim=(self.latent_dim >= 1 and several, "at least 1, of skills at least 2"),
        )


class MetraState(NamedTuple):
    """What the reward of one agent knows."""

    encoder: MLP  # φ
    optimiser: PyTree[Array]
    log_multiplier: Float[Array, ""]  # log λ
    multiplier_optimiser: PyTree[Array]
    observations: Moments  # of the first next observations, without z


@dataclass(frozen=True)
class MetraReward:
    """How far a step gets along the skill, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "metra"
    config: MetraConfig = field(default_factory=MetraConfig)

    @property
    def latent(self) -> Latent:
        return Latent(self.config.latent_dim, self.config.latent_kind)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("metra_objective", "metra_step_length", "metra_multiplier")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> MetraState:
        config = self.config
        seen = latent_width(spec, config.latent_dim)
        encoder = MLP.create(key, (seen, *config.encoder_sizes, config.latent_dim))
        multiplier = jnp.asarray(log(config.multiplier))
        return MetraState(
            encoder,
            optax.adam(config.learning_rate).init(encoder),
            multiplier,
            optax.adam(config.multiplier_learning_rate).init(multiplier),
            empty_moments((seen,)),
        )

    def observe(self, state: MetraState, episode: Episode) -> tuple[MetraState, dict[str, Array]]:
        """The first observations tell what φ's inputs are measured in."""
        seen, _ = parted(episode.next_observation, self.config.latent_dim)
        before = state.observations
        open_ = episode.mask & (before.number < self.config.warm_up)
        return state._replace(observations=with_values(before, seen, open_)), {}

    def update(
        self, state: MetraState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[MetraState, dict[str, Array]]:
        """One step of φ, and one of λ with the steps' lengths before it."""
        del key  # nothing here is random
        config = self.config
        steps = self.steps_of(state, batch)
        gradient, (met, lengths) = jax.grad(encoder_loss, has_aux=True)(
            state.encoder, *steps, jnp.exp(state.log_multiplier), config.slack
        )
        encoder, optimiser = gradient_step(
            optax.adam(config.learning_rate), gradient, state.optimiser, state.encoder
        )
        slack = jnp.mean(constraint(lengths**2, config.slack))  # the slope of log λ · slack
        multiplier, multiplier_optimiser = gradient_step(
            optax.adam(config.multiplier_learning_rate),
            slack,
            state.multiplier_optimiser,
            state.log_multiplier,
        )
        reported = (met, jnp.mean(lengths), jnp.exp(state.log_multiplier))
        state = MetraState(encoder, optimiser, multiplier, multiplier_optimiser, state.observations)
        return state, dict(zip(self.metric_names, reported, strict=True))

    def reward(self, state: MetraState, batch: Transitions) -> Float[Array, " B"]:
        before, after, latent = self.steps_of(state, batch)
        return along_latent(state.encoder, before, after, latent)

    def reward_terms(self, state: MetraState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_episodic": self.reward(state, batch)}

    def steps_of(
        self, state: MetraState, batch: Transitions
    ) -> tuple[Float[Array, "B O"], Float[Array, "B O"], Float[Array, "B Z"]]:
        """s and s' as φ sees them, and z."""
        moments = state.observations
        mean, deviation = moments.mean[None], standard_deviation(moments)[None]
        before, latent = parted(batch.observation, self.config.latent_dim)
        after, _ = parted(batch.next_observation, self.config.latent_dim)
        return (before - mean) / deviation, (after - mean) / deviation, latent


def along_latent(
    encoder: MLP,
    before: Float[Array, "B O"],
    after: Float[Array, "B O"],
    latent: Float[Array, "B Z"],
) -> Float[Array, " B"]:
    """(φ(s') − φ(s)) · z."""
    return jnp.sum((encoder(after) - encoder(before)) * latent, axis=-1)


def constraint(squared_length: Float[Array, " B"], slack: float) -> Float[Array, " B"]:
    """min(ε, 1 − ‖φ(s') − φ(s)‖²): below 0 where a step is too long."""
    return jnp.minimum(slack, 1.0 - squared_length)


def encoder_loss(
    encoder: MLP,
    before: Float[Array, "B O"],
    after: Float[Array, "B O"],
    latent: Float[Array, "B Z"],
    multiplier: Float[Array, ""],
    slack: float,
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, " B"]]]:
    """L_φ; and the objective alone, and the lengths of the steps."""
    change = encoder(after) - encoder(before)
    objective = jnp.mean(jnp.sum(change * latent, axis=-1))
    squared_length = jnp.sum(change**2, axis=-1)
    held = jnp.mean(constraint(squared_length, slack))
    lengths = jax.lax.stop_gradient(jnp.sqrt(squared_length))
    return -(objective + multiplier * held), (objective, lengths)
