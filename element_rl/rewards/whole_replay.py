"""Neighbours among all states that the agent has visited, for rewards of the k-th neighbour: RE3
and RISE.

Asking a replay of N states for the neighbours of every sampled batch would cost B·N distances an
update. But the distances of a transition change only when states are added. So they are noted with
it and merged with those to the states of every episode that ends (`memory.exact.merge_distances`):
N distances for a step of the environment, exact, whatever is sampled and however often. The states
of an episode are compared with each other and with all before them when it ends; a transition is
never its own neighbour, another one that led to the very same state is, at distance 0.

"All" are the states of ended episodes since training began. Until the replay's ring comes round
those are the states it holds. From then on the states that it has dropped still count.

Vectors that are no states, RE3's own encodings, are noted too: the replay does not keep them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.memory import Memory, exact, make_memory
from element_rl.memory.exact import NO_NODE, ExactMemoryState, merge_distances
from element_rl.memory.in_place import grown
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.sample_pool import KthNeighbourReward, kth_distance

DISTANCES, VECTORS = "neighbour_distances", "compared"  # notes


class WholeState(NamedTuple):
    """What the reward of one agent knows."""

    inner: Any  # the state of the reward, its pool left out
    memory: ExactMemoryState  # the vectors of all ended episodes


@dataclass(frozen=True)
class WholeReplay:
    """A reward of the k-th neighbour among all states, for one agent; populations `vmap` it."""

    inner: KthNeighbourReward

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def config(self) -> Any:
        return self.inner.config

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.inner.metric_names

    @property
    def num_neighbours(self) -> int:
        return self.config.num_neighbours

    @property
    def memory_on_host(self) -> bool:
        return False

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        width = self.inner.noted_width
        return {DISTANCES: (self.num_neighbours,)} | ({} if width is None else {VECTORS: (width,)})

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        """All do."""
        return np.ones(len(step), bool)

    def memory_size(self, state: WholeState) -> Int[Array, "*P"]:
        return state.memory.size

    def why_empty(self, steps: int) -> str:
        """It fills with the first episode that ends."""
        del steps
        return ""

    def empty_memory(self, kind: str, dim: int) -> Memory:
        """Exact, whatever is asked for."""
        del kind
        return make_memory("exact", dim)

    def with_room(self, state: WholeState, number: int) -> WholeState:
        return state._replace(memory=grown(state.memory, number))

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> WholeState:
        inner: Any = self.inner.init(key, spec)
        width = inner.pool.vectors.shape[1]
        # the last episode may end a little after the last step that was planned
        memory = exact.create(spec.total_steps + spec.max_episode_steps, width)
        return WholeState(inner._replace(pool=()), memory)

    def observe(
        self,
        state: WholeState,
        episode: Episode,
        neighbour_distances: Float[Array, "T K"] | None = None,
    ) -> tuple[WholeState, dict[str, Array]]:
        """Distances to all states of earlier episodes; then those of this one are remembered.

        `refresh` merges what they are to each other.
        """
        del neighbour_distances  # of a memory on the host, which this is not
        vectors = self.inner.vectors(state.inner, Transitions(*episode[:6], {}))
        distances = _nearest(state.memory, vectors, self.num_neighbours)
        count = jnp.sum(episode.mask, dtype=jnp.int32)
        memory = exact.insert(state.memory, vectors, jnp.zeros(len(vectors)), count)
        notes = {DISTANCES: distances, VECTORS: vectors}
        return state._replace(memory=memory), {name: notes[name] for name in self.note_shapes()}

    def notes_change(self, before: WholeState, after: WholeState) -> Any:
        """Every episode has states."""
        del before, after
        return jnp.asarray(True)

    def refresh(
        self,
        before: WholeState,
        after: WholeState,
        episode: Episode,
        slots: Int[Array, " T"],
        notes: Mapping[str, Array],
        states: Float[Array, "N D"],
        num_rows: Int[Array, ""],
    ) -> dict[str, Array]:
        """The notes of everything stored, now that an episode's states have been added."""
        del before, after
        vectors = notes.get(VECTORS, states)
        row = jnp.arange(len(slots), dtype=jnp.int32)
        own = jnp.full(len(states), NO_NODE, jnp.int32).at[slots].set(row, mode="drop")
        new = vectors.at[slots].get(mode="fill", fill_value=0.0)
        count = jnp.sum(episode.mask, dtype=jnp.int32)
        merged = merge_distances(notes[DISTANCES], vectors, new, count, own, num_rows)
        return {**notes, DISTANCES: merged}

    def update(
        self, state: WholeState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[WholeState, dict[str, Array]]:
        """Statistics of the distances, where the reward keeps some."""
        del key
        return state._replace(inner=self.inner.counted(state.inner, _distance(batch))), {}

    def reward(self, state: WholeState, batch: Transitions) -> Float[Array, " B"]:
        return self.inner.worth(state.inner, _distance(batch))

    def reward_terms(self, state: WholeState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}


def with_pool(reward: Callable[..., KthNeighbourReward]) -> Callable[..., Reward]:
    """Makes the reward of a config that its `pool` asks for."""

    def make(*config: Any) -> Reward:
        sampled = reward(*config)
        made: Any = WholeReplay(sampled) if sampled.config.pool == "whole" else sampled
        return made

    return make


def _nearest(memory: ExactMemoryState, vectors: Float[Array, "T F"], k: int) -> Float[Array, "T K"]:
    """Distances to the k nearest of all remembered vectors. On a CPU the network that merges notes
    is four times as fast as a search, because it never holds a matrix of distances."""
    if jax.default_backend() != "cpu":
        return exact.query(memory, vectors, k)[0]
    unknown = jnp.full((vectors.shape[0], k), jnp.inf)
    return merge_distances(unknown, vectors, memory.states, memory.size)


def _distance(batch: Transitions) -> Float[Array, " B"]:
    return kth_distance(batch.notes[DISTANCES])
