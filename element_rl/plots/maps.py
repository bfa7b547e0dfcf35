"""Where in the plane of its coverage axes a run has been: visits per cell, and single episodes."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Bool, Float, Num
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from element_rl.plots.legends import draw_legend
from element_rl.plots.planes import (
    axis_labels,
    coverage_start,
    draw_grid,
    draw_paths,
    equal_scales,
    log_scale,
    unit_of,
    visited_part,
)
from element_rl.plots.style import (
    QUIET,
    STYLE,
    Run,
    figure_title,
    literal,
    opened,
    steps_text,
    wrapped_title,
)
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.visits import (
    Stored,
    Window,
    bounds_of,
    covered_cells,
    has_map,
    picture,
    window_of,
)
from element_rl.storage.files import read_arrays

MOST_SEEDS_SHOWN = 5
TRAJECTORIES = "trajectories.safetensors"  # in the folder of evaluations
MAP = 3.8  # inches, a side of a map
LEFT, BESIDE = 0.75, 4.8  # inches, where the map and the one of a random policy begin


class _View(NamedTuple):
    """What part of the plane a density map shows."""

    bounds: Float[np.ndarray, "2 2"]  # [low, high] of each axis of the grid
    limits: Float[np.ndarray, "2 2"]  # of the part shown
    start: list[float] | None
    equal_scales: bool  # one unit is as long on both axes


@matplotlib.rc_context(STYLE)
def density_map(run: Run, step: int | None = None) -> Figure:
    """Share of all visits that fell on each coverage cell, up to a checkpoint (default: the
    newest).

    Beside it, on the same scales, the map of the random policy that the run was compared with,
    where it has one.
    """
    (folder,) = opened([run])
    _require_map(folder)
    step = folder.latest_checkpoint() if step is None else step
    stored = folder.load_visits(step)
    if not covered_cells(stored):
        raise RunError(f"The run {folder.path} has visited no coverage cell up to step {step}.")
    beside = folder.read_random_visits() if step == folder.latest_checkpoint() else None
    window = window_of(folder.config, *(one for one in (stored, beside) if one is not None))
    visits = picture(stored, window)
    random = None if beside is None else picture(beside, window)
    together = _shares(visits.sum(axis=0))
    by_chance = None if random is None else _shares(random.sum(axis=0))
    alone = [_shares(seed) for seed in visits[:MOST_SEEDS_SHOWN]] if len(visits) > 1 else []
    drawn = [together, *alone, *([] if by_chance is None else [by_chance])]
    view = _view(folder, window, np.asarray(np.isfinite(drawn).any(axis=0)))
    norm = log_scale(np.concatenate([shares[shares > 0] for shares in drawn]))

    title = f"{figure_title([folder], with_reward=True)} · {steps_text(step or 0)} steps per seed"
    title = f"{title} · {_cells(stored)}" if len(visits) == 1 else title
    title = wrapped_title(title, 4.75 if by_chance is None else 4.15)  # beside it stands another
    above = 0.18 * title.count("\n")

    # Placed by hand, in inches: automatic layouts lose the labels of axes whose shape is fixed.
    width, height = 5.5 if by_chance is None else 9.6, (6.0 if alone else 4.9) + above
    figure = Figure(figsize=(width, height))

    def panel(left: float, bottom: float, side: float) -> Axes:
        return figure.add_axes((left / width, bottom / height, side / width, side / height))

    axes = rightmost = panel(LEFT, height - 4.35 - above, MAP)
    image = _draw_density(axes, together, view, norm)
    x_label, y_label = axis_labels(folder.config)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.locator_params(nbins=6)
    if by_chance is not None:
        rightmost = panel(BESIDE, height - 4.35 - above, MAP)
        _draw_density(rightmost, by_chance, view, norm)
        rightmost.set_title(f"random policy · {_cells(beside)}\n")
        rightmost.set(xlabel=x_label, yticklabels=[])
        rightmost.locator_params(nbins=6)
    scale = rightmost.inset_axes((1.03, 0, 0.035, 1))
    figure.colorbar(image, cax=scale, label="share of visits (log scale)")
    axes.set_title(f"{title}\n")
    described = _described(view, folder, visits.shape, window)
    size = 8 if by_chance is None else 7  # beside another map there is less room
    axes.text(0, 1.02, described, transform=axes.transAxes, color=QUIET, size=size)
    if view.start is not None:  # below the map, which may be full
        corner = (1.0, -0.065)
        axes.legend(loc="upper right", bbox_to_anchor=corner, borderaxespad=0.0, handletextpad=0.2)
    first_seed = folder.config.get("settings", {}).get("seed", 0)
    for place, share in enumerate(alone):
        small = panel(LEFT + 0.77 * place, 0.28, 0.72)
        _draw_density(small, share, view, norm, start_size=3.5)
        small.set_title(f"seed {first_seed + place}", size=7.5, pad=3)
        small.set_xlabel(_cells(stored, slice(place, place + 1)), size=7.5)
        small.set(xticks=[], yticks=[])
        small.spines[:].set(visible=True, color="#BBBBBB")
    if (more := len(visits) - MOST_SEEDS_SHOWN) > 0:
        text = f"and {more}\nmore seed{'s' if more > 1 else ''}"
        figure.text(4.67 / width, 0.64 / height, text, size=7.5, color=QUIET)
    return figure


@matplotlib.rc_context(STYLE)
def trajectories(run: Run) -> Figure:
    """Episodes of the policies of all evaluated checkpoints, from early (dark) to late (light)."""
    (folder,) = opened([run])
    if not (found := recorded_episodes(folder)):
        file = folder.evaluation_path / TRAJECTORIES
        records = f"`element evaluate {folder.path}` records them"
        if file.exists():
            raise RunError(f"The file {file} holds no positions: {records} again.")
        raise RunError(f"The run {folder.path} has no trajectories yet: {records}.")
    _require_map(folder)
    figure = Figure(figsize=(6.0, 4.8), layout="constrained")
    axes = figure.subplots()
    starts = [episode[0] for episodes in found.values() for episode in episodes]
    title = f"{figure_title([folder], with_reward=True)} · {len(starts)} episodes"
    axes.set_title(wrapped_title(title, 4.6))  # the map's own width, without the colour bar
    x_label, y_label = axis_labels(folder.config)
    axes.set(xlabel=x_label, ylabel=y_label)
    start, equal = np.mean(starts, axis=0).tolist(), equal_scales(folder.config)
    groups = [(steps_text(step), episodes) for step, episodes in found.items()]
    draw_paths(figure, axes, groups, start, equal, "policy after this many steps")
    draw_legend(figure, [axes], handletextpad=0.2)
    return figure


def _require_map(folder: RunFolder) -> None:
    if has_map(folder.config):
        return
    if cells := folder.config.get("coverage_cells_of"):
        raise RunError(f"The run {folder.path} has no map: its coverage counts {cells}.")
    raise RunError(f"The run {folder.path} counts no coverage: its environment has no map.")


def _shares(visits: Num[np.ndarray, "X Y"]) -> Float[np.ndarray, "X Y"]:
    """Visits as shares of their sum; NaN, and so left white, where there was none."""
    return np.where(visits > 0, visits / max(visits.sum(), 1), np.nan)


def _cells(stored: Stored | None, agents: slice = slice(None)) -> str:
    """How many cells these agents visited, in words."""
    cells = 0 if stored is None else covered_cells(stored, agents)
    return f"{cells:,} cell{'s' if cells > 1 else ''}"


def _view(folder: RunFolder, window: Window | None, visited: Bool[np.ndarray, "X Y"]) -> _View:
    """The visited part of the map, as a square where one unit is as long on both axes."""
    shown = bounds_of(folder.config, window)
    bounds = np.asarray(shown, np.float64)
    start, equal = coverage_start(folder.config), equal_scales(folder.config, shown)
    starts = [] if start is None else [start]
    return _View(bounds, visited_part(visited, bounds, starts, float(equal)), start, equal)


def _draw_density(
    axes: Axes, share: Float[np.ndarray, "X Y"], view: _View, norm: LogNorm, start_size: float = 6.0
) -> ScalarMappable:
    image = draw_grid(axes, share, view.bounds.tolist(), norm, view.start, start_size)
    aspect = "equal" if view.equal_scales else "auto"
    axes.set(xlim=view.limits[0], ylim=view.limits[1], aspect=aspect)
    return image


def _described(view: _View, folder: RunFolder, shape: Sequence[int], window: Window | None) -> str:
    unit = unit_of(folder.config)
    names = [literal(name) for name in folder.config["coverage_axes"]]
    if window is not None:
        sides = [f"{side:g} {unit}".rstrip() for side in window.size]
        square = sides[0] == sides[1] and names == ["x", "y"]
        along = [f"{side} along {name}" for side, name in zip(sides, names, strict=True)]
        of = f"{window.size[0]:g} × {sides[1]}" if square else " and ".join(along)
        many = window.every
        return f"cells of {of}" + f", {many}×{many} of them in a pixel" * (many > 1)
    ranges = [
        f"{name} from {low:g} to {high:g} {unit}".rstrip()
        for name, (low, high) in zip(names, view.bounds, strict=True)
    ]
    part = "all" if np.allclose(view.bounds, view.limits) else "the visited part"
    return f"{part} of {shape[-2]}×{shape[-1]} cells, {', '.join(ranges)}".replace("-", "−")


def recorded_episodes(folder: RunFolder) -> dict[int, list[Float[np.ndarray, "_ 2"]]]:
    """Positions of the episodes that `element evaluate` recorded, by the step of the checkpoint
    whose policy acted."""
    file = folder.evaluation_path / TRAJECTORIES
    found = {}
    for name, positions in sorted(read_arrays(file)[0].items() if file.exists() else ()):
        if match := re.fullmatch(r"step_(\d+)/positions", name):
            # without the NaN that fill an episode up
            episodes = [episode[np.isfinite(episode).all(axis=1)] for episode in positions]
            found[int(match[1])] = [episode for episode in episodes if len(episode)]
    return {step: episodes for step, episodes in found.items() if episodes}
