"""Figures of one or several runs, drawn from their run folders alone.

    plot_run          all of the following that apply, as PNG and SVG
    coverage_curve    unique cells over environment steps, one line per run
    entropy_curve     episodic entropy over environment steps, the episode length below it
    reward_terms      both terms of the reward, the size of the lifelong memory below them
    density_map       visits per coverage cell, all seeds together and each alone
    trajectories      episodes of the policies of several checkpoints, as `element evaluate` left them

A line is the mean over seeds, the band around it runs from the lowest seed to the highest. Colours are Okabe and Ito's,
which people with any colour vision can tell apart; scales that carry a quantity are viridis. Every function returns a
`Figure` of its own and leaves pyplot and matplotlib's settings as they were. What a run has no data for raises a
`RunError` that says so.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, Int, Num
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from element_rl.runs import RunError, RunFolder, read_arrays, write_atomically

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, QUIET, START = "#222222", "#666666", "#D55E00"
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.7,
    "savefig.dpi": 150,
    "svg.hashsalt": "element_rl",  # the same run gives the same file
}
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
CROP_MARGIN = 0.08  # of the visited extent, on each side
MOST_VECTOR_POINTS = 200_000  # trajectories with more points than this are drawn as pixels, also in SVG

Run = RunFolder | str | Path


def plot_run(runs: Sequence[Run], out: Path | None = None, say: Callable[[str], None] = print) -> list[Path]:
    """Draws all figures that apply into `out` (default: figures/ of the first run); skipped ones are said."""
    folders = _opened(runs)
    drawings: dict[str, Callable[[], Figure]] = {
        "coverage": partial(coverage_curve, folders),
        "entropy": partial(entropy_curve, folders),
    }
    for folder, label in zip(folders, _labels(folders), strict=True):
        suffix = "_" + re.sub(r"[^\w.-]+", "_", label).strip("_") if len(folders) > 1 else ""
        drawings |= {
            f"{draw.__name__}{suffix}": partial(draw, folder) for draw in (reward_terms, density_map, trajectories)
        }
    written = []
    for name, draw in drawings.items():
        try:
            figure = draw()
        except RunError as reason:
            say(f"Skipped {name}: {reason}")
            continue
        written += [_save(figure, (out or folders[0].figures_path) / f"{name}.{kind}") for kind in ("png", "svg")]
    return written


@matplotlib.rc_context(STYLE)
def coverage_curve(runs: Sequence[Run]) -> Figure:
    """Unique cells visited over environment steps, against what a random policy visits."""
    folders = _opened(runs)
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    _draw_runs(axes, folders, "coverage")
    _draw_random_policy(axes, folders, "coverage")
    axes.set_ylabel("unique cells visited")
    _finish(axes, title=_title(folders))
    return figure


@matplotlib.rc_context(STYLE)
def entropy_curve(runs: Sequence[Run]) -> Figure:
    """Episodic entropy, and below it the episode length that bounds it by its logarithm."""
    folders = _opened(runs)
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_runs(above, folders, "episodic_entropy")
    _draw_random_policy(above, folders, "episodic_entropy")
    _draw_runs(below, folders, "episode_length")
    above.set_ylabel("episodic entropy (bits)")
    below.set_ylabel("episode length (steps)")
    _finish(above, below, title=_title(folders))
    return figure


@matplotlib.rc_context(STYLE)
def reward_terms(run: Run) -> Figure:
    """Mean episodic and lifelong reward, and below them the number of remembered states."""
    (folder,) = _opened([run])
    metrics = _metrics(folder)
    terms = {"episodic": "reward_episodic", "lifelong": "reward_lifelong"}
    drawn = {label: column for label, column in terms.items() if _is_logged(metrics, column)}
    if not drawn:
        raise RunError(f"The run {folder.path} has logged no reward_episodic and no reward_lifelong.")
    with_memory = _is_logged(metrics, "memory_size")
    figure = Figure(figsize=(6.0, 5.2 if with_memory else 3.8), layout="constrained")
    above, *below = figure.subplots(2 if with_memory else 1, 1, sharex=True, squeeze=False)[:, 0]
    for (label, column), colour in zip(drawn.items(), COLOURS, strict=False):
        _draw_seeds(above, metrics, column, colour, label)
    above.set_ylabel("mean reward")
    for axes in below:
        _draw_seeds(axes, metrics, "memory_size", COLOURS[2], "lifelong memory")
        axes.set_ylabel("remembered states")
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    _finish(above, *below, title=_title([folder], with_reward=True))
    return figure


@matplotlib.rc_context(STYLE)
def density_map(run: Run, step: int | None = None) -> Figure:
    """Share of all visits that fell on each coverage cell, up to a checkpoint (default: the newest)."""
    (folder,) = _opened([run])
    bounds, names = _coverage_grid(folder)
    step = folder.latest_checkpoint() if step is None else step
    visits = folder.load_visits(step)
    if not visits.any():
        raise RunError(f"The run {folder.path} has visited no coverage cell up to step {step}.")
    start = folder.config.get("coverage_start", [0, 0] if names == ["x", "y"] else None)
    start = None if start is None else [float(coordinate) for coordinate in start]
    together = _shares(visits.sum(axis=0))
    alone = [_shares(seed) for seed in visits[:MOST_SEEDS_SHOWN]] if len(visits) > 1 else []
    view = _View(bounds, _crop(visits.sum(axis=0), bounds, names, start), start, names == ["x", "y"])
    norm = LogNorm(np.nanmin([together, *alone]), np.nanmax([together, *alone]))

    # Placed by hand, in inches: automatic layouts lose the labels of axes whose shape is fixed.
    width, height = 5.5, 6.0 if alone else 4.9
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.75 / width, 1 - 4.35 / height, 3.8 / width, 3.8 / height))
    image = _draw_density(axes, together, view, norm)
    figure.colorbar(image, cax=axes.inset_axes((1.03, 0, 0.035, 1)), label="share of visits (log scale)")
    axes.set_title(f"{_title([folder], with_reward=True)} · {_steps(step or 0)} steps per seed\n")
    axes.text(0, 1.02, _described(view, names, visits.shape), transform=axes.transAxes, color=QUIET, size=8)
    axes.set(xlabel=f"{names[0]} (m)", ylabel=f"{names[1]} (m)")
    axes.locator_params(nbins=6)
    if start is not None:
        axes.legend(loc="upper right", handletextpad=0.2)
    for seed, share in enumerate(alone):
        panel = figure.add_axes(((0.75 + 0.77 * seed) / width, 0.28 / height, 0.72 / width, 0.72 / height))
        _draw_density(panel, share, view, norm, start_size=3.5)
        panel.set_title(f"seed {seed}", size=7.5, pad=3)
        panel.set_xlabel(f"{np.isfinite(share).sum():,} cells", size=7.5)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color="#BBBBBB")
    return figure


@matplotlib.rc_context(STYLE)
def trajectories(run: Run) -> Figure:
    """Episodes of the policies of all evaluated checkpoints, from early (dark) to late (light)."""
    (folder,) = _opened([run])
    found = _positions(folder)
    steps = sorted(found)
    names = _coverage_grid(folder)[1]
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(steps)))
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    axes = figure.subplots()
    pixels = sum(array.shape[0] * array.shape[1] for array in found.values()) > MOST_VECTOR_POINTS
    for colour, step in zip(colours, steps, strict=True):
        episodes = [episode[np.isfinite(episode).all(axis=1)] for episode in found[step]]
        axes.add_collection(LineCollection(episodes, colors=[colour], linewidths=1.0, alpha=0.9, rasterized=pixels))
    starts = np.concatenate([array[:, 0] for array in found.values()])
    axes.plot(*np.nanmean(starts, axis=0), **START_MARK)
    axes.autoscale_view()
    if names == ["x", "y"]:
        axes.set_aspect("equal", adjustable="datalim")
    axes.set_title(f"{_title([folder], with_reward=True)} · {sum(map(len, found.values()))} episodes")
    axes.set(xlabel=f"{names[0]} (m)", ylabel=f"{names[1]} (m)")
    axes.legend(loc="upper right", handletextpad=0.2)
    _draw_step_scale(figure, axes, colours, steps)
    return figure


def _draw_runs(axes: Axes, folders: Sequence[RunFolder], column: str) -> None:
    """One line per run; runs that did not log the column are named in the legend as such."""
    logged = [_is_logged(_metrics(folder), column) for folder in folders]
    if not any(logged):
        paths = ", ".join(str(folder.path) for folder in folders)
        raise RunError(f"No {column} has been logged in {paths}.")
    for position, (folder, label) in enumerate(zip(folders, _labels(folders), strict=True)):
        colour = COLOURS[position % len(COLOURS)]
        if logged[position]:
            _draw_seeds(axes, _metrics(folder), column, colour, label)
        else:
            axes.plot([], [], color=colour, label=f"{label} (not logged)")


def _draw_seeds(axes: Axes, metrics: dict[str, np.ndarray], column: str, colour: str, label: str) -> None:
    """Mean over seeds as a line, lowest to highest seed as a band."""
    steps, values = _by_seed(metrics, column)
    marker = "o" if len(steps) == 1 else None
    axes.plot(steps, np.nanmean(values, axis=0), color=colour, marker=marker, label=label)
    if len(values) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def _by_seed(metrics: dict[str, np.ndarray], column: str) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, "P T"]]:
    """Steps at which any seed has a finite value, and these values with NaN where a seed has none."""
    finite = np.isfinite(metrics[column])
    steps, when = np.unique(metrics["step"][finite], return_inverse=True)
    seeds, which = np.unique(metrics["seed"][finite], return_inverse=True)
    values = np.full((len(seeds), len(steps)), np.nan)
    values[which, when] = metrics[column][finite]
    return steps, values


def _metrics(folder: RunFolder) -> dict[str, np.ndarray]:
    """metrics.csv, parsed once for all figures: a long run of many seeds takes a second."""
    changed = folder.metrics_path.stat().st_mtime_ns if folder.metrics_path.exists() else 0
    return _metrics_as_of(folder.path, changed)


@lru_cache(maxsize=16)
def _metrics_as_of(path: Path, changed: int) -> dict[str, np.ndarray]:
    return RunFolder.open(path).read_metrics()


def _is_logged(metrics: dict[str, np.ndarray], column: str) -> bool:
    return column in metrics and bool(np.isfinite(metrics[column]).any())


def _draw_random_policy(axes: Axes, folders: Sequence[RunFolder], quantity: str) -> None:
    """A dashed line at what a random policy reached, from the first run that knows it."""
    for folder in folders:
        reference = folder.read_summary().get("random_policy") or {}
        values = [value for value in reference.get(quantity) or [] if value is not None]
        if values:
            after = f", {_steps(reference['steps'])} steps" if reference.get("steps") else ""
            axes.axhline(
                float(np.mean(values)), color=QUIET, linestyle=(0, (5, 3)), linewidth=1.3, label=f"random policy{after}"
            )
            return


def _finish(*panels: Axes, title: str) -> None:
    """Axes that start at zero, one title and one legend, steps written as 500k."""
    for axes in panels:
        axes.margins(x=0.0)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if axes.dataLim.y0 < 0 else 0.0)
    panels[0].set_title(title)
    if "seeds" in title:
        panels[0].set_title("mean, and lowest to highest seed", loc="right", size=8, color=QUIET)
    panels[0].legend(loc="best")
    panels[-1].set_xlabel("environment steps per seed")
    panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))


class _View(NamedTuple):
    """What part of the plane a density map shows."""

    bounds: Float[np.ndarray, "2 2"]  # [low, high] of each axis of the grid
    limits: Float[np.ndarray, "2 2"]  # of the part shown
    start: list[float] | None
    equal_scales: bool  # one metre is as long on both axes


def _draw_density(
    axes: Axes, share: Float[np.ndarray, "X Y"], view: _View, norm: LogNorm, start_size: float = 6.0
) -> ScalarMappable:
    (left, right), (low, high) = view.bounds.tolist()
    # Rows of an image run along its vertical axis, the first axis of the grid along the horizontal one.
    image = axes.imshow(share.T, norm=norm, cmap="viridis_r", origin="lower", extent=(left, right, low, high))
    axes.set(xlim=view.limits[0], ylim=view.limits[1], aspect="equal" if view.equal_scales else "auto")
    axes.grid(visible=False)
    if view.start is not None:
        axes.plot(*view.start, **START_MARK | {"markersize": start_size})
    return image


def _positions(folder: RunFolder) -> dict[int, Float[np.ndarray, "episodes T 2"]]:
    """Recorded positions by the step of the checkpoint they come from; NaN after the end of an episode."""
    file = folder.evaluation_path / "trajectories.safetensors"
    if not file.exists():
        raise RunError(f"The run {folder.path} has no trajectories yet: `element evaluate {folder.path}` records them.")
    found = {}
    for name, array in read_arrays(file)[0].items():
        match = re.fullmatch(r"step_(\d+)/positions", name)
        if match and np.isfinite(array).all(axis=2).any():
            found[int(match[1])] = array
    if not found:
        raise RunError(f"The file {file} holds no positions: `element evaluate {folder.path}` records them again.")
    return found


def _draw_step_scale(figure: Figure, axes: Axes, colours: Float[np.ndarray, "C 4"], steps: Sequence[int]) -> None:
    """A colour scale with one field per checkpoint, at most ten of them labelled."""
    scale = ScalarMappable(BoundaryNorm(np.arange(len(steps) + 1) - 0.5, len(steps)), ListedColormap(colours))
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 10)).astype(int))
    bar = figure.colorbar(scale, ax=axes, label="policy after this many steps", ticks=shown, shrink=0.9, pad=0.02)
    bar.ax.set_yticklabels([_steps(steps[position]) for position in shown])
    bar.ax.tick_params(which="both", length=0)


def _shares(visits: Num[np.ndarray, "X Y"]) -> Float[np.ndarray, "X Y"]:
    """Visits as shares of their sum; NaN, and so left white, where there was none."""
    return np.where(visits > 0, visits / max(visits.sum(), 1), np.nan)


def _crop(
    visits: Num[np.ndarray, "X Y"], bounds: Float[np.ndarray, "2 2"], names: list[str], start: list[float] | None
) -> Float[np.ndarray, "2 2"]:
    """The visited part of the bounds, with the start and a margin; square in the x–y plane where the bounds allow it."""
    cell = (bounds[:, 1] - bounds[:, 0]) / visits.shape
    visited = [np.flatnonzero(visits.any(axis=other)) for other in (1, 0)]
    low = bounds[:, 0] + cell * [line[0] for line in visited]
    high = bounds[:, 0] + cell * [line[-1] + 1 for line in visited]
    if start is not None:
        low, high = np.minimum(low, start), np.maximum(high, start)
    size = (high - low) * (1 + 2 * CROP_MARGIN)
    size = np.full(2, size.max()) if names == ["x", "y"] else size
    centre = (low + high) / 2
    return np.clip(np.stack([centre - size / 2, centre + size / 2], axis=1), bounds[:, :1], bounds[:, 1:])


def _described(view: _View, names: Sequence[str], shape: tuple[int, ...]) -> str:
    ranges = [f"{name} from {low:g} to {high:g} m" for name, (low, high) in zip(names, view.bounds, strict=True)]
    part = "all" if np.allclose(view.bounds, view.limits) else "the visited part"
    return f"{part} of {shape[-2]}×{shape[-1]} cells, {', '.join(ranges)}".replace("-", "−")


def _coverage_grid(folder: RunFolder) -> tuple[Float[np.ndarray, "2 2"], list[str]]:
    """Bounds [[low, high], [low, high]] and names of the two coverage axes."""
    if not folder.config.get("coverage_bounds"):
        raise RunError(f"The run {folder.path} counts no coverage: its environment has no coverage bounds.")
    return np.asarray(folder.config["coverage_bounds"], np.float64), folder.config["coverage_axes"]


def _opened(runs: Sequence[Run]) -> list[RunFolder]:
    if not runs:
        raise RunError("There is nothing to plot: give at least one run folder.")
    return [run if isinstance(run, RunFolder) else RunFolder.open(run) for run in runs]


def _labels(folders: Sequence[RunFolder]) -> list[str]:
    """The reward of each run, with the environment and the folder's name where these are needed to tell runs apart."""
    several = len({folder.config.get("env") for folder in folders}) > 1
    labels = []
    for folder in folders:
        reward = str(folder.config.get("reward", folder.path.name))
        labels.append(f"{reward}, {folder.config.get('env')}" if several else reward)
    return [
        f"{label} ({folder.path.name})" if labels.count(label) > 1 else label
        for label, folder in zip(labels, folders, strict=True)
    ]


def _title(folders: Sequence[RunFolder], with_reward: bool = False) -> str:
    """The environment, the reward if asked for, and over how many seeds the figure speaks."""
    parts = [", ".join(dict.fromkeys(str(folder.config.get("env", folder.path.name)) for folder in folders))]
    if with_reward and "reward" in folders[0].config:
        parts.append(folders[0].config["reward"])
    seeds = {len(np.unique(_metrics(folder).get("seed", []))) for folder in folders} - {0}
    if seeds and max(seeds) > 1:
        parts.append(f"{'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds")
    return " · ".join(parts)


def _steps(step: int) -> str:
    """500000 as 500k, 1234567 as 1.23M."""
    return str(EngFormatter(sep="")(float(f"{step:.3g}")))


@matplotlib.rc_context(STYLE)
def _save(figure: Figure, path: Path) -> Path:
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind, metadata=metadata))
    return path
