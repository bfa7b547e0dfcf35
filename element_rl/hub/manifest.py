"""The manifest of what was pushed: size and SHA-256 of every file, and what it is.

    manifest.json    {"format": "element-rl", "version": 1, "kind": "run",
                      "files": {"config.json": {"bytes": …, "sha256": …}, …}, "checksum": …}

It comes from somebody else. Before a file is asked for, its name and its size are looked at: names
are relative, plain and of the kinds of files that runs and datasets have, so that nothing can be
written outside the folder that they are put into, and no program can be among them.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from element_rl.hub.folder_hub import kind_of_entry
from element_rl.hub.repository import MOST_FILES, Contents, HubError, Kind, parents
from element_rl.storage.capacity import size_text
from element_rl.storage.files import MANIFEST, read_manifest, write_manifest

FORMAT, VERSION = "element-rl", 1
CARD = "README.md"  # people write on in it, on the hub's own page
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "run": (".json", ".csv", ".safetensors", ".faiss", ".png", ".mp4", ".md"),
    "dataset": (".json", ".hdf5", ".arrow", ".parquet"),
}
MOST_BYTES = {  # of a single file that is read as text
    ".json": 64 << 20,
    ".csv": 1 << 30,
    ".md": 1 << 20,
}
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DEEPEST = 8
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Manifest:
    """What a repository says of its files, after it has been checked."""

    kind: Kind
    sizes: Mapping[str, int]  # name → bytes
    sha256: Mapping[str, str]


def write_hub_manifest(folder: Path, kind: Kind) -> None:
    """Lists all files under a folder; written last, so that a folder with one is complete."""
    write_manifest(folder, {"format": FORMAT, "version": VERSION, "kind": kind})


def read_hub_manifest(folder: Path, label: str) -> Manifest:
    """The manifest in a folder; a HubError where it is not one that this version can trust.
    `label` names the repository in sentences."""
    advice = f"{label} has to be pushed again"
    read = read_manifest(folder, advice)
    if read.get("format") != FORMAT or str(read.get("kind")) not in ENDINGS:
        raise HubError(f"The {MANIFEST} of {label} is not one of element push: {advice}.")
    if read.get("version") != VERSION:
        raise HubError(
            f"{label} was pushed by another version (its {MANIFEST} has version "
            f"{str(read.get('version'))[:20]!r}, and {VERSION} is read here): update element-rl."
        )
    kind: Kind = read["kind"]
    files = listed_files(read.get("files"), f"The {MANIFEST} of {label}")
    refuse_names(files, ENDINGS[kind], label)
    sizes = {name: entry["bytes"] for name, entry in files.items()}
    return Manifest(kind, sizes, {name: entry["sha256"] for name, entry in files.items()})


def listed_files(files: Any, label: str) -> dict[str, Any]:
    """The list of a manifest, where it has the form of one."""
    if not isinstance(files, dict) or len(files) > MOST_FILES:
        raise HubError(f"{label} has no list of at most {MOST_FILES:,} files: it is damaged.")
    for name, entry in files.items():
        size = entry.get("bytes") if isinstance(entry, dict) else None
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if type(size) is not int or size < 0 or not _SHA256.fullmatch(str(digest)):
            raise HubError(f"{label} has no size and SHA-256 for {shortened(name)}: it is damaged.")
    return files


def refuse_names(names: Iterable[str], endings: Collection[str], label: str) -> None:
    """Names that could lead out of a folder, hide in it, take each other's place, or be files that
    have no business in it."""
    seen: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        if not all(map(_PART.fullmatch, parts)) or ".." in name or len(parts) > _DEEPEST:
            raise HubError(
                f"{label} lists the file {shortened(name)}, which is no plain name within a "
                "folder: nothing of it was taken."
            )
        if name == MANIFEST or not name.endswith(tuple(endings)):
            raise HubError(
                f"{label} lists the file {shortened(name)}, and takes files that end in "
                f"{', '.join(endings)} only: nothing of it was taken."
            )
        if seen.setdefault(name.casefold(), name) != name:
            raise HubError(
                f"{label} lists both {name} and {seen[name.casefold()]}, which many disks take "
                "for one: nothing of it was taken."
            )
    for name in seen:
        if any(parent in seen for parent in parents(name)):
            raise HubError(
                f"{label} lists {name} within a file: it is damaged, and nothing was taken."
            )


def refuse_sizes(manifest: Manifest, contents: Contents, prefix: str, most: int) -> None:
    """What is too large, missing, no plain file, or of another size than the manifest says; before
    anything is read. `prefix`: the folder of the repository that the manifest is in."""
    label = str(contents.repository)
    total = sum(manifest.sizes.values())
    if total > most:
        raise HubError(
            f"{label} has {size_text(total)}, and {size_text(most)} are taken at most: give "
            "--max-size if it should be so large."
        )
    for name, size in manifest.sizes.items():
        whole = prefix + name
        for part in (*parents(whole), whole):
            if part in contents.odd:
                raise HubError(
                    f"{part} of {label} is {contents.odd[part]}, and no plain file: nothing of it "
                    "was taken."
                )
        if name == CARD:
            continue  # who edits it does no harm: it is left out then
        if whole not in contents.files:
            raise HubError(f"{whole} is missing in {label}: it has to be pushed again.")
        limit = MOST_BYTES.get(Path(name).suffix, most)
        if size > limit:
            raise HubError(
                f"{whole} of {label} has {size_text(size)}, and such a file has {size_text(limit)} "
                "at most: nothing of it was taken."
            )
        if contents.files[whole] != size:
            raise HubError(
                f"{whole} of {label} has {contents.files[whole]:,} bytes, and had {size:,} when it "
                "was pushed: it has to be pushed again."
            )


def check_file(folder: Path, name: str, manifest: Manifest) -> str | None:
    """What is wrong with a file that was downloaded; None where it is as it was pushed."""
    path = folder / name
    try:
        mode = os.lstat(path)
    except OSError:
        return "is missing"
    if not stat.S_ISREG(mode.st_mode):
        return f"is {kind_of_entry(mode.st_mode)}, and no plain file"
    if mode.st_size != manifest.sizes[name]:
        return f"has {mode.st_size:,} bytes, and had {manifest.sizes[name]:,} when it was pushed"
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != manifest.sha256[name]:
            return "is damaged (its SHA-256 is not the one it was pushed with)"
    return None


def shortened(name: str) -> str:
    """A name from outside, as it can be printed."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:80]}…'"
