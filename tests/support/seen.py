"""What a person sees of a figure: what lies under its legends, what axes say, what sticks out."""

from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

BACKGROUND = 225  # grey levels from here on are paper and grid lines


def legends_of(figure: Figure) -> list[Legend]:
    own = [axes.get_legend() for axes in figure.axes]
    return [*figure.legends, *(legend for legend in own if legend is not None)]


def pixels_covered(figure: Figure) -> int:
    """Pixels under the legends that are neither paper nor grid: they belong to something drawn."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [legend.get_window_extent() for legend in legends_of(figure)]
    figure.set_layout_engine("none")  # everything stays where it is
    for legend in legends_of(figure):
        legend.set_visible(False)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[::-1, :, :3]
    for legend in legends_of(figure):
        legend.set_visible(True)
    parts = [picture[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)] for box in boxes]
    return sum(int((part.min(axis=2) < BACKGROUND).sum()) for part in parts)


def sticks_out(figure: Figure) -> bool:
    """Whether something is drawn beyond the edge of the figure."""
    figure.draw_without_rendering()
    box = figure.get_tightbbox()  # in inches
    return bool(
        box.x0 < -0.05
        or box.x1 > figure.get_figwidth() + 0.05
        or box.y1 > figure.get_figheight() + 0.05
    )


def look(line: Any) -> tuple[str, str]:
    """Colour and dashes of a line."""
    return str(line.get_color()), str(line._unscaled_dash_pattern)


def looks(figure: Figure, panel: int = 0) -> dict[str, tuple[str, str]]:
    """Of the lines of a panel that have a label."""
    return {str(line.get_label()): look(line) for line in figure.axes[panel].get_lines()}


def legend_looks(figure: Figure) -> dict[str, tuple[str, str]]:
    """Of the lines in the legends, by what is written beside them."""
    return {
        text.get_text(): look(handle)
        for legend in legends_of(figure)
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
        if isinstance(handle, Line2D)
    }


def ticks_of(axis: Axis) -> list[float]:
    """Those within the limits."""
    axis.get_figure(root=True).draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    return [float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high]


def are_whole(ticks: list[float]) -> bool:
    """Whether there are ticks, all of them whole numbers."""
    return bool(ticks) and all(tick == int(tick) for tick in ticks)
