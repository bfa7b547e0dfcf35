"""Files that a reader, a crash or a full disk never sees half of.

    write_json, read_json        settings and results
    write_arrays, read_arrays    named arrays, as safetensors
    write_text                   any other text
    write_atomically             any file that something else fills, such as FAISS or matplotlib
    append                       to the end of a file: everything or nothing
    create_locked                a new file that one of several processes makes, and holds from its first moment
    locked                       a file that one process at a time may hold

A file is written under a temporary name beside its final one, put on the disk and renamed; nothing
is ever pickled. What goes wrong is said in one sentence as a `FileError`. The functions below
`locked` are for those who write a whole folder in this way.
"""

import contextlib
import dataclasses
import errno
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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


def read_json_object(path: Path, advice: str = ADVICE) -> dict[str, Any]:
    """The value of a JSON file that should hold an object."""
    value = read_json(path, advice)
    if not isinstance(value, dict):
        raise FileError(f"The file {path} is damaged (it holds no JSON object): {advice}.")
    return value


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes named arrays of numbers, with optional text beside them, as one safetensors file."""
    needed = sum(np.asarray(array).nbytes for array in arrays.values())
    write_atomically(
        path, lambda temporary: write_arrays_directly(temporary, arrays, metadata), needed
    )


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
    path: Path, write: Callable[[Path], Any], needed_bytes: int | None = None
) -> None:
    """`write` fills a file of another name in the same folder, which then takes the place of
    `path`.

    Folders are made as needed. On failure nothing is left and the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with removing_on_failure(temporary, path, needed_bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)


def append(path: Path, data: bytes) -> None:
    """Adds all of `data` to the end of a file, or nothing of it."""
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


def create_locked(path: Path, text: str) -> int:
    """Writes a file that must not exist yet, and locks it as `locked` does; the descriptor that
    holds the lock.

    Of processes that do this at the same moment one succeeds, and the others get FileExistsError.
    The file is locked before it has its name, so nobody else can hold it first. Closing the
    descriptor lets go of it.
    """
    data = text.encode()
    # Another process, or the same number on another machine, may be making the same file.
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    with removing_on_failure(temporary, path, len(data)):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        sync(temporary)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        with removing_on_failure(temporary, path, len(data)):
            _lock(descriptor)
            taken = not _named(temporary, path)
            sync(path.parent)
        if taken:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _named(temporary: Path, path: Path) -> bool:
    """Gives a finished file its name, unless something has it; whether it did. The temporary name
    is gone then."""
    try:
        os.link(temporary, path)  # unlike a rename, this never takes the place of a file
    except FileExistsError:
        return False
    except OSError:  # a disk without hard links: there the name comes first
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def locked(path: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Within this the file is this process's own; one that dies lets go of it.

    BlockingIOError if it is another's for longer. Where files cannot be locked (Windows) nothing is
    locked.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        with path.open("rb") as file:
            try:
                _lock(file.fileno())
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            else:
                # Whoever had it may have removed it meanwhile: then the lock is on a file that
                # nobody else can find.
                if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    yield
                    return
                continue
        time.sleep(0.2)


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
    except FileNotFoundError as error:
        raise FileError(f"The file {path} does not exist: {advice}.") from error
    except OSError as error:
        raise FileError(
            f"The file {path} cannot be read ({error.strerror or error}): {advice}."
        ) from error
    except (ValueError, safetensors.SafetensorError) as error:
        raise FileError(
            f"The file {path} is damaged or no {kind} file ({error}): {advice}."
        ) from error


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
