"""A run in the hub of a folder, and what a stranger could make of it."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from element_rl.hub import push_run, repository_of
from element_rl.hub.folder_hub import FolderHub
from element_rl.runs.folder import RunFolder
from support.known_checkpoints import save

REPO = "alice/car"
SETTINGS = {"env": "MountainCarContinuous-v0", "env_options": [], "steps": 20, "seed": 0}
CONFIG = {
    "kind": "explore",
    "env": "MountainCarContinuous-v0",
    "reward": "element",
    "settings": SETTINGS,
}


def known_run(path: Path, **config: Any) -> RunFolder:
    """A run of two checkpoints, in which every number is known."""
    run = RunFolder.create(path, CONFIG | config)
    for step in (10, 20):
        save(run, step, size=10)
    return run


def pushed(root: Path, run: RunFolder, repo: str = REPO, **options: Any) -> Path:
    """Pushes without film and figures; the repository's folder."""
    said = options.pop("say", lambda text: None)
    options = {"video": False, "figures": False} | options
    place = push_run(run, FolderHub(root), repository_of(repo)[0], say=said, **options)
    return Path(place)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A manifest.json that somebody has changed, and given the checksum that fits."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    text = json.dumps(manifest, sort_keys=True)
    manifest["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def replaced(folder: Path, name: str, data: bytes) -> None:
    """A file with other bytes, which the manifest is changed to agree with."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    rewritten(folder, lambda manifest: manifest["files"].update({name: entry}))


def everything(folder: Path) -> dict[str, bytes]:
    """All that is under a folder, to see that nothing of it has changed."""
    return {
        str(file.relative_to(folder)): file.read_bytes() if _is_small(file) else b""
        for file in sorted(folder.rglob("*"))
    }


def _is_small(file: Path) -> bool:
    return file.is_file() and file.stat().st_size < 1 << 27
