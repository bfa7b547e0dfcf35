"""NGU, Never Give Up (Badia et al., 2020, arXiv:2002.06038): new within the episode, times how new
over all training.

    r      = r_ep · min(max(α, 1), L)                                   (Eq. 1)
    r_ep   = 0 if s > s_m else 1/s,    s = √(Σ_j K_j) + c               (Eq. 2, Algorithm 1)
    K_j    = ε / (max(d_j²/d_m² − ξ, 0) + ε)                            (Eq. 3, Algorithm 1)
    α      = 1 + (err − mean(err)) / std(err),    err(x) = ‖ĝ(w(x)) − g(w(x))‖²
    w(x)   = clip((x − mean) / std, ±5)                 whitened by all next observations seen

d_1² … d_k² are the squared distances of f(x_{t+1}) to its k nearest among f(x_0) … f(x_t), the
memory of this episode; d_m² is the mean of all such distances so far, these included. Then
f(x_{t+1}) joins the memory, also when x_{t+1} is terminal; the next episode starts with an empty
one. f is learned with an inverse model; g is a fixed random network, which ĝ learns to predict.
Defaults are the paper's Table 6. No loop over time is needed: d_m² after every step is a cumulative
sum.

Readings where the paper is silent:
1. Fewer than k states remembered: the sum is over those there are, and d_m² is updated with as many
   distances.
2. The running average d_m² weighs everything since training began alike. It is one agent's; d_m² =
   0, when every state was the same, makes every K_j 1.
3. "Running" mean and standard deviation of err: of recent batches (`recent_moments`), half the
   weight lost in 100. Over all of training alike (`error_statistics="all"`, as this library had it)
   they remember the errors of an untrained ĝ, next to which nothing is ever new: then the modulator
   is 1. The half-life h follows from how err falls: with the number of updates t it falls about as
   1/t (Hopper and Ant, random actions: docs/methods/ngu.md). The average is of values h/ln 2 old,
   so it is above the present one by 1.44 h/t: by 14 % after 10 h updates, and ever less. And it is
   over some 2.9 h batches, here 37,000 errors, so its noise is no matter. h = 100 follows from
   update 1,000 on, a thousandth of a run of a million steps.
4. Inputs of g and ĝ are whitened and clipped as RND's are, whose error this is;
   `observation_clip=None` leaves them as they are.
5. Kernel ε: the text says 10⁻³, Table 6 says 10⁻⁴; the table is followed.
6. The L2 term is `l2_weight` times the sum of the squared weights, without biases.

Departures from the paper:
1. A bonus only: no mixture of policies with different weights (UVFA), no β, no retrace, no
   recurrent agent.
2. f and ĝ are trained on the replay batches SAC learns from, one step per update, not on sequences
   of R2D2.
3. r_ep is noted once, when the episode ends, with f as it is then, and not computed again as f
   learns. (In the paper actors compute it while acting, with an f that is updated once per
   episode.) α is computed anew for each sampled batch.
4. Observations are vectors: MLPs take the place of convolutions, and of continuous actions the
   inverse model has a squared error in the place of a softmax. f sees the observations as they are.
5. The memory of 30,000 is a ring in the paper; here it must hold the longest episode, and a longer
   one is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from element_rl.distances import squared_distances
from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import (
    InverseModel,
    clipped_adam,
    gradient_step,
    inverse_loss,
)
from element_rl.rewards.recent_moments import (
    RecentMoments,
    empty_recent_moments,
    recent_deviation,
    with_batch,
)
from element_rl.rewards.rnd import whitened
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class NguConfig:
    """The paper's Table 6; widths of layers are ours."""

    num_neighbours: int = 10  # k
    kernel_epsilon: float = 1e-4  # ε
    # ξ: what is nearer than this, after division by d_m², counts as the same state
    cluster_distance: float = 0.008
    pseudo_count: float = 0.001  # c: bounds the episodic reward by 1/c
    # s_m: no reward for states more similar than this; never met while √k + c is below it
    max_similarity: float = 8.0
    max_modulator: float = 5.0  # L
    # mean and deviation of err: of recent batches, or of everything visited since training began
    error_statistics: Literal["recent", "all"] = "recent"
    error_half_life: float = 100.0  # h: batches after which "recent" has forgotten half
    observation_clip: float | None = (
        5.0  # whitened inputs of g are cut to ± this; None: not whitened
    )
    memory_capacity: int = 30_000  # states; the longest episode must fit
    embedding_dim: int = 32  # of f
    encoder_sizes: tuple[int, ...] = (256, 256)  # hidden layers of f
    head_sizes: tuple[int, ...] = (128,)  # hidden layers of the head that tells the action
    rnd_sizes: tuple[int, ...] = (256, 256)  # hidden layers of g and of ĝ
    rnd_output_dim: int = 128  # of g and ĝ
    learning_rate: float = 5e-4  # Adam, for f and ĝ
    adam_epsilon: float = 1e-4
    max_gradient_norm: float = 40.0  # each network's gradient is scaled down to this
    l2_weight: float = 1e-5  # of the inverse model

    def __post_init__(self) -> None:
        clip = self.observation_clip
        check_settings(
            self,
            _POSITIVE,
            cluster_distance=(self.cluster_distance >= 0, "0 or more"),
            l2_weight=(self.l2_weight >= 0, "0 or more"),
            max_modulator=(self.max_modulator >= 1, "1 or more"),
            observation_clip=(clip is None or clip > 0, "above 0, or None"),
        )


_POSITIVE = (
    *("num_neighbours", "kernel_epsilon", "pseudo_count", "max_similarity", "memory_capacity"),
    *("embedding_dim", "rnd_output_dim", "learning_rate", "adam_epsilon", "max_gradient_norm"),
    "error_half_life",
)


class RunningMean(NamedTuple):
    """The mean of everything seen."""

    number: Float[Array, ""]  # of values
    mean: Float[Array, ""]


class NguState(NamedTuple):
    """What the reward of one agent knows; the episodic memory is empty between episodes, so it is
    not here."""

    inverse_model: InverseModel  # f and its head
    inverse_optimiser: PyTree[Array]
    target: MLP  # g, fixed
    predictor: MLP  # ĝ
    predictor_optimiser: PyTree[Array]
    squared_distances: RunningMean  # d_m²
    errors: RecentMoments | Moments  # of ĝ on recent batches, or on everything visited
    # of all next observations, [O]; () where they are not whitened
    observations: Moments | tuple[()]


@dataclass(frozen=True)
class NguReward:
    """Never Give Up's bonus, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "ngu"
    config: NguConfig = field(default_factory=NguConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        recent = self.config.error_statistics == "recent"  # runs of before have no such column
        return ("ngu_inverse_loss", "ngu_rnd_loss", *(("ngu_modulated",) if recent else ()))

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"episodic_novelty": ()}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> NguState:
        config = self.config
        if spec.max_episode_steps > config.memory_capacity:
            raise ValueError(
                f"Episodes of up to {spec.max_episode_steps} steps do not fit NGU's episodic "
                f"memory of {config.memory_capacity} states: raise memory_capacity."
            )
        inverse_key, target_key, predictor_key = jax.random.split(key, 3)
        sizes = (spec.observation_dim, *config.rnd_sizes, config.rnd_output_dim)
        inverse_model = InverseModel.create(
            inverse_key,
            spec.observation_dim,
            spec.action_dim,
            config.embedding_dim,
            config.encoder_sizes,
            config.head_sizes,
            spec.chooses,
        )
        predictor = MLP.create(predictor_key, sizes)
        recent = config.error_statistics == "recent"
        return NguState(
            inverse_model=inverse_model,
            inverse_optimiser=_optimiser(config).init(inverse_model),
            target=MLP.create(target_key, sizes),
            predictor=predictor,
            predictor_optimiser=_optimiser(config).init(predictor),
            squared_distances=RunningMean(jnp.zeros(()), jnp.zeros(())),
            errors=empty_recent_moments() if recent else empty_moments(),
            observations=() if config.observation_clip is None else empty_moments(sizes[:1]),
        )

    def observe(self, state: NguState, episode: Episode) -> tuple[NguState, dict[str, Array]]:
        """Algorithm 1 for every step of the episode, in time order; its observations enter the
        whitening, and its errors their statistics where these are of everything visited."""
        visited = jnp.concatenate([episode.observation[:1], episode.next_observation])  # x_0 … x_T
        embeddings = state.inverse_model.features(visited)
        novelty, seen = episodic_novelty(
            embeddings[:-1], embeddings[1:], episode.mask, state.squared_distances, self.config
        )
        state = state._replace(squared_distances=seen)
        if isinstance(state.observations, Moments):
            whitening = with_values(state.observations, episode.next_observation, episode.mask)
            state = state._replace(observations=whitening)
        if isinstance(state.errors, Moments):
            errors = self.errors(state, episode.next_observation)
            state = state._replace(errors=with_values(state.errors, errors, episode.mask))
        return state, {"episodic_novelty": novelty}

    def update(
        self, state: NguState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[NguState, dict[str, Array]]:
        del key  # nothing here is random
        optimiser = _optimiser(self.config)
        gradient, told = jax.grad(regularised_inverse_loss, has_aux=True)(
            state.inverse_model, batch, self.config.l2_weight
        )
        inverse_model, inverse_optimiser = gradient_step(
            optimiser, gradient, state.inverse_optimiser, state.inverse_model
        )
        inputs = self.inputs(state, batch.next_observation)
        (error, errors), gradient = jax.value_and_grad(mean_prediction_error, has_aux=True)(
            state.predictor, state.target, inputs
        )
        if isinstance(state.errors, RecentMoments):
            counted = with_batch(state.errors, errors, self.config.error_half_life)
            state = state._replace(errors=counted)
        predictor, predictor_optimiser = gradient_step(
            optimiser, gradient, state.predictor_optimiser, state.predictor
        )
        state = state._replace(
            inverse_model=inverse_model,
            inverse_optimiser=inverse_optimiser,
            predictor=predictor,
            predictor_optimiser=predictor_optimiser,
        )
        modulated = jnp.mean(self.modulator(state, batch.next_observation) > 1.0)
        reported = {"ngu_inverse_loss": told, "ngu_rnd_loss": error, "ngu_modulated": modulated}
        return state, {name: reported[name] for name in self.metric_names}

    def reward(self, state: NguState, batch: Transitions) -> Float[Array, " B"]:
        terms = self.reward_terms(state, batch)
        return terms["reward_episodic"] * terms["reward_lifelong"]

    def reward_terms(self, state: NguState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        """r_ep as noted, and the modulator in [1, L]; the reward is their product."""
        return {
            "reward_episodic": batch.notes["episodic_novelty"],
            "reward_lifelong": self.modulator(state, batch.next_observation),
        }

    def modulator(self, state: NguState, observation: Float[Array, "B O"]) -> Float[Array, " B"]:
        """min(max(α, 1), L)."""
        seen = state.errors
        deviation = (
            recent_deviation(seen) if isinstance(seen, RecentMoments) else standard_deviation(seen)
        )
        novelty = 1.0 + (self.errors(state, observation) - seen.mean) / deviation
        return jnp.clip(novelty, 1.0, self.config.max_modulator)

    def errors(self, state: NguState, observation: Float[Array, "B O"]) -> Float[Array, " B"]:
        """err of each observation, as ĝ is now."""
        return prediction_error(state.predictor, state.target, self.inputs(state, observation))

    def inputs(self, state: NguState, observation: Float[Array, "B O"]) -> Float[Array, "B O"]:
        """w(x): what g and ĝ see of an observation."""
        clip = self.config.observation_clip
        if clip is None or not isinstance(state.observations, Moments):
            return observation
        return whitened(observation, state.observations, clip)


def episodic_novelty(
    before: Float[Array, "T F"],
    after: Float[Array, "T F"],
    mask: Bool[Array, " T"],
    seen: RunningMean,
    config: NguConfig,
) -> tuple[Float[Array, " T"], RunningMean]:
    """r_ep of each transition from f(x_t) (`before`) to f(x_{t+1}) (`after`), and d_m² after the
    episode.

    Row t of the distances is that of f(x_{t+1}) to f(x_0) … f(x_t). Padding gets 0 and changes
    nothing.
    """
    row = jnp.arange(mask.shape[0])
    remembered = (row[None, :] <= row[:, None]) & mask[:, None]
    squared = jnp.where(remembered, squared_distances(after, before), jnp.inf)
    nearest = -jax.lax.top_k(-squared, min(config.num_neighbours, mask.shape[0]))[0]
    present = jnp.isfinite(nearest)
    nearest = jnp.where(present, nearest, 0.0)

    number = jnp.cumsum(jnp.sum(present, axis=1).astype(nearest.dtype))
    total = jnp.cumsum(jnp.sum(nearest, axis=1))
    count = seen.number + number
    # The mean moves by the episode's deviation from it: a sum over all training would swallow
    # single distances in float32.
    mean = seen.mean + (total - number * seen.mean) / jnp.maximum(count, 1.0)

    normalised = nearest / jnp.where(mean > 0, mean, 1.0)[:, None]
    clustered = jnp.maximum(normalised - config.cluster_distance, 0.0)
    kernel = jnp.where(present, config.kernel_epsilon / (clustered + config.kernel_epsilon), 0.0)
    similarity = jnp.sqrt(jnp.sum(kernel, axis=1)) + config.pseudo_count
    novelty = jnp.where(mask & (similarity <= config.max_similarity), 1.0 / similarity, 0.0)
    return novelty, RunningMean(count[-1], mean[-1])


def prediction_error(
    predictor: MLP, target: MLP, inputs: Float[Array, "B O"]
) -> Float[Array, " B"]:
    """err = ‖ĝ(w(x)) − g(w(x))‖²."""
    return jnp.sum((predictor(inputs) - target(inputs)) ** 2, axis=-1)


def mean_prediction_error(
    predictor: MLP, target: MLP, inputs: Float[Array, "B O"]
) -> tuple[Float[Array, ""], Float[Array, " B"]]:
    """What ĝ minimises, and what it is the mean of."""
    errors = prediction_error(predictor, target, inputs)
    return jnp.mean(errors), errors


def regularised_inverse_loss(
    model: InverseModel, batch: Transitions, l2_weight: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """What f minimises, and its first part alone: the error of the action told."""
    told = inverse_loss(model, batch.observation, batch.next_observation, batch.action)
    squares = sum(jnp.sum(weight**2) for weight in (*model.encoder.weights, *model.head.weights))
    return told + l2_weight * squares, told


def _optimiser(config: NguConfig) -> optax.GradientTransformation:
    return clipped_adam(config.learning_rate, config.max_gradient_norm, config.adam_epsilon)
