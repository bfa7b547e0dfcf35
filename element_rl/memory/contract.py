"""What every memory of states promises, and the checks that all make before changing anything."""

from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from element_rl.storage.files import read_json

SETTINGS_FILE = "memory.json"
ARRAYS_FILE = "memory.safetensors"


@runtime_checkable
class Memory(Protocol):
    """A set of states that answers nearest-neighbour queries. It holds its state and changes in
    place.

    Ids count up from 0 in the order of insertion. A neighbour that does not exist has distance inf
    and id −1. A memory may keep only some of the states (`spaced` does): those that it does not
    keep have ids too, which no query gives.
    """

    kind: ClassVar[str]
    dim: int

    def insert(self, states: Any, values: Any = None) -> Int[np.ndarray, " M"]:
        """Remember states `[M, D]`, each with an optional value (0 when not given); their ids."""
        ...

    def query(
        self, states: Any, k: int, own: Any = None
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        """Distances (≥ 0, ascending) and ids of the k nearest states; `own [Q]` are ids to leave
        out, one per query."""
        ...

    def states(self) -> Float[np.ndarray, "N D"]:
        """All remembered states, in the order of insertion."""
        ...

    def values(self) -> Float[np.ndarray, " N"]:
        """The value of every remembered state."""
        ...

    def __len__(self) -> int: ...

    def memory_bytes(self) -> int:
        """Bytes held, index included."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything into a folder, which is made if need be."""
        ...


def checked_states(states: Any, dim: int) -> Float[np.ndarray, "M D"]:
    """The states as float32 `[M, D]`, or one sentence on what is wrong with them."""
    array = np.asarray(states, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(
            f"Expected states of shape [number, {dim}], got an array of shape {list(array.shape)}."
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ValueError(
            f"State {row} of {len(array)} holds NaN or infinity: {array[row].tolist()}; nothing "
            "was changed."
        )
    return array


def checked_values(values: Any, count: int) -> Float[np.ndarray, " M"]:
    """The values as float32 `[M]`, zeros when there are none."""
    if values is None:
        return np.zeros(count, np.float32)
    array = np.asarray(values, dtype=np.float32)
    if array.shape != (count,):
        raise ValueError(
            f"Expected one value for each of the {count} states, got an array of shape "
            f"{list(array.shape)}."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"Value {int(np.flatnonzero(~np.isfinite(array))[0])} of {count} is NaN or infinite; "
            "nothing was changed."
        )
    return array


def checked_own(own: Any, count: int) -> Int[np.ndarray, " Q"] | None:
    """The ids to leave out as int32 `[Q]`."""
    if own is None:
        return None
    array = np.asarray(own, dtype=np.int32)
    if array.shape != (count,):
        raise ValueError(
            f"Expected one own id for each of the {count} states, got an array of shape "
            f"{list(array.shape)}."
        )
    return array


def checked_k(k: int) -> int:
    """A number of neighbours of at least 1."""
    if k < 1:
        raise ValueError(f"The number of neighbours must be at least 1, got {k}.")
    return int(k)


def saved_settings(folder: Path, kind: str) -> dict[str, Any]:
    """The settings a memory of this kind was saved with."""
    settings = read_json(folder / SETTINGS_FILE)
    if settings.get("kind") != kind:
        raise ValueError(
            f"The folder {folder} holds a memory of kind {settings.get('kind')!r}, not {kind!r}."
        )
    return settings
