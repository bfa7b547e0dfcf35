"""Figures of a study, drawn from its `Results` and from nothing else, as PNG and SVG.

    curves      one figure each, and those of the same quantity side by side in one more, NAME_all
    maps        a row per map of a group, a column per moment; one colour scale for the group
    paths       groups of paths from early (dark) to late (light)
    scatters    points, with the diagonal where there is one

A method has the same colour in all figures of a study, and `element` the first one. The same
results give the same files.
"""

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from element_rl.plots import save_figure
from element_rl.plots.legends import draw_legend, draw_shared_legend
from element_rl.plots.maps import (
    CROP_MARGIN,
    MOST_VECTOR_POINTS,
    START_MARK,
    draw_field_scale,
    log_scale,
)
from element_rl.plots.style import (
    DASHES,
    QUIET,
    STYLE,
    add_note,
    line_style,
    panel_grid,
    whole_ticks,
    wrapped_title,
)
from element_rl.studies.engine.results import Curves, Map, Paths, Results, Scatter, Series
from element_rl.studies.engine.tables import file_stem

OURS = "element"
REFERENCE = "random"  # a policy, not a method: in grey
WALL = "#444444"
MOST_FRAMES = 6  # columns of a figure of maps
PANEL = 2.3  # inches, of a map


def draw_results(results: Results, folder: Path) -> list[Path]:
    """Draws everything that can be drawn; the files."""
    written = []
    for name, figure in _figures(results):
        written += [save_figure(figure, folder / f"{name}.{kind}") for kind in ("png", "svg")]
    return written


def series_styles(results: Results) -> dict[str, dict[str, Any]]:
    """Colour and dashes of every label in the curves and scatters of a study, as matplotlib takes
    them."""
    lines = [series.label for curves in results.curves for series in curves.series]
    points = [group.label for scatter in results.scatters for group in scatter.groups]
    labels = list(dict.fromkeys([*lines, *points]))
    methods = sorted(
        (label for label in labels if label != REFERENCE), key=lambda label: label != OURS
    )
    styles = {label: line_style(rank) for rank, label in enumerate(methods)}
    return styles | {REFERENCE: {"color": QUIET, "linestyle": DASHES[1]}}


def _figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """Every figure with the name of its files; a name that is taken gets a number."""
    styles = series_styles(results)
    drawn: list[tuple[str, Figure]] = [
        (curves.name, draw_curves([curves], styles)) for curves in results.curves
    ]
    for group in _of_one_quantity(results.curves):
        drawn.append(
            (f"{_shared_beginning(group) or results.study}_all", draw_curves(group, styles))
        )
    drawn += [
        (maps[0].group or maps[0].name, draw_maps(maps)) for maps in _map_groups(results.maps)
    ]
    drawn += [(paths.name, draw_paths(paths)) for paths in results.paths if paths.groups]
    drawn += [(scatter.name, draw_scatter(scatter, styles)) for scatter in results.scatters]
    taken: set[str] = set()
    for name, figure in drawn:
        stem = file_stem(name)
        free = next(
            candidate
            for candidate in (stem, *(f"{stem}_{n}" for n in range(2, 10_000)))
            if candidate not in taken
        )
        taken.add(free)
        yield free, figure


def _of_one_quantity(all_curves: Sequence[Curves]) -> list[list[Curves]]:
    """Curves over the same axes, where there are several."""
    groups: dict[tuple[str, str], list[Curves]] = {}
    for curves in all_curves:
        groups.setdefault((curves.x_label, curves.y_label), []).append(curves)
    return [group for group in groups.values() if len(group) > 1]


def _shared_beginning(group: Sequence[Curves]) -> str:
    """The words, between underscores, that all names begin with."""
    positions = itertools.takewhile(
        lambda words: len(set(words)) == 1,
        zip(*(curves.name.split("_") for curves in group), strict=False),
    )
    return "_".join(words[0] for words in positions)


def _map_groups(maps: Sequence[Map]) -> list[list[Map]]:
    groups: dict[str, list[Map]] = {}
    for position, entry in enumerate(entry for entry in maps if entry.frames):
        groups.setdefault(f"group {entry.group}" if entry.group else f"map {position}", []).append(
            entry
        )
    return list(groups.values())


@matplotlib.rc_context(STYLE)
def draw_curves(panels: Sequence[Curves], styles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One panel per `Curves`; the legend stands in the only panel where that has room, or above
    all."""
    rows, columns = panel_grid(len(panels))
    size = (6.0, 3.8) if len(panels) == 1 else (3.4 * columns, 2.7 * rows + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, curves in zip(grid, panels, strict=False):
        for series in sorted(curves.series, key=lambda series: list(styles).index(series.label)):
            _draw_series(axes, series, styles[series.label])
        axes.set_title(wrapped_title(curves.title, size[0] / columns))
        axes.set(xlabel=curves.x_label, ylabel=curves.y_label)
        _set_limits(axes, curves)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    if panels[0].note:
        add_note(figure, panels[0].note)
    (draw_legend if len(panels) == 1 else draw_shared_legend)(figure, list(grid[: len(panels)]))
    return figure


def _draw_series(axes: Axes, series: Series, style: Mapping[str, Any]) -> None:
    x, middle = np.array(series.x), _numbers(series.middle)
    marker = "o" if np.isfinite(middle).sum() == 1 else None
    zorder = 3 if series.label == OURS else 2
    axes.plot(x, middle, label=series.label, marker=marker, zorder=zorder, **style)
    if series.low and series.high:
        low, high = _numbers(series.low), _numbers(series.high)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _numbers(values: Sequence[float | None]) -> Float[np.ndarray, " T"]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _set_limits(axes: Axes, curves: Curves) -> None:
    """Time from its beginning, quantities from 0 where they are not negative and 0 is not far."""
    axes.margins(x=0.0)
    if axes.dataLim.x0 >= 0:
        axes.set_xlim(left=0)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if 0 <= low < 0.7 * high:
        axes.set_ylim(bottom=0.0)
    if all(x == int(x) for series in curves.series for x in series.x):
        whole_ticks(axes.xaxis)
    if curves.counts:
        whole_ticks(axes.yaxis)
        bottom, top = axes.get_ylim()
        axes.set_ylim(
            np.floor(bottom) if top - bottom < 2 else bottom,
            np.ceil(top) if top - bottom < 2 else top,
        )
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if high >= 10_000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


@matplotlib.rc_context(STYLE)
def draw_maps(maps: Sequence[Map]) -> Figure:
    """A row per map, a column per frame (some of them if there are many)."""
    chosen = [_chosen(len(entry.frames)) for entry in maps]
    columns = max(len(frames) for frames in chosen)
    limits = [_limits(entry, maps) for entry in maps]
    heights = [
        PANEL * _height_over_width(entry, view) for entry, view in zip(maps, limits, strict=True)
    ]
    size = (PANEL * columns + 1.6, sum(heights) + 0.5 * len(maps) + 0.2)
    # panels of a fixed shape stand close together
    figure = Figure(figsize=size, layout="compressed")
    grid = figure.subplots(len(maps), columns, squeeze=False, height_ratios=heights)
    norm = _norm(maps)
    for row, (entry, frames, view) in enumerate(zip(maps, chosen, limits, strict=True)):
        for axes, position in zip(grid[row], frames, strict=False):
            _draw_frame(axes, entry, position, view, norm)
        for axes in grid[row, len(frames) :]:
            axes.set_visible(False)
        for axes in grid[row, 1 : len(frames)]:
            axes.set_yticklabels([])
        title = textwrap.fill(entry.title, max(int(heights[row] * 13), 12))
        grid[row, 0].set_ylabel(f"{title}\n{entry.y_label}")
        is_last = row == len(maps) - 1 or maps[row + 1].bounds != entry.bounds
        for axes in grid[row, : len(frames)]:
            axes.set_xlabel(entry.x_label if is_last else "")
    label = (
        f"{maps[0].value_label} (log scale)" if isinstance(norm, LogNorm) else maps[0].value_label
    )
    shrink = min(1.0, 4.0 / sum(heights))
    figure.colorbar(
        ScalarMappable(norm, "viridis_r"),
        ax=grid.ravel().tolist(),
        label=label,
        shrink=shrink,
        pad=0.02,
    )
    return figure


def _chosen(frames: int) -> list[int]:
    """At most `MOST_FRAMES` moments, the first and the last among them."""
    return sorted(
        set(np.linspace(0, frames - 1, min(frames, MOST_FRAMES)).round().astype(int).tolist())
    )


def _limits(entry: Map, maps: Sequence[Map]) -> Float[np.ndarray, "2 2"]:
    """The part of the plane that any map of the group over the same grid needs; all of it where
    there are walls."""
    bounds = np.array(entry.bounds, np.float64)
    alike = [other for other in maps if (other.bounds, other.shape) == (entry.bounds, entry.shape)]
    used = np.unique(
        [cell for other in alike for frame in other.frames for cell in frame.index]
    ).astype(int)
    if entry.walls or not len(used):
        return bounds
    cells = np.stack(np.unravel_index(used, entry.shape), axis=1)
    side = (bounds[:, 1] - bounds[:, 0]) / entry.shape
    corners = [
        bounds[:, 0] + side * cells.min(axis=0),
        bounds[:, 0] + side * (cells.max(axis=0) + 1),
    ]
    corners += [np.array(other.start) for other in alike if other.start is not None]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    size = (high - low) * (1 + 2 * CROP_MARGIN)
    # no panel is a mere strip
    size = np.maximum(size, size.max() / 3) if entry.equal_scales else size
    centre = (low + high) / 2
    return np.clip(
        np.stack([centre - size / 2, centre + size / 2], axis=1), bounds[:, :1], bounds[:, 1:]
    )


def _height_over_width(entry: Map, view: Float[np.ndarray, "2 2"]) -> float:
    width, height = view[:, 1] - view[:, 0]
    return float(np.clip(height / width, 0.2, 2.0)) if entry.equal_scales else 0.75


def _norm(maps: Sequence[Map]) -> Normalize:
    """One scale for all frames; logarithmic where asked for and possible."""
    values = np.array(
        [value for entry in maps for frame in entry.frames for value in frame.value] or [1.0]
    )
    if all(entry.logarithmic for entry in maps) and (values > 0).any():
        return log_scale(values[values > 0])
    low, high = min(values.min(), 0.0), values.max()
    return Normalize(low, high if high > low else low + 1.0)


def _draw_frame(
    axes: Axes, entry: Map, position: int, view: Float[np.ndarray, "2 2"], norm: Normalize
) -> None:
    frame = entry.frames[position]
    (left, right), (low, high) = entry.bounds
    placed: Any = {"origin": "lower", "extent": (left, right, low, high), "interpolation": "none"}
    # Rows of an image run along its vertical axis, the first axis of the grid along the horizontal
    # one.
    axes.imshow(frame.grid(entry.shape).T, norm=norm, cmap="viridis_r", **placed)
    if entry.walls:
        walls = np.full(entry.shape[0] * entry.shape[1], np.nan)
        walls[list(entry.walls)] = 1.0
        axes.imshow(walls.reshape(entry.shape).T, cmap=ListedColormap([WALL]), **placed)
    if entry.start is not None:
        axes.plot(*entry.start, **START_MARK | {"markersize": 5})
    axes.set(xlim=view[0], ylim=view[1], aspect="equal" if entry.equal_scales else "auto")
    axes.grid(visible=False)
    axes.locator_params(nbins=4)
    axes.set_title(frame.label, size=8.5, color=QUIET)


@matplotlib.rc_context(STYLE)
def draw_paths(paths: Paths) -> Figure:
    """All paths in one plane, a colour per group from early (dark) to late (light)."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(paths.groups)))
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    axes = figure.subplots()
    pixels = sum(len(path) for group in paths.groups for path in group.paths) > MOST_VECTOR_POINTS
    for colour, group in zip(colours, paths.groups, strict=True):
        lines = [np.asarray(path, np.float64).reshape(-1, 2) for path in group.paths]
        axes.add_collection(
            LineCollection(lines, colors=[colour], linewidths=1.0, alpha=0.9, rasterized=pixels)
        )
    if paths.start is not None:
        axes.plot(*paths.start, **START_MARK)
    axes.autoscale_view()
    if paths.equal_scales:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_title(paths.title)
    axes.set(xlabel=paths.x_label, ylabel=paths.y_label)
    draw_field_scale(figure, axes, colours, [group.label for group in paths.groups])
    draw_legend(figure, [axes], handletextpad=0.2)
    return figure


@matplotlib.rc_context(STYLE)
def draw_scatter(scatter: Scatter, styles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Points of every group, the diagonal behind them where one is asked for."""
    figure = Figure(figsize=(4.8, 4.6), layout="constrained")
    axes = figure.subplots()
    pixels = sum(len(group.x) for group in scatter.groups) > MOST_VECTOR_POINTS
    for group in scatter.groups:
        colour = styles[group.label]["color"]
        axes.plot(
            group.x,
            group.y,
            ".",
            color=colour,
            markersize=4,
            alpha=0.6,
            mew=0,
            label=group.label,
            rasterized=pixels,
        )
    if scatter.diagonal:
        axes.axline((0, 0), slope=1, color=QUIET, linewidth=1.0, zorder=1)
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_title(scatter.title)
    axes.set(xlabel=scatter.x_label, ylabel=scatter.y_label)
    if len(scatter.groups) > 1:
        axes.legend(loc="best", markerscale=2.5, handletextpad=0.2)
    if scatter.note:
        add_note(figure, scatter.note)
    return figure
