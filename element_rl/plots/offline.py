"""The learning curves of an offline run: returns over updates, beside what the data themselves
earned."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from element_rl.plots.legends import draw_legend
from element_rl.plots.lines import by_seed, draw_ends, draw_seeds, finish_axes, is_logged
from element_rl.plots.style import (
    REFERENCE_LINE,
    STYLE,
    Run,
    add_note,
    line_style,
    literal,
    metrics_of,
    opened,
    wrapped_title,
)
from element_rl.runs.folder import RunError


@matplotlib.rc_context(STYLE)
def offline_curve(run: Run) -> Figure:
    """A line per dataset: the mean over its agents, a band from the lowest to the highest, and its
    behaviour's mean, dashed."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
    if not is_logged(metrics, "extrinsic_return"):
        raise RunError(f"The run {folder.path} has logged no returns: it was not evaluated.")
    names = folder.config["settings"]["datasets"]
    behaviour = _behaviour_returns(folder.read_summary())
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    ends = []
    for index, name in enumerate(names):
        steps, values = by_seed(metrics, "extrinsic_return", metrics["dataset"] == index)
        style, short = line_style(index), literal(_short(name, names))
        ends.append(draw_seeds(axes, steps, values, style, short))
        if name in behaviour:
            label = "mean return of the data" if len(names) == 1 else f"mean return in {short}"
            axes.axhline(behaviour[name], color=style["color"], label=label, **REFERENCE_LINE)
    agents = len(np.unique(metrics["seed"]))
    number = f"{agents} agent{'s' if agents > 1 else ''}"
    title = " · ".join([*map(literal, (folder.config["env"], folder.config["reward"])), number])
    axes.set_title(wrapped_title(title, figure.get_figwidth()))
    has_points = draw_ends(axes, ends)
    if agents > len(names):
        note = "Line: mean over the agents of a dataset. Band: lowest to highest agent."
        add_note(figure, f"{note} Points: every agent at the end." if has_points else note)
    finish_axes([axes], "updates per agent")
    axes.set_ylabel("return per episode, deterministic policy")
    draw_legend(figure, [axes])
    return figure


def _behaviour_returns(summary: Mapping[str, Any]) -> dict[str, float]:
    """The mean return of the episodes of each dataset, over the shares it was divided into; nothing
    before the run has ended."""
    returns: dict[str, list[float]] = {}
    for name, value in zip(
        summary.get("datasets", []), summary.get("behaviour_return", []), strict=True
    ):
        returns.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in returns.items()}


def _short(name: str, names: list[str]) -> str:
    """The last part of a dataset's name, where that tells it apart."""
    last = [each.rstrip("/").rpartition("/")[2] for each in names]
    short = name.rstrip("/").rpartition("/")[2]
    return short if last.count(short) == 1 else name
