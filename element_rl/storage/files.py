"""Files that a reader, a crash or a full disk never sees half of.

    write_json, read_json        settings and results
    write_arrays, read_arrays    named arrays, as safetensors
    write_text                   any other text
    write_atomically             any file that something else fills, such as FAISS or matplotlib
    append                       to the end of a file: everything or nothing
    write_manifest, verify       sizes and SHA-256 of a folder's files, by which damage is found

A file is written under a temporary name beside its final one, put on the disk and renamed; nothing
is ever pickled. What goes wrong is said in one sentence as a `FileError`. Who writes a whole folder
in this way uses `sync`, `write_arrays_directly` and `removing_on_failure`.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from element_rl.storage.types import fits, shortened, type_text

MANIFEST = "manifest.json"
ADVICE = "restore it from a copy or make it again"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileError(ValueError):
    """A file that cannot be written or read, in one sentence for the user."""


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON; see `to_json` for what may be in it."""
    write_text(path, json_text(value))


def read_json(path: Path, advice: str = ADVICE) -> Any:
    """The value of a JSON file; `advice` ends the sentence if there is none to be had."""
    with _reporting_unreadable(path, "JSON", advice):
        return json.loads(path.read_text(encoding="utf-8"))


def read_json_object(path: Path, advice: str = ADVICE) -> "Entries":
    """The value of a JSON file that should hold an object. An entry that is asked for with [] and
    is not there, in it or in an object within, is a FileError that names the file."""
    with _reporting_unreadable(path, "JSON", advice):
        value = Entries.within(read_json(path, advice), path, advice)
    if not isinstance(value, Entries):
        raise FileError(f"The file {path} is damaged (it holds no JSON object): {advice}.")
    return value


class Entries(dict[str, Any]):
    """An object of a JSON file, which knows where it comes from."""

    path: Path
    advice: str

    @classmethod
    def within(cls, value: Any, path: Path, advice: str) -> Any:
        """The value of a file, every object in it as `Entries`."""
        if isinstance(value, list):
            return [cls.within(item, path, advice) for item in value]
        if not isinstance(value, dict):
            return value
        entries = cls({name: cls.within(item, path, advice) for name, item in value.items()})
        entries.path, entries.advice = path, advice
        return entries

    def __missing__(self, name: str) -> Any:
        raise self.damaged(f"it has no {name!r}")

    def damaged(self, how: str) -> FileError:
        """The sentence for what should be otherwise in the file."""
        return FileError(f"The file {self.path} is damaged ({how}): {self.advice}.")

    def checked(self, types: Mapping[str, Any]) -> "Entries":
        """The entries, where those that are there are of these types, as annotations have them."""
        for name, hint in types.items():
            if name in self and not fits(hint, self[name]):
                raise self.damaged(f"its {name!r} is {shortened(self[name])}, no {type_text(hint)}")
        return self


def write_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    durable: bool = True,
) -> None:
    """Writes named arrays of numbers, with optional text beside them, as one safetensors file."""
    write_atomically(
        path,
        lambda temporary: write_arrays_directly(temporary, arrays, metadata),
        num_bytes(arrays),
        durable,
    )


def num_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """What arrays take on the disk, but for their names."""
    return sum(np.asarray(array).nbytes for array in arrays.values())


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file."""
    with (
        _reporting_unreadable(path, "safetensors", ADVICE),
        safetensors.safe_open(path, framework="np") as file,
    ):
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def write_text(path: Path, text: str) -> None:
    data = text.encode()
    write_atomically(path, lambda temporary: temporary.write_bytes(data), len(data))


def write_atomically(
    path: Path,
    write: Callable[[Path], Any],
    needed_bytes: int | None = None,
    durable: bool = True,
) -> None:
    """`write` fills a file of another name in the same folder, which then takes the place of
    `path`.

    Folders are made as needed. On failure nothing is left and the old file is as it was. A file
    that is not `durable` may be lost when the power fails; nobody waits for the disk then.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileError(
            f"{path} could not be written (it is a device, a pipe or a socket): choose the name of "
            "a file."
        )
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with removing_on_failure(temporary, path, needed_bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync(path.parent)


def append(path: Path, data: bytes) -> None:
    """Adds all of `data` to the end of a file, or nothing of it."""
    if path.is_symlink():
        raise FileError(
            f"{path} could not be written (it is a link to {os.readlink(path)}, another's file): "
            "put a copy in its place."
        )
    try:
        with path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                remaining = memoryview(data)
                while remaining:
                    remaining = remaining[file.write(remaining) :]
            except BaseException:
                file.truncate(size)
                raise
    except OSError as error:
        _report_failed_write(error, path, len(data))


def write_manifest(folder: Path, facts: Mapping[str, Any], leave_out: Collection[str] = ()) -> None:
    """Lists every file under `folder` but those of the subfolders `leave_out`; `facts` are kept
    with the list."""
    files = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.relative_to(folder).parts[0] not in leave_out
    }
    manifest = to_json({**facts, "files": files})
    (folder / MANIFEST).write_text(
        json_text({**manifest, "checksum": _checksum(manifest)}), encoding="utf-8"
    )


def read_manifest(folder: Path, advice: str) -> dict[str, Any]:
    """The facts and, under `files`, the list; `advice` ends the sentence if they cannot be had."""
    manifest = read_json_object(folder / MANIFEST, advice)
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise FileError(f"The file {folder / MANIFEST} was altered: {advice}.")
    return manifest


def verify(folder: Path, name: str, advice: str) -> None:
    """Compares one file with the manifest of its folder."""
    expected = read_manifest(folder, advice)["files"].get(name)
    file = folder / name
    if expected is None or not file.is_file():
        raise FileError(f"The file {file} is missing: {advice}.")
    if (found := file.stat().st_size) != expected["bytes"]:
        raise FileError(
            f"The file {file} is damaged (it has {found:,} bytes, and had {expected['bytes']:,} "
            f"when written): {advice}."
        )
    if _sha256(file) != expected["sha256"]:
        raise FileError(
            f"The file {file} is damaged (its SHA-256 is not the one it was written with): "
            f"{advice}."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def sync(path: Path) -> None:
    """Waits until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_arrays_directly(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file under its own name, for use where something around it is atomic."""
    # order="C": safetensors writes the memory of an array as it lies, whatever its strides.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in contiguous.items():
        if array.dtype.kind not in "biufc":
            raise ValueError(
                f"The array {name} has dtype {array.dtype}: only numbers can be stored."
            )
    path.touch()
    mode = path.stat().st_mode
    # Empty metadata would make a file that cannot be read.
    safetensors.numpy.save_file(contiguous, path, metadata=dict(metadata) if metadata else None)
    path.chmod(mode)  # safetensors would leave a file that only its owner can read


@contextlib.contextmanager
def removing_on_failure(
    temporary: Path, target: Path, needed_bytes: int | None = None
) -> Iterator[None]:
    """Whatever goes wrong, `temporary` is removed; a disk that is full or refuses is reported in
    one sentence."""
    try:
        yield
    except BaseException as error:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink()
        _report_failed_write(error, target, needed_bytes)
        raise


def _report_failed_write(error: BaseException, target: Path, needed_bytes: int | None) -> None:
    # safetensors and FAISS raise errors of their own, with the system's message inside.
    for code in NO_ROOM:
        if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
            folder = next(parent for parent in target.parents if parent.exists())
            needed = "" if needed_bytes is None else f"{needed_bytes:,} bytes are needed, "
            raise FileError(
                f"{target} could not be written ({os.strerror(code)}; "
                f"{needed}{shutil.disk_usage(folder).free:,} bytes "
                "are free): make room and try again, all that was written before is untouched."
            ) from error
    if isinstance(error, OSError | safetensors.SafetensorError):
        reason = getattr(error, "strerror", None) or error
        raise FileError(
            f"{target} could not be written ({reason}): put that right and try again."
        ) from error


@contextlib.contextmanager
def _reporting_unreadable(path: Path, kind: str, advice: str) -> Iterator[None]:
    try:
        yield
    except FileError:  # said already
        raise
    except FileNotFoundError as error:
        raise FileError(f"The file {path} does not exist: {advice}.") from error
    except OSError as error:
        raise FileError(
            f"The file {path} cannot be read ({error.strerror or error}): {advice}."
        ) from error
    except RecursionError as error:
        raise FileError(
            f"The file {path} is damaged or no {kind} file (it is nested too deep): {advice}."
        ) from error
    except (ValueError, safetensors.SafetensorError) as error:
        raise FileError(
            f"The file {path} is damaged or no {kind} file ({error}): {advice}."
        ) from error


def listed(names: Sequence[object], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def json_text(value: Any) -> str:
    return json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_json(value: Any) -> Any:
    """Dataclasses, paths, tuples and NumPy values as what JSON has for them; numbers that are not
    finite as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(
            {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        )
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
