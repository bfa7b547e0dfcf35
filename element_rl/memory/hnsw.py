"""The hierarchical navigable small-world memory: FAISS `IndexHNSWFlat`, for CPUs and 1e4 to 1e8
states.

Approximate, but close: the number of candidates a query keeps in view is chosen, at every doubling
of the memory, so that the wanted recall is safely reached on the states about to be inserted.
docs/benchmarks.md states recall and cost for trajectory data. Queries and insertions of a batch are
spread over FAISS's threads (`OMP_NUM_THREADS`).
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import faiss
import numpy as np
from jaxtyping import Float, Int

from element_rl.memory.contract import (
    ARRAYS_FILE,
    SETTINGS_FILE,
    checked_k,
    checked_own,
    checked_states,
    checked_values,
    saved_settings,
)
from element_rl.storage.files import (
    FileError,
    read_arrays,
    write_arrays,
    write_atomically,
    write_json,
)

INDEX_FILE = "memory.faiss"


@dataclass(frozen=True)
class HnswConfig:
    """Parameters of the index; the defaults give recall@3 ≥ 0.95 at 1e6 trajectory states
    (docs/benchmarks.md)."""

    num_links: int = 16  # M, links per node and layer (twice as many on the lowest)
    # efConstruction, nodes kept in view when one is inserted; 100 leaves links missing
    construction_candidates: int = 200
    # efSearch, nodes kept in view by a query; None: as many as `recall` takes
    search_candidates: int | None = None
    recall: float = 0.98  # share of the true neighbours a query should find

    def __post_init__(self) -> None:
        for name in ("num_links", "construction_candidates", "search_candidates"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise ValueError(f"{name} of the hnsw memory must be at least 2, got {value}.")
        if not 0 < self.recall <= 1:
            raise ValueError(
                f"recall of the hnsw memory must be above 0 and at most 1, got {self.recall}."
            )


# FAISS marks the nodes a query has visited in a table of one byte per node, but from this many
# nodes on in a hash set, which makes a query half as slow again. The limit is one for the process;
# ours costs at most 128 MB per searching thread.
if hasattr(faiss.cvar, "visited_table_hashset_threshold"):
    faiss.cvar.visited_table_hashset_threshold = 2**27

CANDIDATES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # values of efSearch to choose from
FIRST_CANDIDATES = 64  # before there is anything to choose by
FIRST_CALIBRATION = 10_000  # states, and at every doubling from there
CALIBRATION_QUERIES = 512
# parts of the queries, in their order, whose recalls say how sure the recall is
CALIBRATION_STRETCHES = 16
CALIBRATION_NEIGHBOURS = 3


class HnswMemory:
    """Approximate neighbours among very many states."""

    kind: ClassVar[str] = "hnsw"

    def __init__(
        self, dim: int, capacity: int = 0, config: HnswConfig | None = None, **options: Any
    ) -> None:
        del capacity  # FAISS grows by itself
        self.dim = dim
        self.config = config or HnswConfig(**options)
        self._index: Any = faiss.IndexHNSWFlat(dim, self.config.num_links)
        self._index.hnsw.efConstruction = self.config.construction_candidates
        self._values = np.zeros(0, np.float32)
        self._search_candidates = self.config.search_candidates or FIRST_CANDIDATES
        self._next_calibration = FIRST_CALIBRATION

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        states = checked_states(states, self.dim)
        values = checked_values(values, len(states))
        first = len(self)
        if len(states):
            self._calibrate(states)
            self._index.add(np.ascontiguousarray(states))
            self._store_values(values, first)
        return np.arange(first, first + len(states), dtype=np.int32)

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        states, k = checked_states(states, self.dim), checked_k(k)
        own = checked_own(own, len(states))
        wanted = k if own is None else k + 1
        self._index.hnsw.efSearch = max(self._search_candidates, wanted)
        if len(self) == 0 or len(states) == 0:
            return np.full((len(states), k), np.inf, np.float32), np.full(
                (len(states), k), -1, np.int32
            )
        squared, ids = self._index.search(np.ascontiguousarray(states), wanted)
        distances = np.where(ids < 0, np.inf, np.sqrt(np.maximum(squared, 0.0))).astype(np.float32)
        if own is not None:
            distances, ids = _without_own(distances, ids, own)
        return distances, ids.astype(np.int32)

    def states(self) -> Float[np.ndarray, "N D"]:
        return self._index.reconstruct_n(0, len(self)).reshape(len(self), self.dim)

    def values(self) -> Float[np.ndarray, " N"]:
        return self._values[: len(self)]

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def memory_bytes(self) -> int:
        hnsw = self._index.hnsw
        links = hnsw.neighbors.size() * 4 + hnsw.offsets.size() * 8 + hnsw.levels.size() * 4
        return int(len(self) * self.dim * 4 + links + self._values.nbytes)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(
            folder / INDEX_FILE, lambda path: faiss.write_index(self._index, str(path))
        )
        write_arrays(folder / ARRAYS_FILE, {"values": self.values()})
        calibration = {"search_candidates": self._search_candidates, "next": self._next_calibration}
        settings = {
            "kind": self.kind,
            "dim": self.dim,
            "config": asdict(self.config),
            "calibration": calibration,
        }
        write_json(folder / SETTINGS_FILE, settings)

    @classmethod
    def load(cls, folder: Path) -> "HnswMemory":
        settings = saved_settings(folder, cls.kind)
        memory = cls(settings["dim"], config=HnswConfig(**settings["config"]))
        calibration = settings.get("calibration", {})
        memory._search_candidates = calibration.get("search_candidates", memory._search_candidates)
        memory._next_calibration = calibration.get("next", memory._next_calibration)
        try:
            memory._index = faiss.read_index(str(folder / INDEX_FILE))
        except RuntimeError as error:
            raise FileError(
                f"The file {folder / INDEX_FILE} is missing, damaged or no FAISS index."
            ) from error
        # FAISS does not store the generator of its nodes' levels: it is brought to where it was,
        # one draw per node, so that what is inserted from now on is linked as if nothing had
        # happened.
        for _ in range(len(memory)):
            memory._index.hnsw.random_level()
        memory._values = read_arrays(folder / ARRAYS_FILE)[0]["values"]
        if len(memory._values) != len(memory):
            raise FileError(
                f"The folder {folder} holds {len(memory)} states but {len(memory._values)} values; "
                "it is damaged."
            )
        return memory

    @property
    def search_candidates(self) -> int:
        """efSearch in use."""
        return self._search_candidates

    def _calibrate(self, states: Float[np.ndarray, "M D"]) -> None:
        """Whenever the memory has doubled: how few candidates still find the neighbours of states
        it does not hold yet?

        A memory that grows denser needs fewer candidates for the same recall. Neighbours are missed
        in stretches of a trajectory rather than here and there, so the wanted recall must lie two
        standard errors, taken over stretches, below the one that was found.
        """
        if (
            self.config.search_candidates is not None
            or len(self) < self._next_calibration
            or len(states) < 16
        ):
            return
        self._next_calibration = 2 * len(self)
        rows = np.linspace(0, len(states) - 1, min(len(states), CALIBRATION_QUERIES)).astype(int)
        queries = np.ascontiguousarray(states[rows])
        _, true_ids = self._index.storage.search(queries, CALIBRATION_NEIGHBOURS)
        for candidates in CANDIDATES:
            self._search_candidates = self._index.hnsw.efSearch = candidates
            _, ids = self._index.search(queries, CALIBRATION_NEIGHBOURS)
            found = (ids[:, :, None] == true_ids[:, None, :]).any(axis=2).mean(axis=1)
            recalls = [part.mean() for part in np.array_split(found, CALIBRATION_STRETCHES)]
            if (
                found.mean() - 2.0 * np.std(recalls, ddof=1) / CALIBRATION_STRETCHES**0.5
                >= self.config.recall
            ):
                break

    def _store_values(self, values: Float[np.ndarray, " M"], first: int) -> None:
        needed = first + len(values)
        if needed > len(self._values):
            grown = np.zeros(max(needed, 2 * len(self._values)), np.float32)
            grown[:first] = self._values[:first]
            self._values = grown
        self._values[first:needed] = values


def _without_own(
    distances: Float[np.ndarray, "Q K1"], ids: Int[np.ndarray, "Q K1"], own: Int[np.ndarray, " Q"]
) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
    """Drop one of k+1 neighbours in every row: the own node where found, else the farthest."""
    dropped = ids == own[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    shape = (len(ids), ids.shape[1] - 1)
    return distances[~dropped].reshape(shape), ids[~dropped].reshape(shape)
