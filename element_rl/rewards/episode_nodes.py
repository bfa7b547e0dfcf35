"""Remembered states that know the entropy of their episode: what on-policy ELEMENT asks.

Nodes are plain arrays, so a checkpoint of them is complete. The index that finds neighbours among them (`element_rl.memory`) is
made of these arrays alone, in pieces of fixed size, and the few nodes beyond the last whole piece are compared directly. So
after a restart the index is made again, once, and gives the same neighbours as the one that had grown.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import faiss
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from element_rl.memory import Memory, make_memory
from element_rl.memory.auto import LARGEST_EXACT_ON_CPU
from element_rl.rewards.element import ElementConfig

PIECE = 64  # nodes that enter an index together


class Nodes(NamedTuple):
    """Remembered states in the order they came, each with the entropy of its episode; rows from `size` on are room."""

    states: Float[np.ndarray, "N D"]
    entropies: Float[np.ndarray, " N"]
    size: Int[np.ndarray, ""]


class NodeStore:
    """Arrays of nodes that grow, and their nearest neighbours.

    Rows are only ever added, so older states share the arrays of newer ones and still mean what they meant.
    """

    def __init__(self, config: ElementConfig, dim: int, capacity: int) -> None:
        self._config, self._dim, self._capacity = config, dim, capacity
        self._indexes: dict[int, _Index] = {}

    def create(self) -> Nodes:
        """Room for the nodes of a whole run, so that all checkpoints of it have the same shapes."""
        shape = (self._capacity, self._dim)
        return Nodes(np.zeros(shape, np.float32), np.zeros(self._capacity, np.float32), np.zeros((), np.int64))

    def append(self, nodes: Nodes, states: Float[np.ndarray, "M D"], entropies: Float[np.ndarray, " M"]) -> Nodes:
        """The nodes with more of them; what has no room any more is left out."""
        first = int(nodes.size)
        count = min(len(states), self._capacity - first)
        if count <= 0:
            return nodes
        if first != self._index(nodes).written:  # another state went on from here: leave its rows alone
            nodes = Nodes(nodes.states.copy(), nodes.entropies.copy(), nodes.size)
        nodes.states[first : first + count] = states[:count]
        nodes.entropies[first : first + count] = entropies[:count]
        self._index(nodes).written = first + count
        return nodes._replace(size=np.asarray(first + count, np.int64))

    def query(
        self, nodes: Nodes, states: Float[np.ndarray, "Q D"], k: int
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        """Distances, ascending, and rows of the k nearest nodes; inf and −1 where there are fewer."""
        index, size = self._index(nodes), int(nodes.size)
        whole = size // PIECE * PIECE
        if len(index.memory) > whole:
            index.memory = self._new_memory()
        with _one_thread():
            for first in range(len(index.memory), whole, PIECE):
                index.memory.insert(nodes.states[first : first + PIECE])
            distances, ids = index.memory.query(states, k)
        return _with_rest(distances, ids, states, nodes.states[whole:size], whole)

    def _index(self, nodes: Nodes) -> "_Index":
        """The index of these arrays; a new one for arrays that were made elsewhere, by restoring a checkpoint for instance."""
        self._indexes = {key: index for key, index in self._indexes.items() if index.array() is not None}
        found = self._indexes.get(id(nodes.states))
        if found is None:
            found = _Index(weakref.ref(nodes.states), self._new_memory(), int(nodes.size))
            self._indexes[id(nodes.states)] = found
        return found

    def _new_memory(self) -> Memory:
        kind = self._config.memory
        if kind == "auto":  # chosen once: a change on the way would depend on what had entered by then
            few = self._capacity <= LARGEST_EXACT_ON_CPU or jax.default_backend() != "cpu"
            kind = "exact" if few else "hnsw"
        options: dict[str, Any] = {"config": self._config.graph} if kind == "graph" else {}
        return make_memory(kind, self._dim, max(self._capacity, 1), **options)


@dataclass
class _Index:
    """What is known of one array of nodes."""

    array: "weakref.ReferenceType[np.ndarray]"
    memory: Memory
    written: int  # rows in use; a state that says fewer is an older one


@contextmanager
def _one_thread() -> Iterator[None]:
    """FAISS in one thread: the environments of an on-policy agent want the other cores, and threads that wait for each other
    on busy cores take ten times as long as one."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _with_rest(
    distances: Float[np.ndarray, "Q K"],
    ids: Int[np.ndarray, "Q K"],
    states: Float[np.ndarray, "Q D"],
    rest: Float[np.ndarray, "M D"],
    first: int,
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    """Neighbours among the nodes of an index and the few that are not in it yet, whose rows begin at `first`."""
    if not len(rest):
        return distances, ids
    own = np.sqrt(np.sum((states[:, None, :] - rest[None, :, :]) ** 2, axis=2))
    rows = np.broadcast_to(np.arange(first, first + len(rest), dtype=ids.dtype), own.shape)
    together, together_ids = np.concatenate([distances, own], axis=1), np.concatenate([ids, rows], axis=1)
    order = np.argsort(together, axis=1, kind="stable")[:, : distances.shape[1]]
    return np.take_along_axis(together, order, axis=1), np.take_along_axis(together_ids, order, axis=1)


def mean_entropy(nodes: Nodes, ids: Int[np.ndarray, "Q K"]) -> Float[np.ndarray, " Q"]:
    """The mean over the neighbours there are; NaN where there is none."""
    known: Bool[np.ndarray, "Q K"] = ids >= 0
    if not known.any():
        return np.full(len(ids), np.nan, np.float32)
    total = np.sum(np.where(known, nodes.entropies[np.maximum(ids, 0)], 0.0), axis=1, dtype=np.float64)
    return np.where(known[:, 0], total / np.maximum(known.sum(axis=1), 1), np.nan).astype(np.float32)
