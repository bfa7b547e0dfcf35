"""The latest transitions drawn from the replay, for rewards that ask how far a state is from others
like it.

RE3, RISE and APT compare a state with the states of the replay. A reward sees a batch only, but
batches are uniform draws from the replay, so the last few dozen of them together are a larger
uniform draw: the pool. It is a queue, newest last. Distances within a sample are not those within
the whole, nor do they put states in the same order (docs/methods/re3.md); `whole_replay` compares
with every state there was.

A replay holds every transition once and is drawn from with replacement. A transition must not be
its own neighbour, neither through its own place in the pool nor through another draw of it, nor may
a second draw make another transition count twice: with a young replay of 1,000 transitions and a
pool of 4,096 every state would have three neighbours at distance 0. So each transition has an
identity, a hash of all its bits. A new draw takes the place of an older draw of the same
transition, and a query ignores its own. What then remains in the pool is a draw without
replacement. Another transition that ended in the very same state, an agent that pushes against a
wall, is a neighbour at distance 0, as it is in the replay.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt

from element_rl.distances import UNROLLED_DIMENSIONS, squared_distances
from element_rl.memory.exact import k_smallest
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec

GOLDEN = 0x9E3779B9  # 2³² over the golden ratio: its multiples are spread evenly


class Pool(NamedTuple):
    """The last N draws, newest last."""

    vectors: Float[Array, "N F"]
    identity: UInt[Array, " N"]
    # False where nothing was written yet, or where the same transition was drawn again later
    present: Bool[Array, " N"]


class PoolReward(ABC):
    """What rewards that compare a state with the pool have in common; their state has a `pool`.

    A reward says which vectors of a transition are compared, and what the distances are worth.
    """

    config: Any  # with `num_neighbours`
    unread: ClassVar[str] = "observation"  # a part of transitions that the reward does not look at

    @abstractmethod
    def vectors(self, state: Any, batch: Transitions) -> Float[Array, "B F"]:
        """What of the transitions enters the pool."""

    @abstractmethod
    def reward(self, state: Any, batch: Transitions) -> Float[Array, " B"]: ...

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ()

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def observe(self, state: Any, episode: Episode) -> tuple[Any, dict[str, Array]]:
        return state, {}

    def update(
        self, state: Any, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        """The batch enters the pool."""
        del key
        return self.with_transitions(state, batch), {}

    def with_transitions(self, state: Any, batch: Transitions) -> Any:
        """The state with these transitions in the pool, and nothing learned from them."""
        identity = transition_identity(batch)
        return state._replace(pool=with_batch(state.pool, self.vectors(state, batch), identity))

    def told_apart(self, batch: Transitions, number: Float[Array, "B 2"]) -> Transitions:
        """The batch with a number in every transition, where the reward does not look."""
        changed: dict[str, Any] = {self.unread: number}
        return batch._replace(**changed)

    def reward_terms(self, state: Any, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}

    def distances(self, state: Any, batch: Transitions) -> Float[Array, "B K"]:
        """Of the transitions to their nearest neighbours in the pool."""
        queries, identity = self.vectors(state, batch), transition_identity(batch)
        return neighbour_distances(queries, identity, state.pool, self.config.num_neighbours)


class KthNeighbourReward(PoolReward):
    """Rewards for the distance d to the k-th neighbour, in vectors that never change.

    So neighbours may also be looked for among all states (`whole_replay`). The config has a `pool`.
    """

    name: ClassVar[str]

    @abstractmethod
    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> Any: ...

    @property
    def noted_width(self) -> int | None:
        """Of the vectors, where they are no states and must be noted to be found again."""
        return None

    @abstractmethod
    def worth(self, state: Any, distance: Float[Array, " B"]) -> Float[Array, " B"]:
        """The reward for d."""

    def counted(self, state: Any, distance: Float[Array, " B"]) -> Any:
        """The state that has also seen these d, for rewards that keep statistics of them."""
        del distance
        return state

    def reward(self, state: Any, batch: Transitions) -> Float[Array, " B"]:
        return self.worth(state, self.distance(state, batch))

    def distance(self, state: Any, batch: Transitions) -> Float[Array, " B"]:
        """d within the pool."""
        return kth_distance(self.distances(state, batch))


def check_pool(config: Any) -> tuple[bool, str]:
    """The rule for `num_neighbours` beside `pool_size`; for `check_settings`."""
    valid = 0 < config.num_neighbours < config.pool_size
    return valid, f"at least 1 and fewer than the pool's {config.pool_size}"


def empty_pool(size: int, width: int) -> Pool:
    """Room for `size` vectors of `width` numbers."""
    return Pool(jnp.zeros((size, width)), jnp.zeros(size, jnp.uint32), jnp.zeros(size, bool))


def with_batch(pool: Pool, vectors: Float[Array, "B F"], identity: UInt[Array, " B"]) -> Pool:
    """The pool with a batch put in and as many of its oldest draws dropped."""
    size = pool.vectors.shape[0]
    vectors, identity = vectors[-size:], identity[-size:]
    row = jnp.arange(identity.shape[0])
    same = identity[:, None] == identity[None, :]
    drawn_later = jnp.any(same & (row[:, None] < row[None, :]), axis=1)
    drawn_again = jnp.any(pool.identity[:, None] == identity[None, :], axis=1)
    return Pool(
        jnp.concatenate([pool.vectors, vectors])[-size:],
        jnp.concatenate([pool.identity, identity])[-size:],
        jnp.concatenate([pool.present & ~drawn_again, ~drawn_later])[-size:],
    )


def transition_identity(batch: Transitions) -> UInt[Array, " B"]:
    """32 bits that two transitions share only if they are the same, or once in four thousand
    million pairs."""
    numbers = jnp.concatenate(
        [batch.observation, batch.action, batch.next_observation, batch.state], axis=1
    )
    bits = jax.lax.bitcast_convert_type(numbers.astype(jnp.float32), jnp.uint32)
    # On the host: computed on the device it would leave the training loop, once per call, and the
    # compiler could no longer tell that `reward` and `reward_terms` ask for the same distances.
    column = _mixed(np.arange(1, bits.shape[1] + 1, dtype=np.uint32) * np.uint32(GOLDEN))
    return _mixed(jnp.sum(_mixed(bits ^ column[None]), axis=1, dtype=jnp.uint32))


def neighbour_distances(
    queries: Float[Array, "B F"], identity: UInt[Array, " B"], pool: Pool, k: int
) -> Float[Array, "B K"]:
    """Distances, ascending, to the k nearest other transitions in the pool; inf where there are
    fewer.

    Up to 32 dimensions all differences are taken. Wider vectors are chosen by a matrix product,
    which loses digits where two are close; the distances to those chosen are then taken from
    differences again.
    """
    absent = ~pool.present[None, :] | (identity[:, None] == pool.identity[None, :])
    if queries.shape[1] <= UNROLLED_DIMENSIONS:
        squared = jnp.where(absent, jnp.inf, squared_distances(queries, pool.vectors))
        return jnp.sqrt(k_smallest(squared, k)[0])
    roughly = jnp.where(absent, jnp.inf, _expanded_squared_distances(queries, pool.vectors))
    rough, chosen = k_smallest(roughly, k)
    squared = jnp.sum((queries[:, None, :] - pool.vectors[chosen]) ** 2, axis=2)
    return jnp.sqrt(jnp.sort(jnp.where(jnp.isinf(rough), jnp.inf, squared), axis=1))


def kth_distance(neighbour_distances: Float[Array, "B K"]) -> Float[Array, " B"]:
    """The distance to the k-th neighbour; to the farthest there is where there are fewer, 0 where
    there is none."""
    return jnp.max(jnp.where(jnp.isinf(neighbour_distances), 0.0, neighbour_distances), axis=1)


def mean_distance(neighbour_distances: Float[Array, "B K"]) -> Float[Array, " B"]:
    """The mean distance to the neighbours there are; 0 where there is none."""
    known = ~jnp.isinf(neighbour_distances)
    total = jnp.sum(jnp.where(known, neighbour_distances, 0.0), axis=1)
    return total / jnp.maximum(jnp.sum(known, axis=1), 1)


def _mixed(bits: Any) -> Any:
    """Every bit out depends on every bit in: shifts fold the high bits down, odd products carry the
    low bits up."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def _expanded_squared_distances(
    queries: Float[Array, "B F"], points: Float[Array, "N F"]
) -> Float[Array, "B N"]:
    """‖x‖² + ‖y‖² − 2x·y about the queries' mean: the shorter the vectors, the less cancels."""
    centre = jnp.mean(queries, axis=0, keepdims=True)
    queries, points = queries - centre, points - centre
    product = jnp.matmul(queries, points.T, precision="highest")
    squared = (
        jnp.sum(queries**2, axis=1)[:, None] + jnp.sum(points**2, axis=1)[None, :] - 2.0 * product
    )
    return jnp.maximum(squared, 0.0)
