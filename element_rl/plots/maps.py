"""Where in the plane of its coverage axes a run has been: visits per cell, and single episodes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, Num
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure

from element_rl.plots.legends import draw_legend
from element_rl.plots.style import (
    QUIET,
    START,
    STYLE,
    Run,
    figure_title,
    opened,
    steps_text,
    wrapped_title,
)
from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.files import read_arrays

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
MOST_SEEDS_SHOWN = 5
LONGEST_MAP = 3.0  # sides of a map, one over the other, up to which both have the same scale
CROP_MARGIN = 0.08  # of the visited extent, on each side
MOST_LABELS = 10  # of the fields of a colour scale
# trajectories with more points than this are drawn as pixels, also in SVG
MOST_VECTOR_POINTS = 200_000


@matplotlib.rc_context(STYLE)
def density_map(run: Run, step: int | None = None) -> Figure:
    """Share of all visits that fell on each coverage cell, up to a checkpoint (default: the
    newest).

    Beside it, on the same scales, the map of the random policy that the run was compared with,
    where it has one.
    """
    (folder,) = opened([run])
    bounds, names = _coverage_grid(folder)
    step = folder.latest_checkpoint() if step is None else step
    visits = folder.load_visits(step)
    if not visits.any():
        raise RunError(f"The run {folder.path} has visited no coverage cell up to step {step}.")
    start, alike = coverage_start(folder.config), equal_scales(folder.config)
    together = _shares(visits.sum(axis=0))
    random = folder.read_random_visits() if step == folder.latest_checkpoint() else None
    by_chance = None if random is None else _shares(random.sum(axis=0))
    alone = [_shares(seed) for seed in visits[:MOST_SEEDS_SHOWN]] if len(visits) > 1 else []
    shown = visits.sum(axis=0) if random is None else visits.sum(axis=0) + random.sum(axis=0)
    view = _View(bounds, _crop(shown, bounds, alike, start), start, alike)
    drawn = [together, *alone, *([] if by_chance is None else [by_chance])]
    norm = log_scale(np.concatenate([shares[shares > 0] for shares in drawn]))

    said = f"{figure_title([folder], with_reward=True)} · {steps_text(step or 0)} steps per seed"
    said = f"{said} · {_cells(together)}" if len(visits) == 1 else said
    title = wrapped_title(said, 4.75 if by_chance is None else 4.15)  # beside it stands another
    above = 0.18 * title.count("\n")

    # Placed by hand, in inches: automatic layouts lose the labels of axes whose shape is fixed.
    width, height = 5.5 if by_chance is None else 9.6, (6.0 if alone else 4.9) + above
    figure = Figure(figsize=(width, height))
    bottom = 1 - (4.35 + above) / height
    axes = figure.add_axes((0.75 / width, bottom, 3.8 / width, 3.8 / height))
    image = _draw_density(axes, together, view, norm)
    rightmost = axes
    if by_chance is not None:
        rightmost = figure.add_axes((4.8 / width, bottom, 3.8 / width, 3.8 / height))
        _draw_density(rightmost, by_chance, view, norm)
        rightmost.set_title(f"random policy · {_cells(by_chance)}\n")
        rightmost.set(xlabel=axis_labels(folder.config)[0], yticklabels=[])
        rightmost.locator_params(nbins=6)
    figure.colorbar(
        image, cax=rightmost.inset_axes((1.03, 0, 0.035, 1)), label="share of visits (log scale)"
    )
    axes.set_title(f"{title}\n")
    x_label, y_label = axis_labels(folder.config)
    described = _described(view, names, visits.shape, _unit(folder.config))
    size = 8 if by_chance is None else 7  # beside another map there is less room
    axes.text(0, 1.02, described, transform=axes.transAxes, color=QUIET, size=size)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.locator_params(nbins=6)
    if start is not None:  # below the map, which may be full
        axes.legend(
            loc="upper right", bbox_to_anchor=(1.0, -0.065), borderaxespad=0.0, handletextpad=0.2
        )
    first = folder.config.get("settings", {}).get("seed", 0)
    for place, share in enumerate(alone):
        panel = figure.add_axes(
            ((0.75 + 0.77 * place) / width, 0.28 / height, 0.72 / width, 0.72 / height)
        )
        _draw_density(panel, share, view, norm, start_size=3.5)
        panel.set_title(f"seed {first + place}", size=7.5, pad=3)
        panel.set_xlabel(_cells(share), size=7.5)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color="#BBBBBB")
    if (more := len(visits) - MOST_SEEDS_SHOWN) > 0:
        figure.text(
            4.67 / width,
            0.64 / height,
            f"and {more}\nmore seed{'s' if more > 1 else ''}",
            size=7.5,
            color=QUIET,
        )
    return figure


@matplotlib.rc_context(STYLE)
def trajectories(run: Run) -> Figure:
    """Episodes of the policies of all evaluated checkpoints, from early (dark) to late (light)."""
    (folder,) = opened([run])
    found = _positions(folder)
    steps = sorted(found)
    _coverage_grid(folder)  # or a sentence that there is none
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(steps)))
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    axes = figure.subplots()
    pixels = sum(array.shape[0] * array.shape[1] for array in found.values()) > MOST_VECTOR_POINTS
    for colour, step in zip(colours, steps, strict=True):
        episodes = [episode[np.isfinite(episode).all(axis=1)] for episode in found[step]]
        axes.add_collection(
            LineCollection(episodes, colors=[colour], linewidths=1.0, alpha=0.9, rasterized=pixels)
        )
    starts = np.concatenate([array[:, 0] for array in found.values()])
    axes.plot(*np.nanmean(starts, axis=0), **START_MARK)
    axes.autoscale_view()
    if equal_scales(folder.config):
        axes.set_aspect("equal", adjustable="datalim")
    said = f"{figure_title([folder], with_reward=True)} · {sum(map(len, found.values()))} episodes"
    axes.set_title(wrapped_title(said, 4.6))  # the map's own width, without the colour bar
    x_label, y_label = axis_labels(folder.config)
    axes.set(xlabel=x_label, ylabel=y_label)
    labels = [steps_text(step) for step in steps]
    draw_field_scale(figure, axes, colours, labels, "policy after this many steps")
    draw_legend(figure, [axes], handletextpad=0.2)
    return figure


def axis_labels(config: Mapping[str, Any]) -> tuple[str, str]:
    """What stands along the axes of a map, of the settings of a run that has one."""
    first, second = (
        f"{name} ({unit})" if (unit := _unit(config)) else name for name in config["coverage_axes"]
    )
    return first, second


def equal_scales(config: Mapping[str, Any]) -> bool:
    """Whether one unit should be as long on both axes: not where one is a height, nor where the map
    would be a mere strip."""
    sides = [high - low for low, high in config["coverage_bounds"]]
    return list(config["coverage_axes"]) == ["x", "y"] and max(sides) <= LONGEST_MAP * min(sides)


def coverage_start(config: Mapping[str, Any]) -> list[float] | None:
    """Where episodes begin, as a run says it. Older runs do not: robots began in the middle of
    their x–y plane."""
    centred = all(low == -high for low, high in config["coverage_bounds"])
    start = config.get("coverage_start", [0, 0] if centred else None)
    return None if start is None else [float(coordinate) for coordinate in start]


def _unit(config: Mapping[str, Any]) -> str:
    """Of positions: metres for robots, which do not say it."""
    return str(config.get("coverage_unit", "m"))


def _coverage_grid(folder: RunFolder) -> tuple[Float[np.ndarray, "2 2"], list[str]]:
    """Bounds [[low, high], [low, high]] and names of the two coverage axes."""
    if not folder.config.get("coverage_bounds"):
        raise RunError(
            f"The run {folder.path} counts no coverage: its environment has no coverage bounds."
        )
    return np.asarray(folder.config["coverage_bounds"], np.float64), folder.config["coverage_axes"]


def log_scale(values: Float[np.ndarray, " N"]) -> LogNorm:
    """Of values above 0; a decade where all are the same, for else their colour would mean nothing."""
    low, high = float(values.min()), float(values.max())
    return LogNorm(low if high > low else high / 10, high)


def _shares(visits: Num[np.ndarray, "X Y"]) -> Float[np.ndarray, "X Y"]:
    """Visits as shares of their sum; NaN, and so left white, where there was none."""
    return np.where(visits > 0, visits / max(visits.sum(), 1), np.nan)


def _cells(share: Float[np.ndarray, "X Y"]) -> str:
    """How many cells were visited, in words."""
    cells = int(np.isfinite(share).sum())
    return f"{cells:,} cell{'s' if cells > 1 else ''}"


class _View(NamedTuple):
    """What part of the plane a density map shows."""

    bounds: Float[np.ndarray, "2 2"]  # [low, high] of each axis of the grid
    limits: Float[np.ndarray, "2 2"]  # of the part shown
    start: list[float] | None
    equal_scales: bool  # one unit is as long on both axes


def _crop(
    visits: Num[np.ndarray, "X Y"],
    bounds: Float[np.ndarray, "2 2"],
    square: bool,
    start: list[float] | None,
) -> Float[np.ndarray, "2 2"]:
    """The visited part of the bounds, with the start and a margin; square, if asked for, where the
    bounds allow it."""
    cell = (bounds[:, 1] - bounds[:, 0]) / visits.shape
    visited = [np.flatnonzero(visits.any(axis=other)) for other in (1, 0)]
    low = bounds[:, 0] + cell * [line[0] for line in visited]
    high = bounds[:, 0] + cell * [line[-1] + 1 for line in visited]
    if start is not None:
        low, high = np.minimum(low, start), np.maximum(high, start)
    size = (high - low) * (1 + 2 * CROP_MARGIN)
    size = np.full(2, size.max()) if square else size
    centre = (low + high) / 2
    return np.clip(
        np.stack([centre - size / 2, centre + size / 2], axis=1), bounds[:, :1], bounds[:, 1:]
    )


def _draw_density(
    axes: Axes, share: Float[np.ndarray, "X Y"], view: _View, norm: LogNorm, start_size: float = 6.0
) -> ScalarMappable:
    (left, right), (low, high) = view.bounds.tolist()
    # Rows of an image run along its vertical axis, the first axis of the grid along the horizontal
    # one.
    image = axes.imshow(
        share.T,
        norm=norm,
        cmap="viridis_r",
        origin="lower",
        extent=(left, right, low, high),
        interpolation="nearest",  # where cells are smaller than pixels others smear them
    )
    axes.set(
        xlim=view.limits[0], ylim=view.limits[1], aspect="equal" if view.equal_scales else "auto"
    )
    axes.grid(visible=False)
    if view.start is not None:
        axes.plot(*view.start, **START_MARK | {"markersize": start_size})
    return image


def _described(view: _View, names: Sequence[str], shape: tuple[int, ...], unit: str) -> str:
    ranges = [
        f"{name} from {low:g} to {high:g} {unit}".rstrip()
        for name, (low, high) in zip(names, view.bounds, strict=True)
    ]
    part = "all" if np.allclose(view.bounds, view.limits) else "the visited part"
    return f"{part} of {shape[-2]}×{shape[-1]} cells, {', '.join(ranges)}".replace("-", "−")


def _positions(folder: RunFolder) -> dict[int, Float[np.ndarray, "episodes T 2"]]:
    """Recorded positions by the step of the checkpoint they come from; NaN after the end of an
    episode."""
    file = folder.evaluation_path / "trajectories.safetensors"
    if not file.exists():
        raise RunError(
            f"The run {folder.path} has no trajectories yet: `element evaluate {folder.path}` "
            "records them."
        )
    found = {}
    for name, array in read_arrays(file)[0].items():
        match = re.fullmatch(r"step_(\d+)/positions", name)
        if match and np.isfinite(array).all(axis=2).any():
            found[int(match[1])] = array
    if not found:
        raise RunError(
            f"The file {file} holds no positions: `element evaluate {folder.path}` records them "
            "again."
        )
    return found


def draw_field_scale(
    figure: Figure,
    axes: Axes,
    colours: Float[np.ndarray, "C 4"],
    labels: Sequence[str],
    title: str = "",
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
