"""The learning curves of an offline run: returns over updates, beside what the data themselves
earned."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from element_rl.plots.legends import draw_legend
from element_rl.plots.style import (
    REFERENCE_LINE,
    STYLE,
    Run,
    add_note,
    line_style,
    metrics_of,
    opened,
    whole_ticks,
    wrapped_title,
)
from element_rl.runs.folder import RunError


@matplotlib.rc_context(STYLE)
def offline_curve(run: Run) -> Figure:
    """A line per dataset: the mean over its agents, a band from the lowest to the highest, and its
    behaviour's mean, dashed."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
    if "extrinsic_return" not in metrics or not np.isfinite(metrics["extrinsic_return"]).any():
        raise RunError(f"The run {folder.path} has logged no returns: it was not evaluated.")
    names = folder.config["settings"]["datasets"]
    behaviour = _behaviour_returns(folder.read_summary())
    figure = Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(names):
        own = (metrics["dataset"] == index) & np.isfinite(metrics["extrinsic_return"])
        steps = np.unique(metrics["step"][own])
        values = [metrics["extrinsic_return"][own & (metrics["step"] == step)] for step in steps]
        style = line_style(index)
        marker = "o" if len(steps) == 1 else None
        axes.plot(
            steps, [v.mean() for v in values], marker=marker, label=_short(name, names), **style
        )
        if max(len(v) for v in values) > 1:
            low, high = [v.min() for v in values], [v.max() for v in values]
            axes.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0)
        if name in behaviour:
            label = (
                "mean return of the data"
                if len(names) == 1
                else f"mean return in {_short(name, names)}"
            )
            axes.axhline(behaviour[name], color=style["color"], label=label, **REFERENCE_LINE)
    agents = len(np.unique(metrics["seed"]))
    title = f"{folder.config['env']} · {folder.config['reward']} · {agents} agent{'s' if agents > 1 else ''}"
    axes.set_title(wrapped_title(title, figure.get_figwidth()))
    if agents > len(names):
        add_note(figure, "Line: mean over the agents of a dataset. Band: lowest to highest agent.")
    axes.set_ylabel("return per episode, deterministic policy")
    axes.set_xlabel("updates per agent")
    axes.set_xlim(left=0)
    whole_ticks(axes.xaxis)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
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
    own = name.rstrip("/").rpartition("/")[2]
    return own if last.count(own) == 1 else name
