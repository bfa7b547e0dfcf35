"""What a run logged, over its environment steps.

A line is the mean over seeds, the band around it runs from the lowest seed to the highest.
"""

from collections.abc import Sequence

import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from element_rl.plots.style import COLOURS, QUIET, STYLE, Run, figure_title, metrics_of, opened, run_labels, steps_text
from element_rl.runs import RunError, RunFolder


@matplotlib.rc_context(STYLE)
def coverage_curve(runs: Sequence[Run]) -> Figure:
    """Unique cells visited over environment steps, against what a random policy visits."""
    folders = opened(runs)
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    _draw_runs(axes, folders, "coverage")
    _draw_random_policy(axes, folders, "coverage")
    axes.set_ylabel("unique cells visited")
    _finish(axes, title=figure_title(folders))
    return figure


@matplotlib.rc_context(STYLE)
def entropy_curve(runs: Sequence[Run]) -> Figure:
    """Episodic entropy, and below it the episode length that bounds it by its logarithm."""
    folders = opened(runs)
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_runs(above, folders, "episodic_entropy")
    _draw_random_policy(above, folders, "episodic_entropy")
    _draw_runs(below, folders, "episode_length")
    above.set_ylabel("episodic entropy (bits)")
    below.set_ylabel("episode length (steps)")
    _finish(above, below, title=figure_title(folders))
    return figure


@matplotlib.rc_context(STYLE)
def reward_terms(run: Run) -> Figure:
    """Mean episodic and lifelong reward, and below them the number of remembered states."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
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
    _finish(above, *below, title=figure_title([folder], with_reward=True))
    return figure


def _draw_runs(axes: Axes, folders: Sequence[RunFolder], column: str) -> None:
    """One line per run; runs that did not log the column are named in the legend as such."""
    logged = [_is_logged(metrics_of(folder), column) for folder in folders]
    if not any(logged):
        paths = ", ".join(str(folder.path) for folder in folders)
        raise RunError(f"No {column} has been logged in {paths}.")
    for position, (folder, label) in enumerate(zip(folders, run_labels(folders), strict=True)):
        colour = COLOURS[position % len(COLOURS)]
        if logged[position]:
            _draw_seeds(axes, metrics_of(folder), column, colour, label)
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


def _is_logged(metrics: dict[str, np.ndarray], column: str) -> bool:
    return column in metrics and bool(np.isfinite(metrics[column]).any())


def _draw_random_policy(axes: Axes, folders: Sequence[RunFolder], quantity: str) -> None:
    """A dashed line at what a random policy reached, from the first run that knows it."""
    for folder in folders:
        reference = folder.read_summary().get("random_policy") or {}
        values = [value for value in reference.get(quantity) or [] if value is not None]
        if values:
            after = f", {steps_text(reference['steps'])} steps" if reference.get("steps") else ""
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
