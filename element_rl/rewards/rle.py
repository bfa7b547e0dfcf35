"""RLE, random latent exploration (Mahankali et al., ICML 2024, arXiv:2407.13755): a random task for
every episode.

    F(s_{t+1}, z) = φ(s_{t+1}) · z

z is a random vector that the policy and its critics are told, and that is drawn anew with every
episode; φ is a random network. So the policy learns to go wherever it may be sent, and going where
z says is exploring. Nothing is learned here, and nothing is remembered.

    w(s)  = clip((s − mean) / std, ±5)           over all observations so far
    φ̂(s) = (φ(w(s)) − mean) / std               over all features so far
    r     = φ̂(s_{t+1}) · z / ‖φ̂(s_{t+1})‖       form "cosine": within [−1, 1] for z on the sphere
    r     = φ(w(s_{t+1})) · z                    form "product"

"cosine" is what the authors' code has for Atari, "product" what it has for Isaac Gym. z is read
from the last columns of the observation before the action (`envs.latents`): it is what the action
was chosen with, also where z changes in the middle of an episode.

Departures from the paper and its code:
1. φ is fixed. There its hidden layers follow those of the value network, slowly (a share of 0.005
   per step of PPO). A reward here knows nothing of the agent that learns from it.
2. z has 8 dimensions and stays for an episode. The code has 16 on Atari, drawn anew after 500 steps
   too, and 32 (normal, not on the sphere) on Isaac Gym, drawn anew after 16. Here `latent_every`
   draws it anew; the return then goes on under the new z, where the code cuts it off.
3. r is all that is paid, and paid as it is. The code divides it by the deviation of its discounted
   return and adds it to the task's reward with a weight of 0.01 (Atari) or 0.1 (Isaac Gym):
   `--extrinsic-weight` and `--recent-scale`.
4. φ sees whitened observations and has ReLU units, as RND here; the code has tanh units for
   vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import Latent, RewardSpec
from element_rl.rewards.rnd import whitened
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings

SMALLEST_NORM = 1e-6  # of features: all of them at their mean point nowhere


@dataclass(frozen=True)
class RleConfig:
    """Settings; see the head of the file for those of the authors' code."""

    latent_dim: int = 8  # of z and of φ
    latent_every: int | None = None  # steps until z is drawn anew; None: with every episode
    feature_sizes: tuple[int, ...] = (512, 512, 256)  # hidden layers of φ
    # the cosine between standardised features and z, or the plain product
    form: Literal["cosine", "product"] = "cosine"
    observation_clip: float = 5.0  # whitened observations are cut to ± this

    def __post_init__(self) -> None:
        every = self.latent_every
        check_settings(
            self,
            ("latent_dim", "observation_clip"),
            latent_every=(every is None or every > 0, "at least 1, or None"),
        )


class RleState(NamedTuple):
    """What the reward of one agent knows."""

    network: MLP  # φ, never changes
    observations: Moments  # of all next observations, without z
    features: Moments  # of φ on them, as they were whitened then


@dataclass(frozen=True)
class RleReward:
    """Random features along z, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "rle"
    config: RleConfig = field(default_factory=RleConfig)

    @property
    def latent(self) -> Latent:
        return Latent(self.config.latent_dim, "sphere", self.config.latent_every)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ()

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> RleState:
        config = self.config
        seen = latent_width(spec, config.latent_dim)
        return RleState(
            MLP.create(key, (seen, *config.feature_sizes, config.latent_dim)),
            empty_moments((seen,)),
            empty_moments((config.latent_dim,)),
        )

    def observe(self, state: RleState, episode: Episode) -> tuple[RleState, dict[str, Array]]:
        """The episode enters the whitening, then its features their moments."""
        seen, _ = parted(episode.next_observation, self.config.latent_dim)
        state = state._replace(observations=with_values(state.observations, seen, episode.mask))
        features = with_values(state.features, self.features(state, seen), episode.mask)
        return state._replace(features=features), {}

    def update(
        self, state: RleState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[RleState, dict[str, Array]]:
        """Nothing is learned."""
        del batch, key
        return state, {}

    def reward(self, state: RleState, batch: Transitions) -> Float[Array, " B"]:
        _, latent = parted(batch.observation, self.config.latent_dim)
        seen, _ = parted(batch.next_observation, self.config.latent_dim)
        features = self.features(state, seen)
        if self.config.form == "product":
            return jnp.sum(features * latent, axis=-1)
        moments = state.features
        return cosine((features - moments.mean[None]) / standard_deviation(moments)[None], latent)

    def reward_terms(self, state: RleState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_episodic": self.reward(state, batch)}

    def features(self, state: RleState, seen: Float[Array, "B O"]) -> Float[Array, "B Z"]:
        """φ(w(s)), not yet standardised."""
        return state.network(whitened(seen, state.observations, self.config.observation_clip))


def cosine(features: Float[Array, "B Z"], latent: Float[Array, "B Z"]) -> Float[Array, " B"]:
    """features · z / ‖features‖; 0 where there are none."""
    norm = jnp.linalg.norm(features, axis=-1)
    return jnp.sum(features * latent, axis=-1) / jnp.maximum(norm, SMALLEST_NORM)


def parted(
    observation: Float[Array, "B S"], latent_dim: int
) -> tuple[Float[Array, "B O"], Float[Array, "B Z"]]:
    """What an observation says of the world, and z."""
    width = observation.shape[-1] - latent_dim
    return observation[..., :width], observation[..., width:]


def latent_width(spec: RewardSpec, latent_dim: int) -> int:
    """Columns of the observation that are not z; a ValueError where none are left."""
    if spec.observation_dim <= latent_dim:
        raise ValueError(
            f"Observations of {spec.observation_dim} numbers cannot end with a latent of "
            f"{latent_dim}: wrap the environment with element_rl.envs.latents.LatentObservation."
        )
    return spec.observation_dim - latent_dim
