"""The memory that chooses for itself: exact while that is fast, hnsw beyond.

On an accelerator brute force is fast at any size this library meets. On a CPU it is up to some ten
thousand states; at that size the states move, once, into an hnsw index.
"""

from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int

from element_rl.memory.contract import SETTINGS_FILE, checked_states, checked_values
from element_rl.memory.hnsw import HnswMemory
from element_rl.memory.in_place import ExactMemory
from element_rl.storage.files import read_json, write_json

# an exact query of so many costs about 200 µs, an hnsw one 20; fewer are worth being exact
LARGEST_EXACT_ON_CPU = 25_000


class AutoMemory:
    """Exact up to `largest_exact` states, hnsw beyond; never hnsw on an accelerator unless asked
    to."""

    kind: ClassVar[str] = "auto"

    def __init__(
        self, dim: int, capacity: int = 8192, largest_exact: int | None = None, **hnsw_options: Any
    ) -> None:
        self.dim = dim
        on_cpu = jax.default_backend() == "cpu"
        self.largest_exact = (
            (LARGEST_EXACT_ON_CPU if on_cpu else None) if largest_exact is None else largest_exact
        )
        self._hnsw_options = hnsw_options
        self.backend: ExactMemory | HnswMemory = ExactMemory(
            dim, min(capacity, self.largest_exact or capacity)
        )

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        states = checked_states(states, self.dim)
        values = checked_values(values, len(states))
        too_many = self.largest_exact is not None and len(self) + len(states) > self.largest_exact
        if too_many and isinstance(self.backend, ExactMemory):
            moved = HnswMemory(self.dim, **self._hnsw_options)
            moved.insert(self.backend.states(), self.backend.values())
            self.backend = moved
        return self.backend.insert(states, values)

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        return self.backend.query(states, k, own)

    def states(self) -> Float[np.ndarray, "N D"]:
        return self.backend.states()

    def values(self) -> Float[np.ndarray, " N"]:
        return self.backend.values()

    def __len__(self) -> int:
        return len(self.backend)

    def memory_bytes(self) -> int:
        return self.backend.memory_bytes()

    def save(self, folder: Path) -> None:
        """The backend's own files; the settings say which it is, and that it was chosen
        automatically."""
        self.backend.save(folder)
        settings = read_json(folder / SETTINGS_FILE)
        automatic = {"largest_exact": self.largest_exact, "hnsw_options": self._hnsw_options}
        write_json(folder / SETTINGS_FILE, settings | {"automatic": automatic})

    @classmethod
    def load(cls, folder: Path) -> "AutoMemory":
        settings = read_json(folder / SETTINGS_FILE)
        automatic = settings["automatic"]
        memory = cls(
            settings["dim"], largest_exact=automatic["largest_exact"], **automatic["hnsw_options"]
        )
        memory.backend = (ExactMemory if settings["kind"] == ExactMemory.kind else HnswMemory).load(
            folder
        )
        return memory
