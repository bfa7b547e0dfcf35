"""Curves of a run in a bounded number of points, however long it is.

Lines of metrics fall into bins of `width` steps. When there are more than `MOST_BINS` of them, the
width doubles and neighbours are merged. A bin keeps, for every seed and column, the sum and the
number of its values, for their mean; of what only counts up, such as the cells covered, it keeps
the last value, so that a curve ends at what is true now.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

MOST_BINS = 400  # a chart is not wider than some hundred points
MOST_LINES = 12  # seeds that have a line of their own
# of these a bin keeps the last value, not the mean
COUNTING = ("coverage", "episodes", "furthest", "memory_size", "updates", "wall_seconds")


class Bins:
    """Values [S, M] of every column, of S seeds in M bins."""

    def __init__(self) -> None:
        self.width = 1  # steps
        self.seeds = np.zeros(0, np.int64)
        self.steps = np.zeros(0, np.int64)  # the last step in each bin
        self._numbers = np.zeros(0, np.int64)  # of the bins: step // width
        self._sums: dict[str, Float[np.ndarray, "S M"]] = {}
        self._counts: dict[str, Int[np.ndarray, "S M"]] = {}
        self._last: dict[str, Float[np.ndarray, "S M"]] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, rows: Mapping[str, np.ndarray]) -> bool:
        """Adds lines of metrics; whether bins were merged, or seeds have come, so that all of a
        curve has changed and not its end alone."""
        if not len(rows["step"]):
            return False
        steps, seeds = rows["step"].astype(np.int64), rows["seed"].astype(np.int64)
        end = int(self._numbers[-1]) if len(self) else -1
        new_seeds = len(np.setdiff1d(seeds, self.seeds)) > 0
        backwards = int(steps.min()) // self.width < end
        numbers = np.union1d(self._numbers, steps // self.width)
        self._make_room(np.union1d(self.seeds, seeds), numbers, rows)
        where = np.searchsorted(self.seeds, seeds), np.searchsorted(numbers, steps // self.width)
        np.maximum.at(self.steps, where[1], steps)
        for name in self._sums:
            values = rows.get(name)
            if values is None:
                continue
            finite = np.isfinite(values)
            there = where[0][finite], where[1][finite]
            np.add.at(self._sums[name], there, values[finite])
            np.add.at(self._counts[name], there, 1)
            self._last[name][there] = values[finite]  # of several in a bin the last one stays
        merged = False
        while len(self) > MOST_BINS:
            self._merge()
            merged = True
        return merged or new_seeds or backwards

    def curves(self, first: int = 0) -> dict[str, dict[str, Any]]:
        """Of each column that has values: mean, lowest and highest over seeds in the bins from
        `first` on, and the lines of the seeds themselves where they are not too many."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._sums:
            if not self._counts[name].any():
                continue
            values = self.values(name)[:, first:]
            there = np.isfinite(values)
            known = there.any(axis=0)
            number = np.maximum(there.sum(axis=0), 1)
            mean = np.where(known, np.where(there, values, 0.0).sum(axis=0) / number, np.nan)
            found[name] = {"mean": short(mean)}
            if len(self.seeds) > 1:
                low = np.where(there, values, np.inf).min(axis=0)
                high = np.where(there, values, -np.inf).max(axis=0)
                found[name] |= {"low": short(low), "high": short(high)}
            if 1 < len(self.seeds) <= MOST_LINES:
                found[name]["seeds"] = [short(line) for line in values]
        return found

    def values(self, name: str) -> Float[np.ndarray, "S M"]:
        """A column; NaN where a seed has nothing in a bin."""
        sums, counts = self._sums[name], self._counts[name]
        chosen = self._last[name] if name in COUNTING else sums / np.maximum(counts, 1)
        return np.where(counts > 0, chosen, np.nan)

    def _make_room(
        self,
        seeds: Int[np.ndarray, " S"],
        numbers: Int[np.ndarray, " M"],
        rows: Mapping[str, np.ndarray],
    ) -> None:
        """Empty bins for what is new, those that are there in their places among them."""
        places = np.ix_(np.searchsorted(seeds, self.seeds), np.searchsorted(numbers, self._numbers))
        shape = (len(seeds), len(numbers))
        for name in dict.fromkeys([*self._sums, *rows]):
            if name in ("step", "seed"):
                continue
            for kept, kind in ((self._sums, float), (self._counts, int), (self._last, float)):
                grown = np.zeros(shape, kind)
                if name in kept:
                    grown[places] = kept[name]
                kept[name] = grown
        steps = np.zeros(len(numbers), np.int64)
        steps[places[1][0]] = self.steps
        self.seeds, self.steps, self._numbers = seeds, steps, numbers

    def _merge(self) -> None:
        """Twice the width; the two halves of a new bin become one."""
        self.width *= 2
        numbers, first = np.unique(self._numbers // 2, return_index=True)
        last = np.append(first[1:], len(self._numbers)) - 1
        for name, counts in self._counts.items():
            newest = self._last[name]
            self._last[name] = np.where(counts[:, last] > 0, newest[:, last], newest[:, first])
            self._sums[name] = np.add.reduceat(self._sums[name], first, axis=1)
            self._counts[name] = np.add.reduceat(counts, first, axis=1)
        self.steps, self._numbers = self.steps[last], numbers


def short(values: np.ndarray) -> list[float | int | None]:
    """For JSON: six digits, None for what is not finite."""
    rounded = [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]
