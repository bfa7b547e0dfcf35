"""Figures of one or several runs, drawn from their run folders alone.

    plot_run          all of the following that apply, as PNG and SVG
    coverage_curve    unique cells over environment steps, a panel per environment, one line per run
    entropy_curve     episodic entropy over environment steps, the episode length below it
    reward_terms      both terms of the reward, the size of the lifelong memory below them
    density_map       visits per coverage cell, all seeds together and each alone
    trajectories      episodes of the policies of several checkpoints, as `element evaluate` left
                      them
    save_figure       a figure as a file; save_both: as PNG and as SVG

Every function returns a `Figure` of its own and leaves pyplot and matplotlib's settings as they
were. What a run has no data for raises a `RunError` that says so.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from element_rl.plots.curves import coverage_curve, entropy_curve, reward_terms
from element_rl.plots.maps import density_map, trajectories
from element_rl.plots.style import STYLE, Run, opened, run_labels
from element_rl.runs.folder import RunError
from element_rl.storage.files import write_atomically

__all__ = [
    "coverage_curve",
    "density_map",
    "entropy_curve",
    "plot_run",
    "reward_terms",
    "trajectories",
]


def plot_run(
    runs: Sequence[Run], out: Path | None = None, say: Callable[[str], None] = print
) -> list[Path]:
    """Draws all figures that apply into `out` (default: figures/ of the first run); skipped ones
    are said."""
    folders = opened(runs)
    for folder in folders:
        folder.check_manifests()
    drawings: dict[str, Callable[[], Figure]] = {
        "coverage": partial(coverage_curve, folders),
        "entropy": partial(entropy_curve, folders),
    }
    for folder, label in zip(folders, run_labels(folders), strict=True):
        suffix = "_" + re.sub(r"[^\w.-]+", "_", label).strip("_") if len(folders) > 1 else ""
        drawings |= {
            f"{draw.__name__}{suffix}": partial(draw, folder)
            for draw in (reward_terms, density_map, trajectories)
        }
    written = []
    for name, draw in drawings.items():
        try:
            figure = draw()
        except RunError as reason:  # there is nothing to draw; a damaged file is another matter
            say(f"Skipped {name}: {reason}")
            continue
        written += save_both(figure, out or folders[0].figures_path, name)
    return written


def save_both(figure: Figure, folder: Path, name: str) -> list[Path]:
    """A figure as NAME.png and NAME.svg in a folder; the files."""
    return [save_figure(figure, folder / f"{name}.{kind}") for kind in ("png", "svg")]


@matplotlib.rc_context(STYLE)
def save_figure(figure: Figure, path: Path) -> Path:
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    write_atomically(
        path, partial(figure.savefig, format=kind, bbox_inches="tight", metadata=metadata)
    )
    return path
