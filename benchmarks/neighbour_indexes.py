"""The indexes that `bench_memory` compares, ours and peers, all answering the same three calls.

The graph indexes of peers get the parameters of our `hnsw` (M, efConstruction, efSearch), so that
the libraries are compared and not their settings; "faiss HNSW" keeps FAISS's own defaults, which
shows what the parameters are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import faiss
import numpy as np
from jaxtyping import Float, Int

from element_rl.memory import make_memory
from element_rl.memory.hnsw import HnswConfig

Answer = tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]
# the same for all libraries
SETTINGS = HnswConfig(num_links=16, construction_candidates=200, search_candidates=64)


class Index(Protocol):
    """What every index answers; ids count up from 0 in the order of insertion, distances are not
    squared."""

    def insert(self, states: Float[np.ndarray, "M D"]) -> Any: ...

    def query(self, states: Float[np.ndarray, "Q D"], k: int) -> Answer: ...

    def memory_bytes(self) -> int: ...


@dataclass(frozen=True)
class Candidate:
    """One row of the table."""

    title: str  # as the table names it
    make: Callable[[int, int], Index]  # from the width of the states and how many there will be
    # False: cannot take states one batch after the other, so it is built once from all of them
    online: bool = True
    ours: bool = False  # our memories can be saved and loaded again


class FaissIndex:
    def __init__(self, index: Any) -> None:
        self._index = index

    def insert(self, states: Float[np.ndarray, "M D"]) -> None:
        self._index.add(states)

    def query(self, states: Float[np.ndarray, "Q D"], k: int) -> Answer:
        squared, ids = self._index.search(states, k)
        return np.sqrt(np.maximum(squared, 0.0)), ids

    def memory_bytes(self) -> int:
        return len(faiss.serialize_index(self._index))


class HnswlibIndex:
    def __init__(self, dim: int, capacity: int) -> None:
        import hnswlib

        self._index = hnswlib.Index(space="l2", dim=dim)
        self._index.init_index(
            capacity, M=SETTINGS.num_links, ef_construction=SETTINGS.construction_candidates
        )
        self._index.set_ef(SETTINGS.search_candidates)
        self._index.set_num_threads(1)

    def insert(self, states: Float[np.ndarray, "M D"]) -> None:
        self._index.add_items(states, num_threads=1)

    def query(self, states: Float[np.ndarray, "Q D"], k: int) -> Answer:
        ids, squared = self._index.knn_query(states, k, num_threads=1)
        return np.sqrt(np.maximum(squared, 0.0)), ids.astype(np.int64)

    def memory_bytes(self) -> int:
        return int(self._index.index_file_size())


class UsearchIndex:
    def __init__(self, dim: int, capacity: int) -> None:
        from usearch.index import Index as Usearch

        del capacity
        self._index = Usearch(
            ndim=dim,
            metric="l2sq",
            dtype="f32",
            connectivity=SETTINGS.num_links,
            expansion_add=SETTINGS.construction_candidates,
            expansion_search=SETTINGS.search_candidates,
        )

    def insert(self, states: Float[np.ndarray, "M D"]) -> None:
        first = len(self._index)
        self._index.add(np.arange(first, first + len(states)), states, threads=1)

    def query(self, states: Float[np.ndarray, "Q D"], k: int) -> Answer:
        found = self._index.search(states, k, threads=1)
        return np.sqrt(np.maximum(found.distances, 0.0)), np.asarray(found.keys, np.int64)

    def memory_bytes(self) -> int:
        return int(self._index.memory_usage)


class PynndescentIndex:
    """Nearest-neighbour descent with its default parameters."""

    def __init__(self, dim: int, capacity: int) -> None:
        del dim, capacity
        self._index: Any = None

    def insert(self, states: Float[np.ndarray, "M D"]) -> None:
        from pynndescent import NNDescent

        self._index = NNDescent(
            states, metric="euclidean", random_state=0, n_jobs=1, compressed=True
        )
        self._index.prepare()

    def query(self, states: Float[np.ndarray, "Q D"], k: int) -> Answer:
        ids, distances = self._index.query(states, k)
        # It reorders its copy of the states but answers with the ids of the order they came in.
        return distances, ids.astype(np.int64)

    def memory_bytes(self) -> int:
        graph = self._index._search_graph
        arrays = [self._index._raw_data, graph.data, graph.indices, graph.indptr]
        arrays += [
            array
            for tree in self._index._search_forest
            for array in tree
            if isinstance(array, np.ndarray)
        ]
        return sum(array.nbytes for array in arrays)


def _ours(kind: str, **options: Any) -> Callable[[int, int], Index]:
    return lambda dim, capacity: make_memory(kind, dim=dim, capacity=capacity, **options)


def _faiss_flat(dim: int, capacity: int) -> Index:
    del capacity
    return FaissIndex(faiss.IndexFlatL2(dim))


def _faiss_hnsw(dim: int, capacity: int) -> Index:
    del capacity
    # 32 is what FAISS's factory takes where none is given
    return FaissIndex(faiss.IndexHNSWFlat(dim, 32))


_HNSW = (
    f"M={SETTINGS.num_links}, efConstruction={SETTINGS.construction_candidates}, "
    f"ef={SETTINGS.search_candidates}"
)

CANDIDATES = {
    "exact": Candidate("**exact**", _ours("exact"), ours=True),
    "graph": Candidate("**graph**, k=3, R1=20, R2=10", _ours("graph", restarts=10), ours=True),
    "graph-20": Candidate("**graph**, k=3, R1=20, R2=20", _ours("graph", restarts=20), ours=True),
    "hnsw": Candidate(f"**hnsw**, {_HNSW}", _ours("hnsw", config=SETTINGS), ours=True),
    "faiss-flat": Candidate("faiss flat", _faiss_flat),
    "faiss-hnsw": Candidate("faiss HNSW, its defaults (M=32, 40, 16)", _faiss_hnsw),
    "hnswlib": Candidate(f"hnswlib, {_HNSW}", HnswlibIndex),
    "usearch": Candidate(f"usearch, {_HNSW}", UsearchIndex),
    "pynndescent": Candidate(
        "pynndescent, its defaults, built once", PynndescentIndex, online=False
    ),
}
