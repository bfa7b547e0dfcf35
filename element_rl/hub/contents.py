"""What the files of a stranger hold, looked at before they get their name.

Sizes are known by now. Here are the files that could still do harm when a command reads them: JSON
that is nested too deep, headers of arrays that do not fit their file, lists of files that point
elsewhere, and HDF5, which can refer to other files and claim arrays that it does not hold. Nothing
is imported, and no array is loaded.
"""

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

import safetensors

from element_rl.datasets.minari_folders import HDF5, METADATA, require_minari
from element_rl.hub.manifest import listed_files, shortened
from element_rl.hub.repository import HubError
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import KINDS, kind_of
from element_rl.storage.capacity import size_text
from element_rl.storage.files import MANIFEST, Entries, read_json_object, read_manifest

LONGEST_HEADER = 16 << 20  # bytes that describe the arrays of a file; a replay has some thousand
# an array and what is stored of it: gzip cannot do better than 1032 to 1
SMALLEST_SHARE = 1 / 1_100
ADVICE = "nothing of it was taken"


def check_run(folder: Path, names: Collection[str], label: str) -> RunFolder:
    """The run in a folder of downloaded files; a FileError where a command could stumble over
    it."""
    for name in sorted(names):
        path = folder / name
        if path.name == MANIFEST:
            _check_listed(path.parent, name, names, label)
        elif path.suffix == ".json":
            read_json_object(path, ADVICE)
        elif path.suffix == ".safetensors":
            check_arrays(path, name, label)
    run = RunFolder.open(folder)
    if kind_of(run.config) not in KINDS:
        raise HubError(f"{label} is no run: {ADVICE}.")
    if damaged := run.damaged_files():
        raise HubError(damaged[0].replace(str(folder), label))
    return run


def _check_listed(folder: Path, name: str, names: Collection[str], label: str) -> None:
    """The manifest of a checkpoint names files of that checkpoint, which were pushed."""
    files = listed_files(read_manifest(folder, ADVICE).get("files"), f"{name} of {label}")
    place = name.removesuffix(MANIFEST)
    for file in files:
        if place + file not in names:
            raise HubError(
                f"{name} of {label} lists {shortened(file)}, which was not pushed: {ADVICE}."
            )


def check_arrays(path: Path, name: str, label: str) -> None:
    """A safetensors file whose header is of a sensible length and fits the bytes that follow."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if length > min(LONGEST_HEADER, max(size - 8, 0)):
        raise HubError(
            f"{name} of {label} has a header of {length:,} bytes in a file of {size:,}: {ADVICE}."
        )
    try:
        with safetensors.safe_open(path, framework="np") as arrays:
            for key in arrays.keys():  # noqa: SIM118
                shape = arrays.get_slice(key).get_shape()
                # an array of nothing whose other axes are beyond all counting
                if any(axis >= 1 << 40 for axis in shape):
                    raise HubError(f"{name} of {label} has an array of shape {shape}: {ADVICE}.")
    except (safetensors.SafetensorError, ValueError) as error:
        if isinstance(error, HubError):
            raise
        raise HubError(f"{name} of {label} is no safetensors file ({error}): {ADVICE}.") from error


def check_dataset(folder: Path, names: Collection[str], label: str) -> Entries:
    """The metadata of the Minari dataset in a folder of downloaded files."""
    require_minari()
    for name in sorted(names):
        if not name.startswith("data/"):
            raise HubError(f"{label} lists {name}, which is no file of a dataset: {ADVICE}.")
        if name.endswith(".json"):
            read_json_object(folder / name, ADVICE)
        elif name.endswith(".hdf5"):
            check_hdf5(folder / name, name, label)
    if f"data/{METADATA}" not in names:
        raise HubError(f"{label} is no Minari dataset (it has no data/{METADATA}): {ADVICE}.")
    about = read_json_object(folder / "data" / METADATA, ADVICE)
    about.checked({"dataset_id": str, "total_episodes": int, "data_format": str})
    if about.get("data_format", "hdf5") == "hdf5" and f"data/{HDF5}" not in names:
        raise HubError(f"{label} has no data/{HDF5}: {ADVICE}.")
    return about


def check_hdf5(path: Path, name: str, label: str) -> None:
    """An HDF5 file that refers to no other file, and holds the arrays that it claims."""
    import h5py

    def refuse(what: str) -> HubError:
        return HubError(f"{name} of {label} {what}: {ADVICE}.")

    def check_group(group: Any) -> None:
        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise refuse(f"has the link {shortened(key)}, which may lead to another file")
            entry = group[key]
            if isinstance(entry, h5py.Group):
                waiting.append(entry)
            elif isinstance(entry, h5py.Dataset):
                check_array(key, entry)
            else:
                raise refuse(f"has {shortened(key)}, which is no array")

    def check_array(key: str, array: Any) -> None:
        if array.external or array.is_virtual:
            raise refuse(f"has the array {shortened(key)}, which lies in another file")
        stored = array.id.get_storage_size()
        if array.dtype.kind != "O" and array.nbytes * SMALLEST_SHARE > stored:
            raise refuse(
                f"claims an array of {size_text(array.nbytes)}, {shortened(key)}, of which it "
                f"holds {size_text(stored)}"
            )

    seen = set()
    try:
        with h5py.File(path, "r") as file:
            waiting = [file]
            while waiting:
                group = waiting.pop()
                address = h5py.h5o.get_info(group.id).addr
                if address not in seen:  # a group can be within itself
                    seen.add(address)
                    check_group(group)
    except HubError:
        raise
    except Exception as error:  # HDF5 has errors of its own for everything
        raise refuse(f"is damaged or no HDF5 file ({type(error).__name__}: {error})") from error
