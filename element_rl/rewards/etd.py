"""ETD, episodic novelty through temporal distance (Jiang et al., ICLR 2025, arXiv:2501.15418): a
state is new if it takes long to get there from every earlier state of the episode.

    b(s_{t+1}) = min_{k ≤ t} d(s_k, s_{t+1})

d(x, y) is how many steps the policy takes from x to y, up to a unit: a quasimetric, which need not
be symmetric. It is that of a metric residual network (Liu et al., 2022, arXiv:2208.08133), the sum
of an asymmetric and a symmetric part, of the first and the last half of an embedding φ:

    d(x, y) = max_i max(φ_i(x) − φ_i(y), 0) + ‖φ'(x) − φ'(y)‖

It is learned by telling, of B pairs (x_i, y_i), which y belongs to which x (InfoNCE, both ways):

    f(x, y) = c(y) − d(x, y),      y_i = x's episode, j steps later,  P(j) ∝ γ^(j−1)
    L = −½ E_i[ log e^f(x_i, y_i) / Σ_j e^f(x_i, y_j)  +  log e^f(x_i, y_i) / Σ_j e^f(x_j, y_i) ]

whose optimum has e^f(x, y) ∝ p_γ(y | x) / p(y), where p_γ are the states that the policy meets
after x. c(y) takes up what does not depend on x, so that there

    d(x, y) = log p_γ(y | y) − log p_γ(y | x)

**Where pairs come from.** `update` is given transitions, which do not know their future. So the
reward keeps the observations of its latest episodes, in time order, and how many follow each of
them (`Latest`). A draw is an observation and a step ahead. A note of one future observation beside
each transition was the other way. It would cost as much again as the replay's observations, and it
would fix the one future that a transition is ever seen with.

Departures from the paper and its code:
1. b is noted once, when the episode ends, with φ as it is then, and not computed again as φ learns.
   There it is computed while acting, with a φ that changes between rollouts.
2. Pairs are drawn from the latest 32,768 observations of whole episodes, one batch per update of
   the agent. There from the latest rollout of 16 × 512 steps, four times over, and a future does
   not reach beyond it.
3. 256 pairs in a batch, as many as SAC has transitions, where the code has 512: all x are compared
   with all y, so that twice as many cost four times as much.
4. Observations are vectors: MLPs without layer normalisation, one for φ and one for c, where the
   code has a network of convolutions that both share.
5. The bonus is paid as it is. The code standardises it over a rollout, mean subtracted, for PPO;
   `--recent-scale` divides by a deviation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.inverse_model import clipped_adam, gradient_step
from element_rl.rewards.settings import check_settings

SMALLEST_SQUARE = 1e-8  # added under the root, whose slope at 0 is infinite
NEVER = -1e9  # the logit of a pair that is not there
ROWS_AT_ONCE = (
    32  # of the distances along an episode: all of them would be T² numbers, each F times
)


@dataclass(frozen=True)
class EtdConfig:
    """The authors' settings, in their script for MiniGrid."""

    embedding_dim: int = 64  # of φ: half for the asymmetric part, half for the symmetric one
    encoder_sizes: tuple[int, ...] = (256, 256)  # hidden layers of φ
    potential_sizes: tuple[int, ...] = (256, 256)  # hidden layers of c
    discount: float = 0.99  # γ: the future of a state is 1/(1 − γ) steps away, on average
    num_pairs: int = 256  # B, in one update
    pool_size: int = 32_768  # latest observations that pairs are drawn from; an episode must fit
    learning_rate: float = 3e-4  # Adam
    max_gradient_norm: float = 0.5  # the gradient is scaled down to this

    def __post_init__(self) -> None:
        positive = ("num_pairs", "pool_size", "learning_rate", "max_gradient_norm")
        halves = self.embedding_dim >= 2 and self.embedding_dim % 2 == 0
        check_settings(
            self,
            positive,
            embedding_dim=(halves, "an even number from 2 on"),
            discount=(0.0 <= self.discount < 1.0, "from 0 to below 1"),
        )


class Distance(NamedTuple):
    """All that learns."""

    encoder: MLP  # φ
    potential: MLP  # c


class Latest(NamedTuple):
    """A ring of the observations of the latest episodes, in time order.

    What follows an observation is newer, so it is still there as long as the observation is.
    """

    observation: Float[Array, "N O"]
    following: Int[Array, " N"]  # observations of the same episode after this one
    head: Int[Array, ""]  # where the next one goes
    number: Int[Array, ""]  # of observations in the ring


class EtdState(NamedTuple):
    """What the reward of one agent knows."""

    distance: Distance
    optimiser: PyTree[Array]
    latest: Latest


@dataclass(frozen=True)
class EtdReward:
    """The temporal distance to the nearest earlier state, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "etd"
    config: EtdConfig = field(default_factory=EtdConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("etd_loss", "etd_accuracy")

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"temporal_distance": ()}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> EtdState:
        config, seen = self.config, spec.observation_dim
        if spec.max_episode_steps >= config.pool_size:
            raise ValueError(
                f"Episodes of up to {spec.max_episode_steps} steps do not fit ETD's pool of "
                f"{config.pool_size} observations: raise pool_size."
            )
        encoder_key, potential_key = jax.random.split(key)
        distance = Distance(
            MLP.create(encoder_key, (seen, *config.encoder_sizes, config.embedding_dim)),
            MLP.create(potential_key, (seen, *config.potential_sizes, 1)),
        )
        zero = jnp.zeros((), jnp.int32)
        latest = Latest(
            jnp.zeros((config.pool_size, seen)), jnp.zeros(config.pool_size, jnp.int32), zero, zero
        )
        return EtdState(distance, _optimiser(config).init(distance), latest)

    def observe(self, state: EtdState, episode: Episode) -> tuple[EtdState, dict[str, Array]]:
        """b of every transition, from the states before it; the episode enters the pool."""
        visited = jnp.concatenate([episode.observation[:1], episode.next_observation])  # s_0 … s_T
        embedding = state.distance.encoder(visited)
        nearest = nearest_before(embedding[:-1], embedding[1:])
        state = state._replace(latest=with_episode(state.latest, visited, jnp.sum(episode.mask)))
        return state, {"temporal_distance": jnp.where(episode.mask, nearest, 0.0)}

    def update(
        self, state: EtdState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[EtdState, dict[str, Array]]:
        """One step of φ and c on pairs from the pool; before the first episode has ended there are
        none, and nothing changes."""
        del batch  # its transitions do not know their future
        pairs = drawn_pairs(state.latest, key, self.config.num_pairs, self.config.discount)
        gradient, metrics = jax.grad(contrastive_loss, has_aux=True)(state.distance, *pairs)
        distance, optimiser = gradient_step(
            _optimiser(self.config), gradient, state.optimiser, state.distance
        )
        return state._replace(distance=distance, optimiser=optimiser), metrics

    def reward(self, state: EtdState, batch: Transitions) -> Float[Array, " B"]:
        return batch.notes["temporal_distance"]

    def reward_terms(self, state: EtdState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_episodic": self.reward(state, batch)}


def temporal_distance(
    before: Float[Array, "*batch F"], after: Float[Array, "*batch F"]
) -> Float[Array, "*batch"]:
    """d from one embedding to another: 0 or more, and not the same both ways."""
    half = before.shape[-1] // 2
    forward = jnp.max(jax.nn.relu(before[..., :half] - after[..., :half]), axis=-1)
    squared = jnp.sum((before[..., half:] - after[..., half:]) ** 2, axis=-1)
    return forward + jnp.sqrt(squared + SMALLEST_SQUARE)


@jax.custom_vjp
def all_distances(before: Float[Array, "B F"], after: Float[Array, "C F"]) -> Float[Array, "B C"]:
    """d from each embedding to each other one.

    Its derivative is written out: `jax.grad` of `temporal_distance` over all pairs keeps several
    arrays of B · C · F numbers, and takes several times as long on a CPU. With D the symmetric part
    and g what arrives at a pair,

        ∂/∂φ'_i = Σ_j g_ij (φ'_i − φ'_j) / D_ij,

    and of the asymmetric part only the largest entry has one. The sum is not taken as products of
    matrices: of embeddings that lie close together these lose their digits.
    """
    return _all_distances(before, after)[0]


def _all_distances(
    before: Float[Array, "B F"], after: Float[Array, "C F"]
) -> tuple[Float[Array, "B C"], tuple[Array, ...]]:
    half = before.shape[-1] // 2
    ahead = before[:, None, :half] - after[None, :, :half]
    beside = before[:, None, half:] - after[None, :, half:]
    largest = jnp.max(ahead, axis=-1)
    symmetric = jnp.sqrt(jnp.sum(beside**2, axis=-1) + SMALLEST_SQUARE)
    return jax.nn.relu(largest) + symmetric, (before, after, largest, symmetric)


def _all_distances_gradient(
    kept: tuple[Array, ...], arrived: Float[Array, "B C"]
) -> tuple[Float[Array, "B F"], Float[Array, "C F"]]:
    before, after, largest, symmetric = kept
    half = before.shape[-1] // 2
    is_largest = before[:, None, :half] - after[None, :, :half] == largest[:, :, None]
    of_entry = jnp.where(is_largest, jnp.where(largest > 0, arrived, 0.0)[:, :, None], 0.0)
    beside = before[:, None, half:] - after[None, :, half:]
    of_beside = (arrived / symmetric)[:, :, None] * beside
    to_before = [jnp.sum(of_entry, axis=1), jnp.sum(of_beside, axis=1)]
    to_after = [jnp.sum(of_entry, axis=0), jnp.sum(of_beside, axis=0)]
    return jnp.concatenate(to_before, axis=1), -jnp.concatenate(to_after, axis=1)


all_distances.defvjp(_all_distances, _all_distances_gradient)


def nearest_before(before: Float[Array, "T F"], after: Float[Array, "T F"]) -> Float[Array, " T"]:
    """min_{k ≤ t} d(s_k, s_{t+1}) of every t, for embeddings of s_0 … s_{T−1} and of s_1 … s_T."""
    row = jnp.arange(before.shape[0])

    def nearest(now: tuple[Array, Array]) -> Array:
        place, reached = now
        distances = temporal_distance(before, jnp.broadcast_to(reached, before.shape))
        return jnp.min(jnp.where(row <= place, distances, jnp.inf))

    return jax.lax.map(nearest, (row, after), batch_size=ROWS_AT_ONCE)


def with_episode(latest: Latest, visited: Float[Array, "M O"], length: Int[Array, ""]) -> Latest:
    """The ring with s_0 … s_T of an episode of `length` T, which the first rows of `visited` are;
    an episode without transitions changes nothing."""
    capacity, row = latest.observation.shape[0], jnp.arange(visited.shape[0], dtype=jnp.int32)
    number = jnp.where(length > 0, length + 1, 0).astype(jnp.int32)
    slot = jnp.where(row < number, (latest.head + row) % capacity, capacity)  # the rest is dropped
    return Latest(
        latest.observation.at[slot].set(visited, mode="drop"),
        latest.following.at[slot].set(number - 1 - row, mode="drop"),
        (latest.head + number) % capacity,
        jnp.minimum(latest.number + number, capacity),
    )


def drawn_pairs(
    latest: Latest, key: PRNGKeyArray, number: int, discount: float
) -> tuple[Float[Array, "B O"], Float[Array, "B O"], Bool[Array, " B"]]:
    """Observations drawn uniformly, one of the future of each, and whether there is one: the last
    observation of an episode has none."""
    place_key, ahead_key = jax.random.split(key)
    capacity = latest.observation.shape[0]
    age = jax.random.randint(place_key, (number,), 0, jnp.maximum(latest.number, 1))
    slot = (latest.head - 1 - age) % capacity
    ahead = steps_ahead(jax.random.uniform(ahead_key, (number,)), latest.following[slot], discount)
    later = (slot + ahead) % capacity
    return latest.observation[slot], latest.observation[later], latest.following[slot] > 0


def steps_ahead(
    draw: Float[Array, " B"], following: Int[Array, " B"], discount: float
) -> Int[Array, " B"]:
    """j with P(j) ∝ γ^(j−1) on 1 … `following`, by the inverse of its distribution at a uniform
    draw; 0 where nothing follows."""
    if discount == 0.0:
        return jnp.minimum(1, following)
    cut = 1.0 - (1.0 - discount ** following.astype(jnp.float32)) * draw
    steps = jnp.ceil(jnp.log(cut) / jnp.log(discount)).astype(jnp.int32)
    return jnp.minimum(jnp.maximum(steps, 1), following)


def contrastive_loss(
    model: Distance,
    before: Float[Array, "B O"],
    after: Float[Array, "B O"],
    present: Bool[Array, " B"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """L over the pairs that are there, and in how many of them the right y has the largest f."""
    embedded, reached = model.encoder(before), model.encoder(after)
    distances = all_distances(embedded, reached)
    logits = model.potential(after)[:, 0][None, :] - distances
    logits = jnp.where(present[:, None] & present[None, :], logits, NEVER)
    own = jnp.diagonal(logits)
    missed = 0.5 * (jax.nn.logsumexp(logits, axis=0) + jax.nn.logsumexp(logits, axis=1)) - own
    right = jnp.argmax(logits, axis=1) == jnp.arange(len(own))
    number = jnp.maximum(jnp.sum(present), 1)
    loss, accuracy = (jnp.sum(jnp.where(present, row, 0.0)) / number for row in (missed, right))
    return loss, {"etd_loss": loss, "etd_accuracy": accuracy}


def _optimiser(config: EtdConfig) -> optax.GradientTransformation:
    return clipped_adam(config.learning_rate, config.max_gradient_norm)
