"""Remembered states that know the entropy of their episode: what on-policy ELEMENT asks.

Nodes are plain arrays, so a checkpoint of them is complete. The index that finds neighbours among
them (`element_rl.memory`) is made of these arrays alone, in their order and in pieces of fixed
size, and the few beyond the last whole piece are compared directly. So after a restart the index is
made again, once, and gives the same neighbours as the one that had grown.

Nodes that are equal, or nearly, are one *place* of the index, with their number and their mean
entropy. Games show the same frame again and again: of 24,000 frames of a random walk through
Rooms-v0 317 are different. An hnsw index cannot stand that: it links equal states to each other and
to nothing else, and finds neighbours several times too far. The k nearest nodes are read off the k
nearest places, so nothing is lost but the difference of nodes that are nearly equal.
"""

import hashlib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import faiss
import jax
import numpy as np
from jaxtyping import Float, Int

from element_rl.memory import Memory, make_memory
from element_rl.rewards.element_config import ElementConfig

PIECE = 64  # places that enter an index together
LARGEST_EXACT = 4_096  # on a CPU: searching so many for a rollout of 300 takes 16 ms, with hnsw 5
# settings of hnsw: places a query keeps in view, since pieces are too alike for it to choose by
# itself; and twice the usual links, since all episodes begin in the same crowd of places
HNSW = {"search_candidates": 128, "num_links": 32}


class Nodes(NamedTuple):
    """Remembered states in the order they came, each with the entropy of its episode; rows from
    `size` on are room."""

    states: Float[np.ndarray, "N D"]
    entropies: Float[np.ndarray, " N"]
    size: Int[np.ndarray, ""]


class Neighbours(NamedTuple):
    """The k nearest nodes of each state."""

    distances: Float[np.ndarray, "Q K"]  # ascending; inf where there are fewer
    entropies: Float[np.ndarray, " Q"]  # their mean; NaN where there is none


class NodeStore:
    """Arrays of nodes that grow, and their nearest neighbours.

    Rows are only ever added, so older states share the arrays of newer ones and still mean what
    they meant.
    """

    def __init__(
        self, config: ElementConfig, dim: int, capacity: int, merge_distance: float = 0.0
    ) -> None:
        self._config, self._dim = config, dim
        self._capacity, self._merge_distance = capacity, merge_distance
        self._indexes: dict[int, _Index] = {}

    def create(self) -> Nodes:
        """Room for the nodes of a whole run, so that all checkpoints of it have the same shapes."""
        states = np.zeros((self._capacity, self._dim), np.float32)
        return Nodes(states, np.zeros(self._capacity, np.float32), np.zeros((), np.int64))

    def append(
        self, nodes: Nodes, states: Float[np.ndarray, "M D"], entropies: Float[np.ndarray, " M"]
    ) -> Nodes:
        """The nodes with more of them; what has no room any more is left out."""
        first = int(nodes.size)
        count = min(len(states), self._capacity - first)
        if count <= 0:
            return nodes
        # another state went on from here: leave its rows alone
        if first != self._index(nodes).written:
            nodes = Nodes(nodes.states.copy(), nodes.entropies.copy(), nodes.size)
        nodes.states[first : first + count] = states[:count]
        nodes.entropies[first : first + count] = entropies[:count]
        self._index(nodes).written = first + count
        return nodes._replace(size=np.asarray(first + count, np.int64))

    def query(self, nodes: Nodes, states: Float[np.ndarray, "Q D"], k: int) -> Neighbours:
        """The k nearest nodes and what they know."""
        index = self._index(nodes)
        if index.rows > int(nodes.size):  # asked about the past
            index.places = _Places(self._new_memory())
            index.rows = 0
        with _one_thread():
            index.places.add(nodes, index.rows, self._merge_distance)
            index.rows = int(nodes.size)
            distances, ids = index.places.nearest(states, k)
        return _nearest_nodes(distances, ids, index.places, k)

    def _index(self, nodes: Nodes) -> "_Index":
        """The index of these arrays; a new one for arrays that were made elsewhere, by restoring a
        checkpoint for instance."""
        self._indexes = {
            key: index for key, index in self._indexes.items() if index.array() is not None
        }
        found = self._indexes.get(id(nodes.states))
        if found is None:
            found = _Index(weakref.ref(nodes.states), _Places(self._new_memory()), int(nodes.size))
            self._indexes[id(nodes.states)] = found
        return found

    def _new_memory(self) -> Memory:
        kind = self._config.memory
        # chosen once: a change on the way would depend on what had entered by then
        if kind == "auto":
            few = self._capacity <= LARGEST_EXACT or jax.default_backend() != "cpu"
            kind = "exact" if few else "hnsw"
        settings: dict[str, Any] = {"graph": {"config": self._config.graph}, "hnsw": HNSW}
        return make_memory(kind, self._dim, max(self._capacity, 1), **settings.get(kind, {}))


@dataclass
class _Index:
    """What is known of one array of nodes."""

    array: "weakref.ReferenceType[np.ndarray]"
    places: "_Places"
    written: int  # rows in use; a state that says fewer is an older one
    rows: int = 0  # of them that are in the places


@dataclass
class _Places:
    """Nodes without their repetitions."""

    memory: Memory
    # those that wait to become a whole piece
    states: list[np.ndarray] = field(default_factory=list)
    number: dict[bytes, int] = field(default_factory=dict)  # of the place a node belongs to
    visits: list[int] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)  # mean over the visits

    def add(self, nodes: Nodes, first: int, merge_distance: float) -> None:
        """The rows from `first` on, one after the other."""
        rows = slice(first, int(nodes.size))
        states = nodes.states[rows]
        keys = (
            states
            if merge_distance == 0
            else np.rint(states.astype(np.float64) / merge_distance).astype(np.int64)
        )
        for state, key, entropy in zip(states, keys, nodes.entropies[rows].tolist(), strict=True):
            place = self.number.setdefault(
                hashlib.blake2b(key.tobytes(), digest_size=16).digest(), len(self.visits)
            )
            if place == len(self.visits):
                self.visits.append(0)
                self.entropy.append(0.0)
                self.states.append(state)
            self.visits[place] += 1
            self.entropy[place] += (entropy - self.entropy[place]) / self.visits[place]
            if len(self.states) == PIECE:
                self.memory.insert(np.stack(self.states))
                self.states.clear()

    def nearest(
        self, states: Float[np.ndarray, "Q D"], k: int
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        """Distances, ascending, and numbers of the k nearest places; inf and −1 where there are
        fewer."""
        distances, ids = self.memory.query(states, k)
        if not self.states:
            return distances, ids
        waiting = np.stack(self.states)
        own = np.sqrt(np.sum((states[:, None, :] - waiting[None, :, :]) ** 2, axis=2))
        numbers = np.arange(len(self.memory), len(self.visits), dtype=ids.dtype)
        together = np.concatenate([distances, own], axis=1)
        together_ids = np.concatenate([ids, np.broadcast_to(numbers, own.shape)], axis=1)
        order = np.argsort(together, axis=1, kind="stable")[:, :k]
        nearest, numbers = (
            np.take_along_axis(part, order, axis=1) for part in (together, together_ids)
        )
        return nearest, numbers


def _nearest_nodes(
    distances: Float[np.ndarray, "Q K"], ids: Int[np.ndarray, "Q K"], places: _Places, k: int
) -> Neighbours:
    """A place that was visited n times counts as n nodes, until there are k. Of more visits than
    that the mean counts."""
    if not places.visits:
        return Neighbours(distances, np.full(len(distances), np.nan, np.float32))
    found, place = ids >= 0, np.maximum(ids, 0)
    visits, entropies = (
        np.asarray([known[i] for i in place.ravel()]).reshape(place.shape)
        for known in (places.visits, places.entropy)
    )
    visits = np.where(found, visits, 0)
    until = np.cumsum(visits, axis=1)
    counted = np.clip(k - (until - visits), 0, visits)
    mean = np.sum(counted * entropies, axis=1) / np.maximum(np.sum(counted, axis=1), 1)
    # The m-th nearest node is in the first place up to which more than m nodes were met.
    source = np.sum(until[:, None, :] <= np.arange(k)[None, :, None], axis=2)
    padded = np.concatenate([distances, np.full((len(distances), 1), np.inf, np.float32)], axis=1)
    nodes = np.take_along_axis(padded, np.minimum(source, distances.shape[1]), axis=1)
    return Neighbours(nodes, np.where(found[:, 0], mean, np.nan).astype(np.float32))


@contextmanager
def _one_thread() -> Iterator[None]:
    """FAISS in one thread: the environments of an on-policy agent want the other cores, and threads
    that wait for each other on busy cores take ten times as long as one."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
