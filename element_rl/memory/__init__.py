"""A lifelong memory of states that answers nearest-neighbour queries, with four backends behind
one contract.

    memory = make_memory("auto", dim=11)
    memory.insert(states)                        # [M, 11]
    distances, ids = memory.query(states, k=3)   # ascending, ≥ 0

`exact` is brute force, `hnsw` a FAISS index for very many states, `graph` the paper's kNN graph,
and `auto` exact or hnsw by size and device. `spaced` keeps no two states that are close to each
other, and a bounded number in all. `exact`, `graph` and `spaced` are shells over pure functions
that populations `vmap`.
"""

from pathlib import Path
from typing import Any

from element_rl.memory.auto import AutoMemory
from element_rl.memory.contract import SETTINGS_FILE, Memory
from element_rl.memory.hnsw import HnswMemory
from element_rl.memory.in_place import ExactMemory, GraphMemory, SpacedMemory
from element_rl.storage.files import read_json

KINDS = {
    memory.kind: memory
    for memory in (AutoMemory, ExactMemory, GraphMemory, HnswMemory, SpacedMemory)
}


def make_memory(kind: str, dim: int, capacity: int = 8192, **options: Any) -> Memory:
    """An empty memory of states of width `dim`; `capacity` is a hint, every memory grows
    but `spaced`, which never has more."""
    if kind not in KINDS:
        raise ValueError(
            f"There is no memory called {kind!r}; choose one of {', '.join(sorted(KINDS))}."
        )
    if dim < 1:
        raise ValueError(f"The width of the states must be at least 1, got {dim}.")
    try:
        return KINDS[kind](dim, capacity, **options)
    except TypeError as error:
        raise ValueError(
            f"The {kind} memory does not take these options: {', '.join(options)} ({error})."
        ) from error


def load_memory(folder: Path) -> Memory:
    """A memory that was saved into a folder, whatever its kind."""
    settings = read_json(Path(folder) / SETTINGS_FILE)
    kind = "auto" if "automatic" in settings else settings.get("kind")
    if kind not in KINDS:
        raise ValueError(f"The folder {folder} holds a memory of unknown kind {kind!r}.")
    return KINDS[kind].load(Path(folder))


__all__ = ["KINDS", "Memory", "load_memory", "make_memory"]
