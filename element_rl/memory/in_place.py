"""`exact`, `graph` and `spaced` as objects that change in place: thin shells over their pure
functions.

The arrays double when they are full, but for those of `spaced`, which is thinned instead. Batches
are padded to the next power of two, so that however
the sizes vary only a handful of programs is compiled.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from element_rl.memory import exact, graph, spaced
from element_rl.memory.contract import (
    ARRAYS_FILE,
    SETTINGS_FILE,
    checked_k,
    checked_own,
    checked_states,
    checked_values,
    saved_settings,
)
from element_rl.memory.exact import NO_NODE
from element_rl.memory.graph import GraphConfig, GraphMemoryState
from element_rl.memory.spaced import SpacedMemoryState
from element_rl.storage.files import read_arrays, write_arrays, write_json

LARGEST_BATCH = 1024  # longer queries and insertions go in pieces of this size


class ExactMemory:
    """Brute force. See `element_rl.memory.exact`."""

    kind: ClassVar[str] = "exact"

    def __init__(self, dim: int, capacity: int = 8192) -> None:
        self.dim = dim
        self._state = exact.create(capacity, dim)
        self._size = 0  # kept on the host too: asking the device would wait for it

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        states = checked_states(states, self.dim)
        values = checked_values(values, len(states))
        self._state = grown(self._state, self._size + len(states))
        for rows, count in _pieces(states, values):
            self._state = _insert_exact(self._state, *rows, count)
        self._size += len(states)
        return np.arange(self._size - len(states), self._size, dtype=np.int32)

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        return _query_in_pieces(partial(_query_exact, self._state), self.dim, states, k, own)

    def states(self) -> Float[np.ndarray, "N D"]:
        return np.asarray(self._state.states[: self._size])

    def values(self) -> Float[np.ndarray, " N"]:
        return np.asarray(self._state.values[: self._size])

    def __len__(self) -> int:
        return self._size

    def memory_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._state)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / ARRAYS_FILE, {"states": self.states(), "values": self.values()})
        write_json(folder / SETTINGS_FILE, {"kind": self.kind, "dim": self.dim})

    @classmethod
    def load(cls, folder: Path) -> "ExactMemory":
        dim = saved_settings(folder, cls.kind)["dim"]
        arrays, _ = read_arrays(folder / ARRAYS_FILE)
        memory = cls(dim, capacity=len(arrays["states"]))
        memory.insert(arrays["states"], arrays["values"])
        return memory


class GraphMemory:
    """The paper's kNN graph. See `element_rl.memory.graph`."""

    kind: ClassVar[str] = "graph"

    def __init__(
        self, dim: int, capacity: int = 8192, config: GraphConfig | None = None, **options: Any
    ) -> None:
        self.dim = dim
        self.config = config or GraphConfig(**options)
        self._state = graph.create(capacity, dim, self.config)
        self._size = 0

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        states = checked_states(states, self.dim)
        values = checked_values(values, len(states))
        self._state = grown(self._state, self._size + len(states))
        for rows, count in _pieces(states, values):
            self._state = _insert_graph(self._state, *rows, count, self.config)
        self._size += len(states)
        return np.arange(self._size - len(states), self._size, dtype=np.int32)

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        search = partial(_query_graph, self._state, config=self.config)
        return _query_in_pieces(search, self.dim, states, k, own)

    def states(self) -> Float[np.ndarray, "N D"]:
        return np.asarray(self._state.states[: self._size])

    def values(self) -> Float[np.ndarray, " N"]:
        return np.asarray(self._state.values[: self._size])

    def __len__(self) -> int:
        return self._size

    def memory_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._state)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            name: np.asarray(leaf[: self._size])
            for name, leaf in self._state._asdict().items()
            if name != "size"
        }
        write_arrays(folder / ARRAYS_FILE, arrays)
        write_json(
            folder / SETTINGS_FILE,
            {"kind": self.kind, "dim": self.dim, "config": asdict(self.config)},
        )

    @classmethod
    def load(cls, folder: Path) -> "GraphMemory":
        settings = saved_settings(folder, cls.kind)
        arrays, _ = read_arrays(folder / ARRAYS_FILE)
        memory = cls(settings["dim"], capacity=0, config=GraphConfig(**settings["config"]))
        leaves = {name: jnp.asarray(array) for name, array in arrays.items()}
        memory._size = len(arrays["states"])
        memory._state = GraphMemoryState(**leaves, size=jnp.asarray(memory._size, jnp.int32))
        return memory


class SpacedMemory:
    """At most `capacity` states, farther than δ from each other. See `element_rl.memory.spaced`.

    Every state that is inserted has an id, whether it is kept or not.
    """

    kind: ClassVar[str] = "spaced"

    def __init__(self, dim: int, capacity: int = 8192, spacing: float | None = None) -> None:
        spaced.check_settings(capacity, spacing)
        self.dim = dim
        self._state = spaced.create(capacity, dim, spacing)

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        states = checked_states(states, self.dim)
        values = checked_values(values, len(states))
        for rows, count in _pieces(states, values):
            self._state = _insert_spaced(self._state, *rows, count)
        after = int(self._state.offered)
        return np.arange(after - len(states), after, dtype=np.int32)

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        return _query_in_pieces(partial(_query_spaced, self._state), self.dim, states, k, own)

    @property
    def spacing(self) -> float:
        """δ: no two kept states are closer; 0 before it is known."""
        return float(self._state.spacing)

    def states(self) -> Float[np.ndarray, "N D"]:
        return np.asarray(self._state.states[: len(self)])

    def values(self) -> Float[np.ndarray, " N"]:
        return np.asarray(self._state.values[: len(self)])

    def __len__(self) -> int:
        return int(self._state.size)

    def memory_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._state)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: np.asarray(leaf) for name, leaf in self._state._asdict().items()}
        write_arrays(folder / ARRAYS_FILE, arrays)
        write_json(folder / SETTINGS_FILE, {"kind": self.kind, "dim": self.dim})

    @classmethod
    def load(cls, folder: Path) -> "SpacedMemory":
        dim = saved_settings(folder, cls.kind)["dim"]
        arrays, _ = read_arrays(folder / ARRAYS_FILE)
        memory = cls(dim, capacity=len(arrays["states"]))
        leaves = {name: jnp.asarray(array) for name, array in arrays.items()}
        memory._state = SpacedMemoryState(**leaves)
        return memory


_insert_exact = jax.jit(exact.insert, donate_argnums=0)
_query_exact = jax.jit(exact.query, static_argnames="k")
_insert_graph = jax.jit(graph.insert, static_argnums=4, donate_argnums=0)
_query_graph = jax.jit(graph.query, static_argnames=("k", "config"))
_insert_spaced = jax.jit(spaced.insert, donate_argnums=0)
_query_spaced = jax.jit(spaced.query, static_argnames="k")


def grown(state: Any, needed: int) -> Any:
    """The same memory with room for `needed` states: rows double until they suffice."""
    empty: dict[str, float] = {"edges": NO_NODE, "edge_distances": np.inf}
    rows = state.states.shape[0]
    if needed <= rows:
        return state
    extra = max(2 * rows, exact.ROWS * -(-needed // exact.ROWS)) - rows
    grown = {}
    for name, leaf in state._asdict().items():
        widths = [(0, extra)] + [(0, 0)] * (leaf.ndim - 1)
        grown[name] = (
            leaf if name == "size" else jnp.pad(leaf, widths, constant_values=empty.get(name, 0))
        )
    return type(state)(**grown)


def _query_in_pieces(
    query: Callable[..., tuple[Array, Array]], dim: int, states: Any, k: int, own: Any
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    states, k = checked_states(states, dim), checked_k(k)
    own = checked_own(own, len(states))
    own = np.full(len(states), NO_NODE, np.int32) if own is None else own
    distances = np.empty((len(states), k), np.float32)
    ids = np.empty((len(states), k), np.int32)
    start = 0
    for (rows, row_own), count in _pieces(states, own):
        found = query(rows, k=k, own=row_own)
        distances[start : start + count] = found[0][:count]
        ids[start : start + count] = found[1][:count]
        start += int(count)
    return distances, ids


def _pieces(*arrays: np.ndarray) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray]]:
    """Pieces of at most `LARGEST_BATCH` rows, padded to a power of two, each with its number of
    true rows."""
    for start in range(0, len(arrays[0]), LARGEST_BATCH):
        piece = [array[start : start + LARGEST_BATCH] for array in arrays]
        count = len(piece[0])
        padding = (1 << (count - 1).bit_length()) - count
        padded = tuple(
            np.pad(array, [(0, padding)] + [(0, 0)] * (array.ndim - 1)) for array in piece
        )
        yield padded, np.asarray(count, np.int32)
