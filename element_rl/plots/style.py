"""What all figures share: their look, and how they name runs.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; scales that carry a
quantity are viridis.
"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from element_rl.runs.folder import RunError, RunFolder

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# the next once the colours are used up
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))
INK, QUIET, START = "#222222", "#666666", "#D55E00"
# what lines are compared with
REFERENCE_LINE: Any = {"linestyle": (0, (5, 3)), "linewidth": 1.3, "zorder": 1.9}
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


class RunLine(NamedTuple):
    """How a run is drawn and called."""

    label: str
    style: dict[str, Any]


def opened(runs: Sequence[Run]) -> list[RunFolder]:
    """The folders of the runs, each once."""
    if not runs:
        raise RunError("There is nothing to plot: give at least one run folder.")
    folders = [run if isinstance(run, RunFolder) else RunFolder.open(run) for run in runs]
    return list({folder.path.resolve(): folder for folder in folders}.values())


def line_style(rank: int) -> dict[str, Any]:
    """Colour and dashes of the line of this rank: 21 that can be told apart."""
    return {
        "color": COLOURS[rank % len(COLOURS)],
        "linestyle": DASHES[rank // len(COLOURS) % len(DASHES)],
    }


def run_lines(folders: Sequence[RunFolder]) -> list[RunLine]:
    """Label and style of each run, alike for the runs of one reward in different environments."""
    kinds, turns = [_kind(folder) for folder in folders], Counter[tuple[str, str]]()
    keys = []
    for env, reward in kinds:
        keys.append((reward, turns[env, reward]))
        turns[env, reward] += 1
    repeated = {reward for reward, turn in keys if turn}
    names: dict[tuple[str, int], list[str]] = {key: [] for key in keys}
    for key, name in zip(keys, _names(folders), strict=True):
        names[key].append(name)
    labels = {
        key: f"{key[0]} ({', '.join(dict.fromkeys(called))})" if key[0] in repeated else key[0]
        for key, called in names.items()
    }
    styles = {key: line_style(rank) for rank, key in enumerate(names)}
    return [RunLine(labels[key], styles[key]) for key in keys]


def run_labels(folders: Sequence[RunFolder]) -> list[str]:
    """The reward of each run, with the environment and the folder's name where these are needed to
    tell runs apart."""
    kinds = [_kind(folder) for folder in folders]
    several = len({env for env, _ in kinds}) > 1
    return [
        (f"{reward}, {env}" if several else reward)
        + (f" ({name})" if kinds.count((env, reward)) > 1 else "")
        for (env, reward), name in zip(kinds, _names(folders), strict=True)
    ]


def _kind(folder: RunFolder) -> tuple[str, str]:
    """Environment and reward."""
    return environment_of(folder), literal(folder.config.get("reward", folder.path.name))


def environment_of(folder: RunFolder) -> str:
    return literal(folder.config.get("env", folder.path.name))


def literal(text: object) -> str:
    """Text from outside as text: matplotlib takes what is between two dollars for an equation."""
    return str(text).replace("$", r"\$")


def _names(folders: Sequence[RunFolder]) -> list[str]:
    """The end of each run's path, as short as tells it from the other runs of its environment and
    reward."""
    paths = [(_kind(folder), folder.path.resolve().parts) for folder in folders]
    names = []
    for kind, parts in paths:
        others = [other for same, other in paths if same == kind and other != parts]
        lengths = range(1, len(parts) + 1)
        depth = next(n for n in lengths if all(other[-n:] != parts[-n:] for other in others))
        names.append(literal("/".join(parts[-depth:])))
    return names


def figure_title(folders: Sequence[RunFolder], with_reward: bool = False) -> str:
    """The environment, the reward if asked for, and over how many seeds the figure speaks."""
    parts = [", ".join(dict.fromkeys(environment_of(folder) for folder in folders))]
    if with_reward and "reward" in folders[0].config:
        parts.append(literal(folders[0].config["reward"]))
    seeds = {len(np.unique(metrics_of(folder).get("seed", []))) for folder in folders} - {0}
    if seeds and max(seeds) > 1:
        parts.append(f"{'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds")
    return " · ".join(parts)


def panel_grid(panels: int) -> tuple[int, int]:
    """Rows and columns of panels of the same size: three abreast, four as two by two."""
    columns = 2 if panels == 4 else min(panels, 3)
    return -(-panels // columns), columns


def wrapped_title(title: str, inches: float) -> str:
    """On as many lines as a panel of this width needs."""
    return textwrap.fill(title, int(12 * inches))


def add_note(figure: Figure, text: str) -> None:
    """A line below the figure on how to read it."""
    width = int(17 * figure.get_figwidth())
    figure.supxlabel(textwrap.fill(text, width), size=8, color=QUIET, x=0.02, ha="left")


def whole_ticks(axis: Axis) -> None:
    """Ticks of something that is counted: no 2.5 cells."""
    axis.set_major_locator(
        MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1)
    )


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
