"""Lines over steps: a line per run or method, a band around it, a point for every seed.

draw_line     a line and, where it has one, its band
draw_seeds    the mean over seeds as a line, from the lowest to the highest seed as a band
draw_ends     the last value of every seed as a point, beside the axes, a column per line
finish_axes   axes that begin at zero, steps written as 500k
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import EngFormatter

from element_rl.plots.style import whole_ticks

ROOM_ABOVE = 1.05  # times the highest value, at least: no line lies on the upper edge
BAND = "Line: mean over seeds. Band: lowest to highest seed."
POINTS = "Points: every seed at the end."
OPACITY = 0.18  # of a band
COLUMN = 0.022  # width of a column of points, of the width of the axes


class SeedEnds(NamedTuple):
    """The last value of every seed of a line."""

    colour: str
    values: Num[np.ndarray, " P"]


def draw_line(
    axes: Axes,
    x: Num[np.ndarray, " T"],
    middle: Num[np.ndarray, " T"],
    band: Sequence[Num[np.ndarray, " T"]],
    style: Mapping[str, Any],
    label: str,
    opacity: float = OPACITY,
) -> None:
    """A line, or a point where there is only one, within a band from low to high (none)."""
    marker = "o" if np.isfinite(middle).sum() == 1 else None
    axes.plot(x, middle, marker=marker, label=label, **style)
    if len(band):
        low, high = band
        axes.fill_between(x, low, high, color=style["color"], alpha=opacity, linewidth=0)


def draw_seeds(
    axes: Axes,
    steps: Num[np.ndarray, " T"],
    values: Float[np.ndarray, "P T"],
    style: Mapping[str, Any],
    label: str,
    opacity: float = OPACITY,
) -> SeedEnds:
    """The mean over seeds within a band from the lowest to the highest; where the seeds end."""
    several = len(values) > 1
    band = (np.nanmin(values, axis=0), np.nanmax(values, axis=0)) if several else ()
    draw_line(axes, steps, np.nanmean(values, axis=0), band, style, label, opacity)
    return SeedEnds(style["color"], values[:, -1])


def draw_ends(axes: Axes, lines: Sequence[SeedEnds]) -> bool:
    """A column of points per line to the right of the axes, where lines of several seeds are
    compared; whether there are any."""
    several = [line for line in lines if np.isfinite(line.values).sum() > 1]
    if len(lines) < 2 or not several:
        return False
    strip = axes.inset_axes((1.01, 0.0, COLUMN * len(several), 1.0), sharey=axes)
    strip.set_axis_off()
    strip.set_xlim(-0.5, len(several) - 0.5)
    for column, line in enumerate(several):
        places = np.full(len(line.values), column)
        strip.plot(
            places, line.values, ".", color=line.colour, markersize=4.5, alpha=0.8, mew=0,
            clip_on=False,
        )  # fmt: skip
    return True


def by_seed(
    metrics: Mapping[str, np.ndarray], column: str, chosen: np.ndarray | None = None
) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, "P T"]]:
    """Steps at which any seed has a finite value, and these values with NaN where a seed has none;
    of the chosen lines of the metrics."""
    finite = np.isfinite(metrics[column]) & (True if chosen is None else chosen)
    steps, when = np.unique(metrics["step"][finite], return_inverse=True)
    seeds, which = np.unique(metrics["seed"][finite], return_inverse=True)
    values = np.full((len(seeds), len(steps)), np.nan)
    values[which, when] = metrics[column][finite]
    return steps, values


def is_logged(metrics: Mapping[str, np.ndarray], column: str) -> bool:
    return column in metrics and bool(np.isfinite(metrics[column]).any())


def finish_axes(panels: Sequence[Axes], x_label: str = "environment steps per seed") -> None:
    """Axes from zero, and steps along the lowest of the panels."""
    for axes in panels:
        axes.margins(x=0.0)
        axes.set_xlim(left=0)
        if axes.dataLim.y0 >= 0:
            # With room above a line that hardly varies, which Matplotlib's own margin has not.
            axes.set_ylim(0.0, max(axes.get_ylim()[1], ROOM_ABOVE * axes.dataLim.y1))
    panels[-1].set_xlabel(x_label)
    whole_ticks(panels[-1].xaxis)
    thousands(panels[-1].xaxis)


def thousands(axis: Axis) -> None:
    """Ticks as 500k and 1.5M."""
    axis.set_major_formatter(EngFormatter(sep=""))
