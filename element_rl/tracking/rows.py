"""Metrics of a run as trackers show them, read from metrics.csv while it grows.

    coverage            the mean over the seeds
    seed_3/coverage     that of a seed, where the run has several

Numbers that are not finite are left out.
"""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

Row = Mapping[str, str]


class NewSteps:
    """The steps of a metrics.csv that were not told of before, each once, in their order."""

    def __init__(self, path: Path, told: int) -> None:
        self._path = path
        self._told = told  # the last step that was
        self._file = 0  # which file it was: a run that goes back to a checkpoint writes another
        self._offset = 0
        self._header: Sequence[str] = ()
        self._waiting: dict[int, list[Row]] = {}  # by step: read, not told of
        self._seeds: set[str] = set()

    def read(self, ended: bool) -> Iterator[tuple[int, dict[str, float]]]:
        """Steps with their metrics. The newest waits for a reading that finds nothing more of it,
        unless the run has `ended`."""
        fresh = self._fresh_rows()
        for row in fresh:
            self._seeds.add(row["seed"])
            if int(row["step"]) > self._told:
                self._waiting.setdefault(int(row["step"]), []).append(row)
        held = 1 if fresh and not ended else 0
        for step in list(self._waiting)[: len(self._waiting) - held]:
            yield step, shown(self._waiting[step], several=len(self._seeds) > 1)
            # not before whoever asked has come back for more: what failed there is told again
            self._told = step
            del self._waiting[step]

    def _fresh_rows(self) -> list[Row]:
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self._file or state.st_size < self._offset:
                    self._file, self._offset, self._header = state.st_ino, 0, ()
                    self._waiting = {}
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]  # the last line may be half written
        except FileNotFoundError:  # nothing was logged yet
            return []
        if not whole:
            return []
        self._offset += len(whole) + 1
        lines = list(csv.reader(whole.decode().splitlines()))
        if not self._header:
            self._header, *lines = lines
        return [dict(zip(self._header, line, strict=True)) for line in lines]


def shown(rows: Sequence[Row], several: bool) -> dict[str, float]:
    """The metrics of a step: means over its rows, and those of each seed where there are
    `several`."""
    numbers = [
        {
            name: float(text)
            for name, text in row.items()
            if name not in ("step", "seed") and text and np.isfinite(float(text))
        }
        for row in rows
    ]
    means = {
        name: float(np.mean([row[name] for row in numbers if name in row]))
        for name in dict.fromkeys(name for row in numbers for name in row)
    }
    if not several:
        return means
    return means | {
        f"seed_{row['seed']}/{name}": value
        for row, values in zip(rows, numbers, strict=True)
        for name, value in values.items()
    }
