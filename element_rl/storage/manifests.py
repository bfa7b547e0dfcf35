"""Manifests: a list of the files in a folder with their sizes and SHA-256, by which damage is found
before use.

A part of the folder that may be removed some day is left out of the list and has a manifest of its
own.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from element_rl.storage.files import FileError, json_text, read_json_object, to_json

MANIFEST = "manifest.json"


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
