"""One run that is watched: its state, how far it is, its curves and its maps, ready for JSON.

`look` brings it up to date, from one thread; everything else may be asked from any.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.runs.visits import counted, has_map
from element_rl.storage.files import FileError
from element_rl.watch.bins import Bins
from element_rl.watch.maps import RunMaps
from element_rl.watch.states import State, last_step, state_of, unit_of
from element_rl.watch.tail import Columns, MetricsTail

RECENT = 12  # logged steps over which the speed is taken
REFERENCE = ("coverage", "episodic_entropy", "episode_length", "extrinsic_return")


class WatchedRun:
    """The run in a folder, whatever becomes of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._generation = 0  # grows when curves have changed from their beginning
        self._version = 0  # grows with every line
        self._begin()

    def _begin(self) -> None:
        self._run: RunFolder | None = None
        self._config_file: tuple[int, int, int] | None = None  # which one was read
        self._tail = MetricsTail(self.path / "metrics.csv")
        self._bins = Bins()
        self._pace: deque[tuple[int, float]] = deque(maxlen=RECENT)  # steps and their seconds
        self._state = State("reading")
        self._problems: dict[str, str] = {}  # what cannot be read → why
        self._summary: dict[str, Any] = {}
        self._maps: RunMaps | None = None
        self._generation += 1

    def look(self) -> None:
        """Read what is new. What cannot be read is said on the page, and tried again."""
        with self._lock:
            opened = self._reading("config", self._open)
        while opened and self._reading("metrics", self._read_some):
            pass  # a long file in parts, between which requests are answered
        if not opened:
            return
        with self._lock:
            self._reading("summary", self._read_state)
            self._reading("maps", self._read_maps)

    def _reading(self, what: str, read: Callable[[], Any]) -> bool:
        """What `read` returns; False, with a sentence for the page, where it fails."""
        try:
            found = bool(read())
        except Exception as error:  # whatever a damaged file leads to, other runs go on
            told = isinstance(error, OSError | ValueError)
            reason = str(error) if told else f"{type(error).__name__}: {error}"
            self._problems[what] = " ".join(reason.split())
            return False
        self._problems.pop(what, None)
        return found

    def _open(self) -> bool:
        """config.json, again if it is another: somebody may have begun anew in the folder."""
        try:
            status = (self.path / "config.json").stat()
        except FileNotFoundError:
            self._state = State("gone", "The folder is no longer there, or holds no run any more.")
            return False
        found = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if found != self._config_file or self._run is None:
            if self._config_file is not None:
                self._begin()
            self._config_file = found
            run = RunFolder.open(self.path)
            kind_of(run.config)  # refuses what is no kind of runs
            self._run = run
            if has_map(run.config):
                self._maps = RunMaps(run)
        return True

    def _read_some(self) -> bool:
        with self._lock:
            again, rows = self._tail.look()
            if again:
                self._bins = Bins()
                self._pace.clear()
                self._generation += 1
            if rows is None:
                return False
            self._note_pace(rows)
            self._generation += self._bins.add(rows)
            self._version += 1
            return True

    def _note_pace(self, rows: Columns) -> None:
        if "wall_seconds" not in rows:
            return
        steps, first = np.unique(rows["step"][::-1], return_index=True)
        seconds = rows["wall_seconds"][::-1][first]
        for step, passed in list(zip(steps.tolist(), seconds.tolist(), strict=True))[-RECENT:]:
            if np.isfinite(passed) and (not self._pace or step > self._pace[-1][0]):
                self._pace.append((int(step), passed))

    def _read_state(self) -> None:
        assert self._run is not None
        self._state = state_of(self._run, self._step())
        self._summary = self._run.read_summary()

    def _read_maps(self) -> None:
        if self._maps is not None:
            self._maps.look(self._step() if len(self._bins) else None)

    def _step(self) -> int:
        return int(self._bins.steps[-1]) if len(self._bins) else 0

    def facts(self) -> dict[str, Any]:
        """What the page says of the run, in words and numbers."""
        with self._lock:
            config: Mapping[str, Any] = self._run.config if self._run else {}
            kind = kind_of(config) if self._run else ""
            step, steps, rate = self._step(), self._steps(), self._rate()
            left = (steps - step) / rate if steps and rate and steps > step else None
            running = self._state.word == "running"
            return {
                "name": self.path.name,
                "path": str(self.path),
                "env": str(config.get("env") or "no environment"),
                "reward": str(config.get("reward") or kind),
                "kind": kind,
                "unit": unit_of(kind),
                "seeds": self._seeds(config),
                "state": "damaged" if "config" in self._problems else self._state.word,
                "sentence": self._state.sentence,
                "command": self._state.command,
                "problems": list(self._problems.values()),
                "step": step,
                "steps": steps,
                "rate": rate if running else None,
                "secondsLeft": left if running else None,
                "secondsAgo": self._seconds_ago(),
                "generation": self._generation,
                "version": self._version,
                "counted": counted(config),
                "map": self._maps.facts if self._maps is not None else None,
                "random": self._random(),
            }

    def curves(self, generation: int, first: int) -> dict[str, Any]:
        """The curves from the bin `first` on; all of them where those that the page has are of
        another generation."""
        with self._lock:
            if generation != self._generation or not 0 <= first <= len(self._bins):
                first = 0
            return {
                "generation": self._generation,
                "first": first,
                "step": self._bins.steps[first:].tolist(),
                "seeds": self._bins.seeds.tolist(),
                "columns": self._bins.curves(first),
            }

    def visits(self, step: int, seed: int | None) -> dict[str, Any]:
        """The map up to one of its steps, of one seed (its place in the population) or of all."""
        with self._lock:
            maps = self._maps
        if maps is None:
            raise FileError("This run has no map.")
        return maps.packed(step, seed)

    def _steps(self) -> int | None:
        """Where the run was meant to end; None where it has gone beyond that, with a --steps of
        its own."""
        steps = last_step(self._run.config) if self._run else None
        return steps if steps is not None and steps >= self._step() else None

    def _rate(self) -> float | None:
        """Steps of one seed per second of training, of late."""
        if len(self._pace) < 2:
            return None
        (first, began), (last, ended) = self._pace[0], self._pace[-1]
        return (last - first) / (ended - began) if ended > began else None

    def _seeds(self, config: Mapping[str, Any]) -> int | None:
        seeds = (config.get("settings") or {}).get("seeds")
        return seeds if isinstance(seeds, int) else len(self._bins.seeds) or None

    def _seconds_ago(self) -> float | None:
        """Since the last line; before the first one, since the run began."""
        for name in ("metrics.csv", "config.json"):
            with contextlib.suppress(OSError):
                return max(0.0, time.time() - (self.path / name).stat().st_mtime)
        return None

    def _random(self) -> dict[str, float]:
        """What a random policy reached in as many steps, where the summary has it."""
        policy: dict[str, Any] = self._summary.get("random_policy") or {}
        found: dict[str, float] = {}
        for name in REFERENCE:
            values = policy.get(name)
            numbers = values if isinstance(values, list) else []
            known = [value for value in numbers if isinstance(value, int | float)]
            if known:
                found[name] = float(f"{np.mean(known):.6g}")
        return found
