"""What the scripts of a page draw, as small as it can be said.

    curves, scatters    numbers with six digits
    maps                one byte per cell and frame (0 empty, 1 to 254 a value, 255 a wall), deflated, in base64
    paths               positions on a grid of 16,384 × 16,384, differences of 16 bits, deflated, in base64

Maps of a group share their colours, so their bytes count on the same scale. Only the part of the
plane that was visited in the group is kept.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float, Int, UInt8

from element_rl.plots.style import COLOURS
from element_rl.studies.engine.results import Curves, Map, Paths, Results, Scatter
from element_rl.studies.figures import REFERENCE, series_styles

LEVELS = 254  # values a cell of a map can have
WALL = 255
GRID = 16_383  # largest coordinate of a point of a path
MARGIN = 0.04  # of the visited extent, on each side
LEAST_ASPECT = 0.4  # of the part of a map that is shown, where its bounds allow it


@dataclass(frozen=True)
class MapGroup:
    """Maps that belong side by side."""

    title: str
    maps: tuple[Map, ...]


def drawings(results: Results, colours: Mapping[str, int]) -> dict[str, Any]:
    """Everything to draw, ready for JSON."""
    viridis = (
        (matplotlib.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3] * 255)
        .round()
        .astype(np.uint8)
    )
    return {
        "colours": dict(colours),
        "seriesColours": len(COLOURS),
        "viridis": viridis.tobytes().hex(),
        "curves": [_curves(item) for item in results.curves],
        "maps": [_map_group(group) for group in map_groups(results)],
        "paths": [_paths(item) for item in results.paths],
        "scatters": [_scatter(item) for item in results.scatters],
    }


def colour_indices(results: Results) -> dict[str, int]:
    """Which colour every method and every series has, as in the figures; -1 is grey."""
    methods = [label for label in series_styles(results) if label != REFERENCE]
    methods += [cell.method for cell in results.cells if cell.method not in (*methods, REFERENCE)]
    return {label: rank for rank, label in enumerate(dict.fromkeys(methods))} | {REFERENCE: -1}


def map_groups(results: Results) -> list[MapGroup]:
    """The maps of a study by their group, in order; a map without one stands alone."""
    groups: dict[tuple[str, int], list[Map]] = {}
    for position, item in enumerate(results.maps):
        if item.frames:
            groups.setdefault((item.group, -1 if item.group else position), []).append(item)
    return [MapGroup(group or maps[0].title, tuple(maps)) for (group, _), maps in groups.items()]


def _curves(item: Curves) -> dict[str, Any]:
    series = [
        {
            "label": line.label,
            "x": _short(line.x, digits=8),
            "middle": _short(line.middle),
            "low": _short(line.low),
            "high": _short(line.high),
        }
        for line in item.series
    ]
    labels = {"title": item.title, "xLabel": item.x_label, "yLabel": item.y_label}
    return {**labels, "counts": item.counts, "series": series}


def _scatter(item: Scatter) -> dict[str, Any]:
    groups = [
        {"label": group.label, "x": _short(group.x), "y": _short(group.y)} for group in item.groups
    ]
    return {
        "title": item.title,
        "xLabel": item.x_label,
        "yLabel": item.y_label,
        "groups": groups,
        "diagonal": item.diagonal,
    }


def _map_group(group: MapGroup) -> dict[str, Any]:
    values = np.concatenate(
        [np.zeros(0), *(np.asarray(frame.value) for item in group.maps for frame in item.frames)]
    )
    values = values[np.isfinite(values)] if len(values) else np.ones(1)
    logarithmic = all(item.logarithmic for item in group.maps) and bool((values > 0).all())
    scale = _Scale(float(values.min()), float(values.max()), logarithmic)
    longest = max(group.maps, key=lambda item: len(item.frames))
    return {
        "title": group.title,
        "valueLabel": longest.value_label,
        "low": scale.low,
        "high": scale.high,
        "logarithmic": logarithmic,
        "frames": [frame.label for frame in longest.frames],
        "maps": [_map(item, _part_shown(item, group.maps), scale) for item in group.maps],
    }


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


@dataclass(frozen=True)
class _Part:
    """Columns and rows of a map that are shown: from (inclusive), to (exclusive)."""

    columns: tuple[int, int]
    rows: tuple[int, int]


def _map(item: Map, part: _Part, scale: _Scale) -> dict[str, Any]:
    frames = []
    for frame in item.frames:
        levels = scale.levels(frame.grid(item.shape))
        levels.reshape(-1)[list(item.walls)] = WALL
        # Lines of a picture run from left to right, the top one first.
        frames.append(levels[slice(*part.columns), slice(*part.rows)].T[::-1].tobytes())
    shown = (part.columns, part.rows)
    cell = [
        (high - low) / count for (low, high), count in zip(item.bounds, item.shape, strict=True)
    ]
    limits = [
        [low + size * edge for edge in edges]
        for (low, _), size, edges in zip(item.bounds, cell, shown, strict=True)
    ]
    return {
        "title": item.title,
        "xLabel": item.x_label,
        "yLabel": item.y_label,
        "limits": limits,
        "columns": part.columns[1] - part.columns[0],
        "rows": part.rows[1] - part.rows[0],
        "equalScales": item.equal_scales,
        "start": item.start,
        "walls": bool(item.walls),
        "frames": [frame.label for frame in item.frames],
        "cells": _packed(b"".join(frames)),
    }


def _part_shown(item: Map, group: Sequence[Map]) -> _Part:
    """The part of the plane where any frame of any such map of the group has something, with a
    margin."""
    alike = [other for other in group if (other.bounds, other.shape) == (item.bounds, item.shape)]
    indices = {index for other in alike for frame in other.frames for index in frame.index}
    indices |= {index for other in alike for index in other.walls}
    cells = (
        np.stack(np.unravel_index(sorted(indices), item.shape), axis=1)
        if indices
        else np.zeros((0, 2), np.int64)
    )
    low, high = (
        (cells.min(axis=0), cells.max(axis=0) + 1)
        if indices
        else (np.zeros(2, np.int64), np.asarray(item.shape))
    )
    for other in alike:
        if other.start is not None:
            place = [
                int((at - edge) / (end - edge) * count)
                for at, (edge, end), count in zip(other.start, item.bounds, item.shape, strict=True)
            ]
            low, high = np.minimum(low, place), np.maximum(high, np.asarray(place) + 1)
    low, high = _widened(low, high, item)
    return _Part((int(low[0]), int(high[0])), (int(low[1]), int(high[1])))


def _widened(
    low: Int[np.ndarray, "2"], high: Int[np.ndarray, "2"], item: Map
) -> tuple[Int[np.ndarray, "2"], Int[np.ndarray, "2"]]:
    """A margin all around, and more along the shorter axis of a strip, as far as the map goes."""
    cell = np.asarray(
        [(end - start) / count for (start, end), count in zip(item.bounds, item.shape, strict=True)]
    )
    size = (high - low) * (1 + 2 * MARGIN)
    if item.equal_scales:
        size = np.maximum(size, LEAST_ASPECT * (size * cell).max() / cell)
    centre = (low + high) / 2
    return (
        np.maximum(np.floor(centre - size / 2), 0).astype(np.int64),
        np.minimum(np.ceil(centre + size / 2), item.shape).astype(np.int64),
    )


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
        "title": item.title,
        "xLabel": item.x_label,
        "yLabel": item.y_label,
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
