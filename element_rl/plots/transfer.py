"""How a transferred policy learns its task, beside agents that learn it from nothing."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from element_rl.plots.legends import draw_legend
from element_rl.plots.lines import (
    POINTS,
    SeedEnds,
    draw_ends,
    draw_seeds,
    finish_axes,
    is_logged,
)
from element_rl.plots.style import (
    COLOURS,
    STYLE,
    add_note,
    figure_title,
    metrics_of,
    wrapped_title,
)
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import kind_of

SMOOTHED = 3  # lines of metrics in a running mean
LABELS = {"transferred": "transferred, then {}", "scratch": "{} from scratch"}


@matplotlib.rc_context(STYLE)
def transfer_curves(runs: Mapping[str, RunFolder], zero_shot: Sequence[float]) -> Figure:
    """Task return over steps of `transferred` and, where there is one, `scratch`; mean and range
    over seeds.

    `zero_shot`: the return per seed of the transferred policies before they learn, marked at step
    0.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    ends = []
    for (name, run), colour in zip(runs.items(), COLOURS, strict=False):
        learner = "A3C" if kind_of(run.config) == "on-policy" else "SAC"
        ends.append(_draw_returns(axes, run, colour, LABELS.get(name, name).format(learner)))
    mean = float(np.mean(zero_shot))
    spread = [[mean - min(zero_shot)], [max(zero_shot) - mean]] if len(zero_shot) > 1 else None
    marker = axes.errorbar(
        [0],
        [mean],
        spread,
        fmt="D",
        color=COLOURS[0],
        markersize=6,
        capsize=3,
        label="zero-shot",
        zorder=4,
    )
    for part in (marker.lines[0], *marker.lines[1]):
        part.set_clip_on(False)  # half of it is left of the axis
    finish_axes([axes], "environment steps per seed on the task")
    axes.set_ylabel("task return per episode")
    title = figure_title(list(runs.values()))
    axes.set_title(wrapped_title(title, figure.get_figwidth()))
    band = "mean over seeds. Band: lowest to highest seed" if "seeds" in title else "one seed"
    points = f" {POINTS}" if draw_ends(axes, ends) else ""
    add_note(figure, f"Line: running mean of {SMOOTHED} lines of metrics, {band}.{points}")
    draw_legend(figure, [axes])
    return figure


def _draw_returns(axes: Axes, run: RunFolder, colour: str, label: str) -> SeedEnds:
    metrics = metrics_of(run)
    seeds = np.unique(metrics.get("seed", np.zeros(0)))
    if not len(seeds) or not is_logged(metrics, "extrinsic_return"):
        raise RunError(f"The run {run.path} has logged no return: none of its episodes has ended.")
    curves = [_running_mean(metrics["extrinsic_return"][metrics["seed"] == seed]) for seed in seeds]
    steps, values = np.unique(metrics["step"]), np.array(curves)
    complete = np.isfinite(values).all(axis=0)  # from where every seed has ended an episode
    return draw_seeds(axes, steps[complete], values[:, complete], {"color": colour}, label)


def _running_mean(values: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """Over the last lines that have a value; NaN before the first."""
    windows = [values[max(last + 1 - SMOOTHED, 0) : last + 1] for last in range(len(values))]
    return np.array(
        [np.nanmean(window) if np.isfinite(window).any() else np.nan for window in windows]
    )
