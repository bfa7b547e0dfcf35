"""The maze as the paper shows it: a row per reward, what each cell is worth on the left, where
agents go on the right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from element_rl.plots.planes import draw_grid, log_scale
from element_rl.plots.style import STYLE

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
    # so the panels of both are of one size
    widths = [PANEL * columns + ROW_LABELS, PANEL * columns]
    bounds = [(-0.5, cells - 0.5) for cells in walls.shape]
    halves: Any = figure.subfigures(1, 2, wspace=0.02, width_ratios=widths)
    present = np.concatenate([row.visits[np.isfinite(row.visits)] for row in rows])
    positive = present[present > 0]
    scales = (
        ("reward of a cell (0 to 1)", Normalize(0.0, 1.0)),
        ("share of the steps (log scale)", log_scale(positive) if len(positive) else Normalize()),
    )
    for half, (label, norm), name in zip(halves, scales, ("rewards", "visits"), strict=True):
        grid = half.subplots(len(rows), columns, squeeze=False)
        for line, row in zip(grid, rows, strict=True):
            for axes, values in zip(line, getattr(row, name), strict=True):
                draw_grid(axes, values, bounds, norm, start, 4.5, walls)
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set(visible=True, color="#BBBBBB")
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
