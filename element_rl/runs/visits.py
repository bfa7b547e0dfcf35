"""Visits per cell of P agents: on a map with bounds, or wherever the agents go.

    Bounded     counts [P, X, Y], an array
    Unbounded   a table of cells and counts for each agent, which grows with the cells visited

Stored, the first is the array and the second three arrays with a row for each cell of each agent:

    agent [N], cell [N, K], visits [N]    and `covered` [P], the number of rows of each agent

A cell is a number of 64 bits in training and K indices in a file. Pictures are cut from what is
stored (`window_of`, `picture`).

The table of an agent is a hash table of two arrays, at most half full: a step costs the same,
however many cells there are, and a cell takes 32 to 64 bytes. It holds at most `MOST_CELLS`, 2²⁰:
then visits to new cells are no longer counted, and coverage stays there.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int64

MOST_CELLS = 2**20  # of an agent: some 32 MB
SMALLEST_TABLE = 2**10  # slots
MIXER = np.uint64(0x9E3779B97F4A7C15)
MOST_PIXELS = 400  # along an axis of a picture: several cells share a pixel beyond that
MARGIN = 2  # cells around what was visited, in a picture

# what coverage counts, by `coverage_of` in config.json and summary.json, in words
NOUNS = {
    "positions": "cells",
    "state cells": "state cells",
    "observations": "different observations",
    "pictures": "different pictures",
}

Stored = np.ndarray | Mapping[str, np.ndarray]  # visits as they are in a file


def written(visits: Stored) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    return {"visits": visits} if isinstance(visits, np.ndarray) else dict(visits)


def read_stored(arrays: Mapping[str, np.ndarray]) -> Stored:
    """The opposite."""
    return arrays if "cell" in arrays else arrays["visits"]


class CellCounts:
    """Visits of one agent per cell, wherever the cells are."""

    def __init__(self) -> None:
        self.filled = 0
        self._cells = np.zeros(SMALLEST_TABLE, np.int64)
        self._counts = np.zeros(SMALLEST_TABLE, np.int64)  # 0: the slot is free

    def visit(self, cells: Int64[np.ndarray, " N"]) -> None:
        """Count a visit of each."""
        self.add(*np.unique(cells, return_counts=True))

    def add(self, cells: Int64[np.ndarray, " M"], counts: Int[np.ndarray, " M"]) -> None:
        """Count so many visits of cells, each of which is named once."""
        while 2 * (self.filled + len(cells)) > len(self._cells):
            if len(self._cells) >= 2 * MOST_CELLS:
                break
            self._grow()
        slots = (cells.view(np.uint64) * MIXER) >> np.uint64(
            64 - (len(self._cells) - 1).bit_length()
        )
        self._place(cells, counts.astype(np.int64), slots.astype(np.int64))

    def _place(
        self, cells: Int64[np.ndarray, " M"], counts: Int64[np.ndarray, " M"], slots: np.ndarray
    ) -> None:
        """Each into the first slot from its own on that is its or free."""
        mask = len(self._cells) - 1
        while len(cells):
            free = self._counts[slots] == 0
            if self.filled + int(free.sum()) > MOST_CELLS:  # what there is no room for is not kept
                kept = ~free | (np.cumsum(free) <= MOST_CELLS - self.filled)
                cells, counts, slots, free = cells[kept], counts[kept], slots[kept], free[kept]
            # of several that want one free slot the last one written has it
            self._cells[slots[free]] = cells[free]
            own = self._cells[slots] == cells
            self._counts[slots[own]] += counts[own]
            self.filled += int((own & free).sum())
            cells, counts, slots = cells[~own], counts[~own], (slots[~own] + 1) & mask

    def _grow(self) -> None:
        cells, counts = self.rows()
        self._cells = np.zeros(2 * len(self._cells), np.int64)
        self._counts = np.zeros(len(self._cells), np.int64)
        self.filled = 0
        self.add(cells, counts)

    def rows(self) -> tuple[Int64[np.ndarray, " N"], Int64[np.ndarray, " N"]]:
        """All cells, in the order of their numbers, and their counts."""
        there = self._counts > 0
        cells, counts = self._cells[there], self._counts[there]
        order = np.argsort(cells)
        return cells[order], counts[order]


class Bounded:
    """Visits of P agents on a map of so many cells along both axes."""

    def __init__(self, num_agents: int, cells: tuple[int, int]) -> None:
        self.stored = np.zeros((num_agents, *cells), np.int32)

    def visit(self, agents: int | Int[np.ndarray, " N"], cells: Int[np.ndarray, " N"]) -> None:
        flat = self.stored.reshape(-1)  # a view
        np.add.at(flat, agents * self.stored[0].size + cells, 1)

    def covered(self, agent: int) -> int:
        """Cells visited by an agent."""
        return int(np.count_nonzero(self.stored[agent]))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"visits": self.stored}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.stored[...] = arrays["visits"]


class Unbounded:
    """Visits of P agents in cells that are numbers; in files they have K indices."""

    def __init__(self, num_agents: int, axes: int, unpack: Callable[..., np.ndarray]) -> None:
        self.tables = [CellCounts() for _ in range(num_agents)]
        self._axes, self._unpack = axes, unpack

    def visit(self, agents: int | Int[np.ndarray, " N"], cells: Int64[np.ndarray, " N"]) -> None:
        if isinstance(agents, int):
            self.tables[agents].visit(cells)
            return
        for agent in np.unique(agents).tolist():
            self.tables[agent].visit(cells[agents == agent])

    def covered(self, agent: int) -> int:
        return self.tables[agent].filled

    @property
    def stored(self) -> dict[str, np.ndarray]:
        rows = [table.rows() for table in self.tables]
        cells = np.concatenate([cells for cells, _ in rows])
        covered = np.array([table.filled for table in self.tables])
        return {
            "agent": np.repeat(np.arange(len(rows), dtype=np.int32), covered),
            "cell": np.ascontiguousarray(self._unpack(cells, self._axes)),
            "visits": np.concatenate([counts for _, counts in rows]),
            "covered": covered,
        }

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The tables as they are in memory, for a checkpoint."""
        arrays = {}
        for agent, table in enumerate(self.tables):
            arrays[f"cells/{agent}"], arrays[f"cell_visits/{agent}"] = table.rows()
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        for agent in range(len(self.tables)):
            self.tables[agent] = table = CellCounts()
            table.add(arrays[f"cells/{agent}"], arrays[f"cell_visits/{agent}"])


class Window(NamedTuple):
    """A part of the plane in cells, as a picture shows it: X × Y pixels of `every` cells each side,
    from the cell `first` on."""

    first: tuple[int, int]
    shape: tuple[int, int]
    every: int
    size: tuple[float, float]  # sides of a cell

    @property
    def bounds(self) -> list[list[float]]:
        """Lowest and highest value on both axes, as config.json has those of a map."""
        return [
            [side * first, side * (first + self.every * pixels)]
            for first, pixels, side in zip(self.first, self.shape, self.size, strict=True)
        ]


def counted(facts: Mapping[str, Any]) -> str:
    """What the coverage of a run counts, by its config.json or summary.json; older runs, and those
    with a map, do not say it."""
    return NOUNS.get(str(facts.get("coverage_of")), NOUNS["positions"])


def has_map(config: Mapping[str, Any]) -> bool:
    """Whether the visits of the run with this config.json can be drawn."""
    return bool(
        config.get("coverage_axes")
        and (config.get("coverage_bounds") or config.get("coverage_cell_size"))
    )


def window_of(config: Mapping[str, Any], *stored: Stored) -> Window | None:
    """What holds all these visits; None of a map with bounds, which is shown as it is."""
    if config.get("coverage_bounds"):
        return None
    size = config["coverage_cell_size"]
    cells = [_rows(one)[1] for one in stored]
    start = config.get("coverage_start") or [0.0, 0.0]
    begins = np.floor(np.asarray(start, np.float64) / size).astype(np.int64)[None, :]
    together = np.concatenate([*cells, *([begins] if not sum(map(len, cells)) else [])])
    low, high = together.min(axis=0) - MARGIN, together.max(axis=0) + 1 + MARGIN
    every = 1
    while ((high - low) / every).max() > MOST_PIXELS:
        every *= 2
    first = low // every * every
    shape = -(-(high - first) // every)
    return Window(
        (int(first[0]), int(first[1])),
        (int(shape[0]), int(shape[1])),
        every,
        (float(size[0]), float(size[1])),
    )


def bounds_of(config: Mapping[str, Any], window: Window | None) -> Any:
    """Lowest and highest value on both axes of a picture."""
    return config["coverage_bounds"] if window is None else window.bounds


def picture(stored: Stored, window: Window | None) -> Int[np.ndarray, "P X Y"]:
    """Visits per pixel of the window, agent by agent."""
    if window is None or isinstance(stored, np.ndarray):
        assert isinstance(stored, np.ndarray)
        return stored
    agents, cells, visits = _rows(stored)
    shown = np.zeros((num_agents(stored), *window.shape), np.int64)
    pixels = (cells - window.first) // window.every
    inside = ((pixels >= 0) & (pixels < window.shape)).all(axis=1)
    np.add.at(shown, (agents[inside], *pixels[inside].T), visits[inside])
    return shown


def covered_cells(stored: Stored, agents: slice = slice(None)) -> int:
    """Cells that any of these agents has visited."""
    if isinstance(stored, np.ndarray):
        return int(np.count_nonzero(stored[agents].any(axis=0)))
    chosen = np.arange(len(stored["covered"]))[agents]
    return len(np.unique(stored["cell"][np.isin(stored["agent"], chosen)], axis=0))


def num_agents(stored: Stored) -> int:
    return len(stored) if isinstance(stored, np.ndarray) else len(stored["covered"])


def _rows(
    stored: Stored,
) -> tuple[Int[np.ndarray, " N"], Int64[np.ndarray, "N K"], Int64[np.ndarray, " N"]]:
    assert not isinstance(stored, np.ndarray)
    return stored["agent"], stored["cell"], stored["visits"]
