"""What the scripts of a page draw, as small as it can be said.

    curves, scatters    numbers with six digits
    maps                one byte per cell and frame (0 empty, 1 to 254 a value, 255 a wall),
                        deflated, in base64
    paths               positions on a grid of 16,384 × 16,384, differences of 16 bits, deflated, in
                        base64

Maps of a group share their colours, so their bytes count on the same scale. Only the part of the
plane that was visited in the group is kept.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from element_rl.pages import palette
from element_rl.plots.planes import visited_part
from element_rl.studies.engine.results import Curves, Map, Paths, Results, Scatter
from element_rl.studies.report.figures import REFERENCE, series_styles

LEVELS = 254  # values a cell of a map can have
WALL = 255
GRID = 16_383  # largest coordinate of a point of a path
MARGIN = 0.04  # of the visited extent, on each side
LEAST_ASPECT = 0.4  # of the part of a map that is shown, where its bounds allow it


def drawings(results: Results, colours: Mapping[str, int]) -> dict[str, Any]:
    """Everything to draw, ready for JSON."""
    return {
        **palette(),
        "colours": dict(colours),
        "curves": [_curves(item) for item in results.curves],
        "maps": [_map_group(maps) for maps in results.map_groups()],
        "paths": [_paths(item) for item in results.paths],
        "scatters": [_scatter(item) for item in results.scatters],
    }


def colour_indices(results: Results) -> dict[str, int]:
    """Which colour every method and every series has, as in the figures; -1 is grey."""
    methods = [label for label in series_styles(results) if label != REFERENCE]
    methods += [cell.method for cell in results.cells if cell.method not in (*methods, REFERENCE)]
    return {label: rank for rank, label in enumerate(dict.fromkeys(methods))} | {REFERENCE: -1}


def _curves(item: Curves) -> dict[str, Any]:
    series = [
        {
            "label": line.label,
            "x": _short(line.x, digits=8),
            "middle": _short(line.middle),
            "low": _short(line.low),
            "high": _short(line.high),
            "ends": _short(line.ends),
        }
        for line in item.series
    ]
    return {**_labels(item), "counts": item.counts, "series": series}


def _labels(item: Curves | Map | Paths | Scatter) -> dict[str, str]:
    return {"title": item.title, "xLabel": item.x_label, "yLabel": item.y_label}


def _scatter(item: Scatter) -> dict[str, Any]:
    groups = [
        {"label": group.label, "x": _short(group.x), "y": _short(group.y)} for group in item.groups
    ]
    return {**_labels(item), "groups": groups, "diagonal": item.diagonal}


def _map_group(maps: Sequence[Map]) -> dict[str, Any]:
    values = np.array([value for item in maps for frame in item.frames for value in frame.value])
    values = values[np.isfinite(values)] if len(values) else np.ones(1)
    logarithmic = all(item.logarithmic for item in maps) and bool((values > 0).all())
    scale = _Scale(float(values.min()), float(values.max()), logarithmic)
    longest = max(maps, key=lambda item: len(item.frames))
    return {
        "title": group_title(maps),
        "valueLabel": longest.value_label,
        "low": scale.low,
        "high": scale.high,
        "logarithmic": logarithmic,
        "frames": [frame.label for frame in longest.frames],
        "maps": [_map(item, _part_shown(item, maps), scale) for item in maps],
    }


def group_title(maps: Sequence[Map]) -> str:
    """What stands above maps that belong side by side."""
    return maps[0].group or maps[0].title


@dataclass(frozen=True)
class _Scale:
    """Values to levels 1 to LEVELS."""

    low: float
    high: float
    logarithmic: bool

    def levels(self, grid: Float[np.ndarray, "X Y"]) -> UInt8[np.ndarray, "X Y"]:
        warp = np.log if self.logarithmic else np.asarray
        low, high = warp(self.low), warp(self.high)
        share = (
            (warp(grid) - low) / (high - low)
            if high > low
            else np.where(np.isfinite(grid), 1.0, np.nan)
        )
        return np.where(
            np.isfinite(grid), 1 + np.rint(np.nan_to_num(share) * (LEVELS - 1)), 0
        ).astype(np.uint8)


def _map(item: Map, part: Int[np.ndarray, "2 2"], scale: _Scale) -> dict[str, Any]:
    """A map; `part`: from which column and row (inclusive) to which (exclusive) it is shown."""
    columns, rows = (slice(*edges) for edges in part.tolist())
    frames = []
    for frame in item.frames:
        levels = scale.levels(frame.grid(item.shape))
        levels.reshape(-1)[list(item.walls)] = WALL
        # Lines of a picture run from left to right, the top one first.
        frames.append(levels[columns, rows].T[::-1].tobytes())
    low, size = _cell_geometry(item)
    return {
        **_labels(item),
        "limits": low[:, None] + size[:, None] * part,
        "columns": columns.stop - columns.start,
        "rows": rows.stop - rows.start,
        "equalScales": item.equal_scales,
        "start": item.start,
        "walls": bool(item.walls),
        "frames": [frame.label for frame in item.frames],
        "cells": _packed(b"".join(frames)),
    }


def _part_shown(item: Map, group: Sequence[Map]) -> Int[np.ndarray, "2 2"]:
    """The part of the plane where any frame of any such map of the group has something, with a
    margin, in whole cells: from, to."""
    alike = [other for other in group if (other.bounds, other.shape) == (item.bounds, item.shape)]
    used = np.zeros(item.shape, bool)
    for other in alike:
        for index in (other.walls, *(frame.index for frame in other.frames)):
            used.reshape(-1)[list(index)] = True
    starts = [other.start for other in alike if other.start is not None]
    bounds = np.asarray(item.bounds, np.float64)
    aspect = LEAST_ASPECT if item.equal_scales else 0.0
    limits = visited_part(used, bounds, starts, aspect, MARGIN)
    low, size = _cell_geometry(item)
    edges = (limits - low[:, None]) / size[:, None]
    return np.stack([np.floor(edges[:, 0] + 1e-9), np.ceil(edges[:, 1] - 1e-9)], axis=1).astype(int)


def _cell_geometry(item: Map) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """The lower left corner of a map, and the sides of its cells."""
    low, high = np.asarray(item.bounds, np.float64).T
    return low, (high - low) / item.shape


def _paths(item: Paths) -> dict[str, Any]:
    ways = [[_finite(path) for path in group.paths] for group in item.groups]
    corners = [way for group in ways for way in group] + (
        [np.asarray([item.start])] if item.start else []
    )
    points = np.concatenate([np.zeros((0, 2)), *corners])
    points = points if len(points) else np.asarray([[0.0, 0.0], [1.0, 1.0]])
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    groups = []
    for group, group_ways in zip(item.groups, ways, strict=True):
        steps = [_grid_steps(way, low, span) for way in group_ways if len(way)]
        packed = _packed(np.concatenate([np.zeros((0, 2), "<i2"), *steps]).astype("<i2").tobytes())
        groups.append(
            {"label": group.label, "lengths": [len(step) for step in steps], "points": packed}
        )
    return {
        **_labels(item),
        "equalScales": item.equal_scales,
        "start": item.start,
        "low": low,
        "span": span,
        "grid": GRID,
        "groups": groups,
    }


def _finite(path: Iterable[Sequence[float | None]]) -> Float[np.ndarray, "T 2"]:
    points = np.asarray([tuple(point) for point in path], np.float64).reshape(-1, 2)
    return points[np.isfinite(points).all(axis=1)]


def _grid_steps(
    way: Float[np.ndarray, "T 2"], low: Float[np.ndarray, "2"], span: Float[np.ndarray, "2"]
) -> Int[np.ndarray, "M 2"]:
    """A path as its first grid point and the steps from there; steps that lead nowhere are left
    out."""
    places = np.rint((way - low[None]) / span[None] * GRID).astype(np.int64)
    steps = np.diff(places, axis=0, prepend=0)
    moved = steps.any(axis=1)
    moved[0] = True
    return steps[moved]


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _short(values: Sequence[float | None], digits: int = 6) -> list[float | int | None]:
    """Numbers with so many digits, whole ones without a point; None for what is not finite."""
    rounded = [
        None if value is None or not np.isfinite(value) else float(f"{value:.{digits}g}")
        for value in values
    ]
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]
