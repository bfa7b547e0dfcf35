"""Writing files so that a reader, or a crash, never sees half of one.

Arrays go into safetensors, settings into JSON, nothing into pickle. Every file is written under a temporary name beside
its final one, flushed to the disk and renamed.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


class FileError(ValueError):
    """A file that cannot be written or read, in one sentence for the user."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write named arrays, with optional string metadata, as one safetensors file."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomically(path, lambda temporary: save_file(contiguous, temporary, dict(metadata or {})))


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file."""
    if not path.is_file():
        raise FileError(f"The file {path} does not exist.")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except SafetensorError as error:
        raise FileError(f"The file {path} is damaged or no safetensors file ({error}).") from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"The file {path} does not exist.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"The file {path} is damaged or no JSON file ({error}).") from error


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then flush and rename it; on failure nothing is left or lost."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        flush(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise FileError(f"Could not write {path}: {error}. Free some space or choose another folder.") from error
    finally:
        temporary.unlink(missing_ok=True)
    flush(path.parent)


def flush(path: Path) -> None:
    """Ask the operating system to put a file, or a folder's entries, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
