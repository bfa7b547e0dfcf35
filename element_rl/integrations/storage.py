"""A bonus on disk and in a pickle: settings, arrays, and a memory that lives on the host.

    FOLDER/bonus.safetensors     arrays; settings and spaces as JSON in its metadata
    FOLDER/memory-N/             the hnsw memory after N transitions, if there is one; the file names the one it belongs to

The file is written last and at once: a folder holds the old bonus or the new one, whole. There is
no pickle in it.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces

from element_rl.memory.hnsw import HnswMemory
from element_rl.storage.files import FileError, json_text, read_arrays, write_arrays

FILE = "bonus.safetensors"
SPACES = ("observation_space", "action_space")


@runtime_checkable
class Stored(Protocol):
    """What can be written: its constructor's arguments, and what has changed since."""

    settings: dict[str, Any]
    host_memory: HnswMemory | None

    def to_arrays(self) -> dict[str, np.ndarray]: ...

    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None: ...


def write_bonus(bonus: Stored, folder: Path) -> None:
    """Everything but an own function for the states."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"bonus/{name}": array for name, array in bonus.to_arrays().items()}
    settings: dict[str, Any] = {
        name: value for name, value in bonus.settings.items() if name not in SPACES
    }
    for name in SPACES:
        settings[name] = _described(bonus.settings[name], arrays, name)
    memory = None
    if bonus.host_memory is not None:
        memory = f"memory-{len(bonus.host_memory)}"
        bonus.host_memory.save(folder / memory)
    write_arrays(
        folder / FILE, arrays, {"settings": json_text(settings), "memory": json_text(memory)}
    )
    for other in folder.glob("memory-*"):
        if other.name != memory:
            shutil.rmtree(other)


def read_bonus(kind: type[Any], folder: Path, states: Any = None) -> Any:
    """What `write_bonus` wrote, as an object of `kind`."""
    path = folder / FILE
    if not path.is_file():
        raise FileError(
            f"There is no bonus in {folder} (no {FILE}): save one there, or name another folder."
        )
    arrays, metadata = read_arrays(path)
    try:
        settings = json.loads(metadata["settings"])
        for name in ("options", "position"):  # JSON knows no tuples
            settings[name] = _with_tuples(settings[name])
        made = {name: _space(settings.pop(name), arrays, name) for name in SPACES}
        memory = json.loads(metadata["memory"])
        bonus = kind(**settings, **made, states=states)
        changed = {
            name.removeprefix("bonus/"): array
            for name, array in arrays.items()
            if name.startswith("bonus/")
        }
        bonus.restore(changed, HnswMemory.load(folder / memory) if memory else None)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} holds no {kind.__name__} of this version ({error}).") from error
    return bonus


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix/`."""
    return {name: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def pickled(bonus: Stored, states: Any) -> tuple[Any, ...]:
    """For `__reduce__`: the files, as bytes. An own function for the states is pickled by its name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_bonus(bonus, folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
    return _unpickled, (type(bonus), files, states)


def _unpickled(kind: type[Any], files: dict[str, bytes], states: Any) -> Any:
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            path = Path(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return read_bonus(kind, Path(name), states)


def _described(space: spaces.Space, arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """A space as JSON; its bounds go to the arrays."""
    if isinstance(space, spaces.Dict):
        parts = {
            key: _described(part, arrays, f"{name}/{key}") for key, part in space.spaces.items()
        }
        return {"kind": "Dict", "parts": parts}
    if isinstance(space, spaces.Box):
        arrays |= {f"{name}/low": space.low, f"{name}/high": space.high}
        return {"kind": "Box", "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    raise ValueError(f"The space {space} cannot be stored.")


def _space(told: dict[str, Any], arrays: dict[str, np.ndarray], name: str) -> spaces.Space:
    if told["kind"] == "Dict":
        return spaces.Dict(
            {key: _space(part, arrays, f"{name}/{key}") for key, part in told["parts"].items()}
        )
    if told["kind"] == "Box":
        return spaces.Box(
            arrays[f"{name}/low"], arrays[f"{name}/high"], dtype=np.dtype(told["dtype"]).type
        )
    if told["kind"] == "Discrete":
        return spaces.Discrete(told["n"], start=told["start"])
    if told["kind"] == "MultiDiscrete":
        return spaces.MultiDiscrete(told["nvec"])
    return spaces.MultiBinary(told["shape"])


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_tuples(part) for name, part in value.items()}
    return tuple(value) if isinstance(value, list) else value
