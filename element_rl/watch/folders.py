"""Which runs are watched: those that were named, and those in a folder that was named, also when
they begin later."""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from element_rl.runs.folder import RunError
from element_rl.storage.locks import is_locked
from element_rl.watch.run import WatchedRun

MOST_RUNS = 16  # of a folder, at first: the running ones and the newest
DEEPEST = 4  # folders below the one that was named, as the cells of a study are


class Watch:
    """The runs that are watched. A run has its number for as long as this lives."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.runs: tuple[WatchedRun, ...] = ()
        self._parents: list[Path] = []  # folders in which runs may begin
        self._seen: set[Path] = set()  # resolved paths of runs that are watched
        self._left_out: set[Path] = set()  # of a folder with too many
        for path in paths:
            if (path / "config.json").is_file():
                self._add([path])
            else:
                refuse_no_runs(path)
                self._parents.append(path)
        for parent in self._parents:
            newest_first = sorted(runs_in(parent), key=_moment, reverse=True)
            found = [path for path in newest_first if path.resolve() not in self._seen]
            self._add(found[:MOST_RUNS])
            self._left_out |= {path.resolve() for path in found[MOST_RUNS:]}

    @property
    def left_out(self) -> int:
        """Runs of the named folders that are not shown."""
        return len(self._left_out)

    def look(self) -> None:
        """Bring everything up to date."""
        for parent in self._parents:
            self._add(path for path in runs_in(parent) if self._is_new(path))
        for run in self.runs:
            run.look()

    def follow(self, ended: threading.Event, every: float = 1.0) -> None:
        """Look again and again until something has ended it."""
        while not ended.is_set():
            self.look()
            ended.wait(every)

    def _is_new(self, path: Path) -> bool:
        """Whether a run has begun, or one that was left out goes on."""
        resolved = path.resolve()
        if resolved in self._left_out:
            return _is_running(path)
        return resolved not in self._seen

    def _add(self, paths: "Sequence[Path] | Iterator[Path]") -> None:
        for path in paths:
            if path.resolve() not in self._seen:
                self._seen.add(path.resolve())
                self._left_out.discard(path.resolve())
                self.runs = (*self.runs, WatchedRun(path))


def runs_in(folder: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """The runs below a folder; what is within a run is its own."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # it may be removed, or forbidden
        return
    for name in names:
        path = folder / name
        if name.startswith(".") or not path.is_dir():
            continue
        if (path / "config.json").is_file():
            yield path
        elif depth > 1:
            yield from runs_in(path, depth - 1)


def refuse_no_runs(path: Path) -> None:
    """A sentence for what is neither a run, nor holds any, nor is empty and waits for some."""
    if not path.is_dir():
        raise RunError(
            f"There is no folder {path}: name the folder of a run, such as runs/Ant-v5-element-0, "
            "or one with runs in it."
        )
    others = [name for name in os.listdir(path) if not name.startswith(".")]
    if others and next(runs_in(path), None) is None:
        raise RunError(
            f"{path} is no run (it has no config.json) and holds none: name the folder of a run, "
            "or an empty one in which runs will begin."
        )


def _moment(path: Path) -> tuple[bool, float]:
    """To sort by: running ones, then those that were written last."""
    for name in ("metrics.csv", "config.json"):
        try:
            return _is_running(path), (path / name).stat().st_mtime
        except OSError:
            continue
    return False, 0.0


def _is_running(path: Path) -> bool:
    try:
        return bool(is_locked(path / "config.json"))
    except OSError:
        return False
