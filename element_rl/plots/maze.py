"""The maze as the paper shows it: a row per reward, what each cell is worth on the left, where
agents go on the right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from element_rl.plots.maps import START_MARK
from element_rl.plots.style import STYLE

WALL = "#444444"
PANEL = 1.62  # inches
ROW_LABELS = 0.4  # inches, beside the first column


@dataclass(frozen=True)
class MazeRow:
    """One reward at M moments, over X columns and Y rows of cells; NaN where nobody was."""

    label: str
    rewards: Float[np.ndarray, "M X Y"]
    visits: Float[np.ndarray, "M X Y"]  # shares of the steps


@matplotlib.rc_context(STYLE)
def maze_figure(
    rows: Sequence[MazeRow],
    moments: Sequence[str],
    walls: Bool[np.ndarray, "X Y"],
    start: tuple[int, int],
) -> Figure:
    """Rewards and visits side by side, one column per moment in each half; every half has one
    colour scale."""
    columns = len(moments)
    figure = Figure(
        figsize=(2 * PANEL * columns + 1.1, PANEL * len(rows) + 1.3), layout="constrained"
    )
    widths = [
        PANEL * columns + ROW_LABELS,
        PANEL * columns,
    ]  # so the panels of both are of one size
    halves: Any = figure.subfigures(1, 2, wspace=0.02, width_ratios=widths)
    present = np.concatenate([row.visits[np.isfinite(row.visits)] for row in rows])
    positive = present[present > 0]
    scales = (
        ("reward of a cell (0 to 1)", Normalize(0.0, 1.0)),
        (
            "share of the steps (log scale)",
            LogNorm(positive.min(), positive.max()) if len(positive) else Normalize(),
        ),
    )
    for half, (label, norm), name in zip(halves, scales, ("rewards", "visits"), strict=True):
        grid = half.subplots(len(rows), columns, squeeze=False)
        for line, row in zip(grid, rows, strict=True):
            for axes, values in zip(line, getattr(row, name), strict=True):
                _draw_plan(axes, values, norm, walls, start)
            if name == "rewards":
                line[0].set_ylabel(row.label)
        for axes, moment in zip(grid[0], moments, strict=True):
            axes.set_title(moment, size=8.5)
        scale = ScalarMappable(norm, "viridis_r")
        half.colorbar(
            scale,
            ax=grid.ravel().tolist(),
            label=label,
            location="bottom",
            shrink=0.7,
            aspect=35,
            pad=0.02,
        )
        half.suptitle("Rewards" if name == "rewards" else "Visits", size=10)
    return figure


def _draw_plan(
    axes: Axes,
    values: Float[np.ndarray, "X Y"],
    norm: Normalize,
    walls: Bool[np.ndarray, "X Y"],
    start: tuple[int, int],
) -> None:
    # Rows of an image run along its vertical axis, the first axis of the grid along the horizontal
    # one.
    shown: Any = {"origin": "lower", "interpolation": "none"}
    axes.imshow(np.where(walls, 1.0, np.nan).T, cmap=ListedColormap([WALL]), **shown)
    axes.imshow(values.T, norm=norm, cmap="viridis_r", **shown)
    axes.plot(*start, **START_MARK | {"markersize": 4.5})
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color="#BBBBBB")
