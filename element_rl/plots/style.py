"""What all figures share: their look, and how they name runs.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; scales that carry a quantity are viridis.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import EngFormatter

from element_rl.runs import RunError, RunFolder

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
INK, QUIET, START = "#222222", "#666666", "#D55E00"
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.7,
    "savefig.dpi": 150,
    "svg.hashsalt": "element_rl",  # the same run gives the same file
}

Run = RunFolder | str | Path


def opened(runs: Sequence[Run]) -> list[RunFolder]:
    if not runs:
        raise RunError("There is nothing to plot: give at least one run folder.")
    return [run if isinstance(run, RunFolder) else RunFolder.open(run) for run in runs]


def run_labels(folders: Sequence[RunFolder]) -> list[str]:
    """The reward of each run, with the environment and the folder's name where these are needed to tell runs apart."""
    several = len({folder.config.get("env") for folder in folders}) > 1
    labels = []
    for folder in folders:
        reward = str(folder.config.get("reward", folder.path.name))
        labels.append(f"{reward}, {folder.config.get('env')}" if several else reward)
    return [
        f"{label} ({folder.path.name})" if labels.count(label) > 1 else label
        for label, folder in zip(labels, folders, strict=True)
    ]


def figure_title(folders: Sequence[RunFolder], with_reward: bool = False) -> str:
    """The environment, the reward if asked for, and over how many seeds the figure speaks."""
    parts = [", ".join(dict.fromkeys(str(folder.config.get("env", folder.path.name)) for folder in folders))]
    if with_reward and "reward" in folders[0].config:
        parts.append(folders[0].config["reward"])
    seeds = {len(np.unique(metrics_of(folder).get("seed", []))) for folder in folders} - {0}
    if seeds and max(seeds) > 1:
        parts.append(f"{'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds")
    return " · ".join(parts)


def steps_text(step: int) -> str:
    """500000 as 500k, 1234567 as 1.23M."""
    return str(EngFormatter(sep="")(float(f"{step:.3g}")))


def metrics_of(folder: RunFolder) -> dict[str, np.ndarray]:
    """metrics.csv, parsed once for all figures: a long run of many seeds takes a second."""
    changed = folder.metrics_path.stat().st_mtime_ns if folder.metrics_path.exists() else 0
    return _metrics_as_of(folder.path, changed)


@lru_cache(maxsize=16)
def _metrics_as_of(path: Path, changed: int) -> dict[str, np.ndarray]:
    return RunFolder.open(path).read_metrics()
