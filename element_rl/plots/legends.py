"""Legends that cover nothing: in a free corner of a panel, or above all panels."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

CORNERS: tuple[Any, ...] = (
    "upper left",
    "upper right",
    "lower right",
    "lower left",
    "center right",
    "center left",
)
CLEARANCE = 6.0  # points between a legend and the nearest line


def draw_legend(figure: Figure, panels: Sequence[Axes], **options: Any) -> None:
    """One entry for each label of the panels: in the first panel where that has room, else above.

    `options`: for matplotlib's legend.
    """
    entries = _entries(panels)
    figure.draw_without_rendering()  # the layout gives the panels their places
    for corner in CORNERS if entries else ():
        legend = panels[0].legend(list(entries.values()), list(entries), loc=corner, **options)
        if _is_free(panels[0], legend.get_window_extent()):
            return
        legend.remove()
    draw_shared_legend(figure, panels, **options)


def draw_shared_legend(figure: Figure, panels: Sequence[Axes], **options: Any) -> None:
    """One entry for each label of the panels, above all of them, in as few rows as the width
    allows."""
    entries = _entries(panels)
    for rows in range(1, len(entries) + 1):
        legend = figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper left",
            ncols=-(-len(entries) // rows),
            **{"columnspacing": 1.4} | options,
        )
        box = legend.get_window_extent()
        if box.width <= figure.bbox.width or rows == len(entries):
            figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
            return
        legend.remove()


def _entries(panels: Sequence[Axes]) -> dict[str, Any]:
    """What stands for each label, the first that has it; references, which lie below, come last."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return dict(
        sorted(
            entries.items(),
            key=lambda entry: isinstance(entry[1], Line2D) and entry[1].get_zorder() < 2,
        )
    )


def _is_free(axes: Axes, box: Bbox) -> bool:
    """Whether a box is within the axes, and no line, point or band comes near it."""
    if not (
        axes.bbox.x0 <= box.x0
        and box.x1 <= axes.bbox.x1
        and axes.bbox.y0 <= box.y0
        and box.y1 <= axes.bbox.y1
    ):
        return False
    box = box.padded(CLEARANCE * axes.figure.dpi / 72)
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.get_lines()]
    if any(
        path.intersects_bbox(box, filled=False) or box.count_contains(path.vertices)
        for path in lines
    ):
        return False
    return not any(
        entry.get_transform()
        .transform_path(path)
        .intersects_bbox(box, filled=not isinstance(entry, LineCollection))
        for entry in axes.collections
        for path in entry.get_paths()
    )
