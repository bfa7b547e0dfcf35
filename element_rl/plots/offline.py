"""The learning curves of an offline run: returns over updates, beside what the data themselves earned."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from element_rl.plots.style import COLOURS, QUIET, STYLE, Run, metrics_of, opened
from element_rl.runs import RunError


@matplotlib.rc_context(STYLE)
def offline_curve(run: Run) -> Figure:
    """A line per dataset: the mean over its agents, a band from the lowest to the highest, and its behaviour's mean, dashed."""
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
        colour = COLOURS[index % len(COLOURS)]
        marker = "o" if len(steps) == 1 else None
        axes.plot(steps, [v.mean() for v in values], color=colour, marker=marker, label=_short(name, names))
        if max(len(v) for v in values) > 1:
            low, high = [v.min() for v in values], [v.max() for v in values]
            axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        if name in behaviour:
            axes.axhline(behaviour[name], color=colour, linestyle=(0, (5, 3)), linewidth=1.3)
    if behaviour:
        axes.plot([], [], color=QUIET, linestyle=(0, (5, 3)), linewidth=1.3, label="mean return of the data")
    agents = len(np.unique(metrics["seed"]))
    axes.set_title(f"{folder.config['env']} · {folder.config['reward']} · {agents} agent{'s' if agents > 1 else ''}")
    if agents > len(names):
        axes.set_title("mean, lowest and highest agent", loc="right", size=8, color=QUIET)
    axes.set_ylabel("return of the deterministic policy")
    axes.set_xlabel("updates per agent")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="best")
    return figure


def _behaviour_returns(summary: Mapping[str, Any]) -> dict[str, float]:
    """The mean return of the episodes of each dataset, over the shares it was divided into; nothing before the run has ended."""
    returns: dict[str, list[float]] = {}
    for name, value in zip(summary.get("datasets", []), summary.get("behaviour_return", []), strict=True):
        returns.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in returns.items()}


def _short(name: str, names: list[str]) -> str:
    """The last part of a dataset's name, where that tells it apart."""
    last = [each.rstrip("/").rpartition("/")[2] for each in names]
    own = name.rstrip("/").rpartition("/")[2]
    return own if last.count(own) == 1 else name
