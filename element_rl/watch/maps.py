"""The maps of a run: visits per cell at each of its checkpoints, and as of a moment ago.

A run writes its visits with every checkpoint, and between two of them every few seconds into a file
of its own (`RunFolder.write_latest_visits`). So a map grows while somebody looks at it, and can be
played back through the checkpoints.
"""

import base64
import threading
import zlib
from collections import OrderedDict
from typing import Any

import numpy as np
from jaxtyping import Int

from element_rl.plots.planes import coverage_start, equal_scales, visited_part
from element_rl.runs.folder import LATEST_VISITS, VISITS, RunFolder
from element_rl.runs.visits import Stored, Window, bounds_of, picture, window_of
from element_rl.storage.files import FileError

MOST_PACKED = 64  # maps kept as they were sent, for the next who asks
# of the visited part, where its bounds allow it: as broad as high, so that it grows in both ways
MARGIN, LEAST_ASPECT = 0.06, 1.0


class RunMaps:
    """Maps of a run that has coverage cells."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.steps: list[int] = []  # of the checkpoints that have a map, and of the latest visits
        # what the page needs to draw the maps; None while there is none
        self.facts: dict[str, Any] | None = None
        self._latest: tuple[int, Stored] | None = None
        self._latest_file: tuple[int, int] | None = None
        self._part: list[list[int]] | None = None  # of the grid that is shown: from, to
        self._shape: tuple[int, ...] | None = None  # [P, X, Y] of the newest map
        # what holds the newest map, where the map has no bounds: older ones are shown in it too
        self._window: Window | None = None
        self._shown: int | None = None  # step of the newest map that was looked at
        self._packed: OrderedDict[tuple[int, int | None], dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()  # of what was packed

    def look(self, logged: int | None) -> None:
        """Which maps there are now, of a run that has logged up to a step."""
        saved = [
            step
            for step in self.run.checkpoint_steps()
            if (self.run.checkpoints_path / f"step_{step:09d}" / VISITS).is_file()
        ]
        self._read_latest()
        latest = self._latest[0] if self._latest is not None else -1
        # a resumed run has gone back behind what it had shown
        current = latest > max(saved, default=-1) and (logged is None or latest <= logged)
        self.steps = [*saved, latest] if current else saved
        newest = self.steps[-1] if self.steps else None
        if newest != self._shown:
            if newest is None or (self._shown or 0) > newest:
                with self._lock:
                    self._packed.clear()
            self._show(newest)
        self.facts = self._facts()

    def _show(self, newest: int | None) -> None:
        """Makes this map the one by which the others are laid out."""
        self._shown, self._part, self._shape = newest, None, None
        if newest is None:
            return
        window = window_of(self.run.config, self._stored(newest))
        if window != self._window:
            with self._lock:
                self._packed.clear()
            self._window = window
        visits = self._visits(newest)
        self._part, self._shape = self._part_of(visits), visits.shape

    def _read_latest(self) -> None:
        try:
            status = (self.run.path / LATEST_VISITS).stat()
        except FileNotFoundError:
            self._latest, self._latest_file = None, None
            return
        if (found := (status.st_ino, status.st_mtime_ns)) != self._latest_file:
            self._latest = self.run.read_latest_visits()
            self._latest_file = found

    def _facts(self) -> dict[str, Any] | None:
        if self._part is None or self._shape is None:
            return None
        config = self.run.config
        unit = config.get("coverage_unit", "m")
        names = [f"{name} ({unit})" if unit else name for name in config["coverage_axes"]]
        return {
            "steps": self.steps,
            "seeds": self._shape[0],
            "columns": self._shape[1],
            "rows": self._shape[2],
            "part": self._part,
            "bounds": bounds_of(config, self._window),
            "xLabel": names[0],
            "yLabel": names[1],
            "start": coverage_start(config),
            "equalScales": equal_scales(config, bounds_of(config, self._window)),
        }

    def packed(self, step: int, seed: int | None) -> dict[str, Any]:
        """Visits per cell up to a step, of one seed or of all together: 32-bit numbers [X, Y],
        deflated, in base64; None where the run has no such map any more."""
        if step not in self.steps:  # a newer one may have taken its place since the page asked
            return {"step": step, "cells": None}
        with self._lock:
            if (step, seed) not in self._packed:
                visits = self._visits(step)
                if seed is not None and not 0 <= seed < len(visits):
                    raise FileError(f"The run has {len(visits)} seeds, and none of place {seed}.")
                shown = visits.sum(axis=0, dtype=np.int64) if seed is None else visits[seed]
                cells = np.clip(shown, 0, 2**32 - 1).astype("<u4").tobytes()
                self._packed[step, seed] = {
                    "step": step,
                    "columns": shown.shape[0],
                    "rows": shown.shape[1],
                    "cells": base64.b64encode(zlib.compress(cells, 6)).decode(),
                }
                while len(self._packed) > MOST_PACKED:
                    self._packed.popitem(last=False)
            return self._packed[step, seed]

    def _stored(self, step: int) -> Stored:
        latest = self._latest
        if latest is not None and latest[0] == step:
            return latest[1]
        found: Stored = self.run.load_visits(step)
        return found

    def _visits(self, step: int) -> Int[np.ndarray, "P X Y"]:
        try:
            found = picture(self._stored(step), self._window)
        except (AssertionError, KeyError, IndexError) as error:
            raise FileError(f"The map of step {step} in {self.run.path} is damaged.") from error
        if found.ndim != 3 or found.dtype.kind not in "iu" or not found.size:
            raise FileError(f"The map of step {step} in {self.run.path} is damaged.")
        return found

    def _part_of(self, visits: Int[np.ndarray, "P X Y"]) -> list[list[int]]:
        """The columns and the rows that are shown: where anybody has been, with a margin."""
        config = self.run.config
        shown, start = bounds_of(config, self._window), coverage_start(config)
        bounds = np.asarray(shown, np.float64)
        aspect = LEAST_ASPECT if equal_scales(config, shown) else 0.0
        visited = np.asarray(visits.any(axis=0))
        starts = [] if start is None else [start]
        limits = visited_part(visited, bounds, starts, aspect, MARGIN)
        size = (bounds[:, 1] - bounds[:, 0]) / visited.shape
        edges = (limits - bounds[:, :1]) / size[:, None]
        lower, upper = np.floor(edges[:, 0] + 1e-9), np.ceil(edges[:, 1] - 1e-9)
        return np.stack([lower, upper], axis=1).astype(int).tolist()
