"""The results of a study: numbers, curves, maps and paths, with where they come from, in one JSON
file.

A study's analysis makes a `Results`; the files of its tables (`table_text.py`), the figures and the
page (`report/`) are made from it and from nothing else. So a report can be drawn again, elsewhere,
without the runs.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from element_rl.storage.files import FileError, read_json_object, to_json, write_text
from element_rl.storage.settings import settings_from_json

FILE = "results.json"
# columns of metrics that are numbers of cells, steps and states
COUNTED = ("coverage", "episode_length", "memory_size")


@dataclass(frozen=True)
class Table:
    """Cells are numbers, text or None (not measured)."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    note: str = ""  # how to read it


@dataclass(frozen=True)
class Series:
    """A line with a band around it; None where there is no value."""

    label: str
    x: tuple[float, ...]
    middle: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()  # empty: no band
    high: tuple[float | None, ...] = ()
    ends: tuple[float, ...] = ()  # the last value of every seed, where there are several

    @staticmethod
    def of(
        label: str,
        x: Num[np.ndarray, " T"],
        curve: Iterable[Float[np.ndarray, " T"]],
        seeds: Float[np.ndarray, "R T"],
    ) -> "Series":
        """A line of its middle, or of its middle, low and high, with six digits."""
        last = seeds[:, -1] if seeds.shape[1] and len(seeds) > 1 else np.zeros(0)
        parts = [
            tuple(float(f"{value:.6g}") for value in part)
            for part in (last[np.isfinite(last)], *curve)
        ]
        ends, middle, low, high = (*parts, (), ())[:4]
        return Series(label, tuple(map(float, x)), middle, low, high, ends)


@dataclass(frozen=True)
class Curves:
    """Lines over the same axes."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    note: str = ""  # what line and band are
    # y is a number of cells, steps and the like: no ticks between whole numbers
    counts: bool = False


@dataclass(frozen=True)
class Frame:
    """One picture of a map: the values of the cells that have one, the rest is empty."""

    label: str  # "500k steps", "episode 50"
    index: tuple[int, ...]  # flat index of a cell: column × number of rows + row
    value: tuple[float, ...]

    @staticmethod
    def of(label: str, grid: Any) -> "Frame":
        """The cells of a grid [columns, rows] that are neither 0 nor NaN."""
        flat = np.asarray(grid, np.float64).reshape(-1)
        index = np.flatnonzero(np.isfinite(flat) & (flat != 0))
        return Frame.at(label, index, flat[index])

    @staticmethod
    def at(label: str, index: Num[np.ndarray, " N"], values: Float[np.ndarray, " N"]) -> "Frame":
        """Cells with these indices and values, of which some may be 0."""
        rounded = tuple(float(f"{value:.5g}") for value in values)
        return Frame(label, tuple(index.tolist()), rounded)

    def grid(self, shape: tuple[int, int]) -> Float[np.ndarray, "X Y"]:
        """The grid again, with NaN where it is empty."""
        values = np.full(shape[0] * shape[1], np.nan)
        values[list(self.index)] = self.value
        return values.reshape(shape)


@dataclass(frozen=True)
class Map:
    """A quantity over a plane, as it was at several moments. Column 0 is at the left, row 0 at the
    bottom."""

    name: str
    title: str
    x_label: str
    y_label: str
    bounds: tuple[tuple[float, float], tuple[float, float]]  # low and high of x, of y
    shape: tuple[int, int]  # columns and rows
    value_label: str
    frames: tuple[Frame, ...]
    logarithmic: bool = True
    equal_scales: bool = True  # one unit is as long on both axes
    start: tuple[float, float] | None = None  # where episodes begin
    walls: tuple[int, ...] = ()  # flat indices of cells that cannot be entered
    group: str = ""  # maps of one group belong side by side and share their colours


@dataclass(frozen=True)
class PathGroup:
    """Paths of one kind, all in one colour."""

    label: str
    paths: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class Paths:
    """Ways through a plane, coloured by group from early to late."""

    name: str
    title: str
    x_label: str
    y_label: str
    groups: tuple[PathGroup, ...]
    equal_scales: bool = True
    start: tuple[float, float] | None = None


@dataclass(frozen=True)
class PointGroup:
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Scatter:
    """Points, such as predicted against true values."""

    name: str
    title: str
    x_label: str
    y_label: str
    groups: tuple[PointGroup, ...]
    diagonal: bool = False  # draw y = x
    note: str = ""


@dataclass(frozen=True)
class CellRecord:
    """One cell of the grid and what became of it."""

    name: str
    env: str
    method: str
    seeds: int
    steps: int
    state: str  # done, failed, missing
    seconds: float | None = None
    reason: str = ""  # of a failure
    first_seed: int = 0  # of its agents, who count up from it


@dataclass(frozen=True)
class Results:
    """Everything a study has to show."""

    study: str
    title: str
    question: str  # what the experiment is to tell, one or two sentences
    scale: str
    command: str  # that makes it again
    cells: tuple[CellRecord, ...]
    findings: tuple[str, ...] = ()  # one sentence each, computed from the numbers
    notes: tuple[str, ...] = ()  # what differs from the paper, how it was measured
    tables: tuple[Table, ...] = ()
    curves: tuple[Curves, ...] = ()
    maps: tuple[Map, ...] = ()
    paths: tuple[Paths, ...] = ()
    scatters: tuple[Scatter, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # of the study and of every cell
    provenance: dict[str, Any] = field(default_factory=dict)  # versions, commit, hardware, date

    def map_groups(self) -> list[tuple[Map, ...]]:
        """The maps that have frames by their group, in order; a map without a group is alone."""
        groups: dict[tuple[str, int], list[Map]] = {}
        for position, entry in enumerate(self.maps):
            if entry.frames:
                groups.setdefault((entry.group, -1 if entry.group else position), []).append(entry)
        return [tuple(maps) for maps in groups.values()]


def write_results(folder: Path, results: Results) -> Path:
    """Writes results.json into a study's folder."""
    path = folder / FILE
    # On one line: maps have a hundred thousand numbers, each of which would have a line of its own.
    write_text(path, json.dumps(to_json(results), ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read_results(folder: Path) -> Results:
    """The results in a study's folder, or a sentence about why there are none."""
    path = folder / FILE
    stored = read_json_object(path, "run `element study` first, or name the folder that it printed")
    try:
        return settings_from_json(Results, stored)
    except (TypeError, KeyError, ValueError) as error:
        raise FileError(
            f"The file {path} holds no results of a study ({error}): run `element study` again."
        ) from error
