"""What figures over the plane of a map share: its axes, the part that is shown, grids and paths."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from element_rl.plots.style import START, literal

START_MARK: Any = {
    "marker": "o",
    "markersize": 7,
    "markerfacecolor": START,
    "markeredgecolor": "white",
    "markeredgewidth": 1.2,
    "linestyle": "none",
    "label": "start",
    "zorder": 5,
}
WALL = "#444444"
LONGEST_MAP = 3.0  # sides of a map, one over the other, up to which both have the same scale
CROP_MARGIN = 0.08  # of the visited extent, on each side
MOST_LABELS = 10  # of the fields of a colour scale
# paths with more points than this are drawn as pixels, also in SVG
MOST_VECTOR_POINTS = 200_000


def axis_labels(config: Mapping[str, Any]) -> tuple[str, str]:
    """What stands along the axes of a map, of the settings of a run that has one."""
    unit = unit_of(config)
    names = map(literal, config["coverage_axes"])
    first, second = (f"{name} ({unit})" if unit else name for name in names)
    return first, second


def unit_of(config: Mapping[str, Any]) -> str:
    """Of positions: metres for robots, which do not say it."""
    return literal(config.get("coverage_unit", "m"))


def equal_scales(config: Mapping[str, Any], bounds: Any = None) -> bool:
    """Whether one unit should be as long on both axes: not where one is a height, nor where the map
    would be a mere strip. `bounds`: of the part that is shown, of a map without any."""
    if list(config["coverage_axes"]) != ["x", "y"]:
        return False
    sides = [high - low for low, high in config.get("coverage_bounds") or bounds or ()]
    return not sides or max(sides) <= LONGEST_MAP * min(sides)


def coverage_start(config: Mapping[str, Any]) -> list[float] | None:
    """Where episodes begin, as a run says it. Older runs do not: robots began in the middle of
    their x–y plane."""
    bounds = config.get("coverage_bounds") or ()
    centred = bool(bounds) and all(low == -high for low, high in bounds)
    start = config.get("coverage_start", [0, 0] if centred else None)
    return None if start is None else [float(coordinate) for coordinate in start]


def visited_part(
    visited: Bool[np.ndarray, "X Y"],
    bounds: Float[np.ndarray, "2 2"],
    starts: Sequence[Sequence[float]],
    least_aspect: float = 0.0,
    margin: float = CROP_MARGIN,
) -> Float[np.ndarray, "2 2"]:
    """The visited part of a map within its bounds, [[low, high], [low, high]], with the starts and
    a margin. Its shorter side is at least `least_aspect` of the longer, where the bounds allow it.
    Where nothing was visited, all of the map."""
    if not visited.any():
        return bounds
    cell = (bounds[:, 1] - bounds[:, 0]) / visited.shape
    lines = [np.flatnonzero(visited.any(axis=other)) for other in (1, 0)]
    corners = [
        bounds[:, 0] + cell * [line[0] for line in lines],
        bounds[:, 0] + cell * [line[-1] + 1 for line in lines],
        *map(np.asarray, starts),
    ]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    size = (high - low) * (1 + 2 * margin)
    size = np.maximum(size, least_aspect * size.max())
    centre = (low + high) / 2
    part = np.stack([centre - size / 2, centre + size / 2], axis=1)
    return np.clip(part, bounds[:, :1], bounds[:, 1:])


def log_scale(values: Float[np.ndarray, " N"]) -> LogNorm:
    """A logarithmic scale of values above 0; a decade where all values are the same."""
    low, high = float(values.min()), float(values.max())
    return LogNorm(low if high > low else high / 10, high)


def draw_grid(
    axes: Axes,
    values: Float[np.ndarray, "X Y"],
    bounds: Any,
    norm: Normalize,
    start: Sequence[float | int] | None = None,
    start_size: float = 6.0,
    walls: Bool[np.ndarray, "X Y"] | None = None,
) -> ScalarMappable:
    """Values of cells as colours, NaN left white, with walls and the start."""
    (left, right), (low, high) = bounds
    # where cells are smaller than pixels, other interpolations smear them
    placed: Any = {"origin": "lower", "interpolation": "nearest"}
    placed["extent"] = (left, right, low, high)
    # Rows of an image run along its vertical axis, the first axis of the grid along the horizontal
    # one.
    image = axes.imshow(values.T, norm=norm, cmap="viridis_r", **placed)
    if walls is not None and walls.any():
        shown = np.where(walls, 1.0, np.nan).T
        axes.imshow(shown, cmap=ListedColormap([WALL]), **placed)
    if start is not None:
        axes.plot(*start, **START_MARK | {"markersize": start_size})
    axes.grid(visible=False)
    return image


def draw_paths(
    figure: Figure,
    axes: Axes,
    groups: Sequence[tuple[str, Sequence[Float[np.ndarray, "_ 2"]]]],
    start: Sequence[float] | None,
    equal: bool,
    scale_title: str = "",
) -> None:
    """Paths in the plane, a colour per group, each with its label, from early (dark) to late
    (light). `equal`: one unit is as long on both axes."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(groups)))
    pixels = sum(len(path) for _, paths in groups for path in paths) > MOST_VECTOR_POINTS
    for colour, (_, paths) in zip(colours, groups, strict=True):
        axes.add_collection(
            LineCollection(paths, colors=[colour], linewidths=1.0, alpha=0.9, rasterized=pixels)
        )
    if start is not None:
        axes.plot(*start, **START_MARK)
    axes.autoscale_view()
    if equal:
        axes.set_aspect("equal", adjustable="datalim")
    _draw_field_scale(figure, axes, colours, [label for label, _ in groups], scale_title)


def _draw_field_scale(
    figure: Figure,
    axes: Axes,
    colours: Float[np.ndarray, "C 4"],
    labels: Sequence[str],
    title: str,
) -> None:
    """A colour scale with one field of the same height for each label. Of many, every second or
    third is written."""
    fields = ScalarMappable(
        BoundaryNorm(np.arange(len(labels) + 1) - 0.5, len(labels)), ListedColormap(colours)
    )
    every = -(-len(labels) // MOST_LABELS)
    shown = np.arange(len(labels) - 1, -1, -every)[::-1]  # the last one always
    bar = figure.colorbar(fields, ax=axes, label=title, ticks=shown, shrink=0.9, pad=0.02)
    bar.ax.set_yticklabels([labels[position] for position in shown])
    bar.ax.tick_params(which="both", length=0)
