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
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from element_rl.plots import planes, save_both
from element_rl.plots.legends import draw_legend, draw_shared_legend
from element_rl.plots.lines import SeedEnds, draw_ends, draw_line, thousands
from element_rl.plots.planes import MOST_VECTOR_POINTS, draw_grid, log_scale, visited_part
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
from element_rl.studies.engine.table_text import file_stem

OURS = "element"
REFERENCE = "random"  # a policy, not a method: in grey
MOST_FRAMES = 6  # columns of a figure of maps
PANEL = 2.3  # inches, of a map
LEAST_ASPECT = 1 / 3  # of the part of a map that is shown: no panel is a mere strip


def draw_results(results: Results, folder: Path) -> list[Path]:
    """Draws everything that can be drawn; the files."""
    written = []
    for name, figure in _figures(results):
        written += save_both(figure, folder, name)
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
    drawn += [(maps[0].group or maps[0].name, draw_maps(maps)) for maps in results.map_groups()]
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


@matplotlib.rc_context(STYLE)
def draw_curves(panels: Sequence[Curves], styles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """One panel per `Curves`; the legend stands in the only panel where that has room, or above
    all."""
    rows, columns = panel_grid(len(panels))
    size = (6.0, 3.8) if len(panels) == 1 else (3.4 * columns, 2.7 * rows + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, curves in zip(grid, panels, strict=False):
        ordered = sorted(curves.series, key=lambda series: list(styles).index(series.label))
        ends = [_draw_series(axes, series, styles[series.label]) for series in ordered]
        draw_ends(axes, ends)
        axes.set_title(wrapped_title(curves.title, size[0] / columns))
        axes.set(xlabel=curves.x_label, ylabel=curves.y_label)
        _set_limits(axes, curves)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    if panels[0].note:
        add_note(figure, panels[0].note)
    (draw_legend if len(panels) == 1 else draw_shared_legend)(figure, list(grid[: len(panels)]))
    return figure


def _draw_series(axes: Axes, series: Series, style: Mapping[str, Any]) -> SeedEnds:
    zorder = {"zorder": 3 if series.label == OURS else 2}
    has_band = bool(series.low and series.high)
    band = (_numbers(series.low), _numbers(series.high)) if has_band else ()
    x, middle = np.array(series.x), _numbers(series.middle)
    draw_line(axes, x, middle, band, {**style, **zorder}, series.label)
    return SeedEnds(style["color"], np.array(series.ends))


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
    thousands(axes.xaxis)
    if high >= 10_000:
        thousands(axes.yaxis)


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
    alike = [other for other in maps if (other.bounds, other.shape) == (entry.bounds, entry.shape)]
    visited = np.zeros(entry.shape, bool)
    for frame in (frame for other in alike for frame in other.frames if not entry.walls):
        visited.reshape(-1)[list(frame.index)] = True
    starts = [other.start for other in alike if other.start is not None]
    aspect = LEAST_ASPECT if entry.equal_scales else 0.0
    return visited_part(visited, np.array(entry.bounds, np.float64), starts, aspect)


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
    frame, walls = entry.frames[position], np.zeros(entry.shape, bool)
    walls.reshape(-1)[list(entry.walls)] = True
    draw_grid(axes, frame.grid(entry.shape), entry.bounds, norm, entry.start, 5.0, walls)
    axes.set(xlim=view[0], ylim=view[1], aspect="equal" if entry.equal_scales else "auto")
    axes.locator_params(nbins=4)
    axes.set_title(frame.label, size=8.5, color=QUIET)


@matplotlib.rc_context(STYLE)
def draw_paths(paths: Paths) -> Figure:
    """All paths in one plane, a colour per group from early (dark) to late (light)."""
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.set_title(paths.title)
    axes.set(xlabel=paths.x_label, ylabel=paths.y_label)
    groups = [
        (group.label, [np.asarray(path, np.float64).reshape(-1, 2) for path in group.paths])
        for group in paths.groups
    ]
    planes.draw_paths(figure, axes, groups, paths.start, paths.equal_scales)
    draw_legend(figure, [axes], handletextpad=0.2)
    return figure


@matplotlib.rc_context(STYLE)
def draw_scatter(scatter: Scatter, styles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Points of every group, the diagonal behind them where one is asked for."""
    figure = Figure(figsize=(4.8, 4.6), layout="constrained")
    axes = figure.subplots()
    pixels = sum(len(group.x) for group in scatter.groups) > MOST_VECTOR_POINTS
    look: Any = {"markersize": 4, "alpha": 0.6, "mew": 0, "rasterized": pixels}
    for group in scatter.groups:
        colour = styles[group.label]["color"]
        axes.plot(group.x, group.y, ".", color=colour, label=group.label, **look)
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
