"""`element plot`: draw the figures of runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from element_rl.commands.options import read_options
from element_rl.plots import plot_run
from element_rl.runs.folder import RunFolder

SOME_RUNS = tyro.conf.arg(metavar="RUN ...", help_behavior_hint="(required)")


@dataclass(frozen=True)
class Plot:
    """Draw coverage, density, entropy, reward terms and trajectories of runs.

    Several runs share the curves, with a panel for each environment.
    """

    # Folders of the runs, made by element explore, on-policy or mario.
    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], SOME_RUNS]]
    # Folder for the figures. (default: the first run's own, RUN/figures)
    out: Path | None = None


def main(arguments: list[str]) -> int:
    args = read_options(Plot, arguments, "element plot")
    if not args.runs:
        raise ValueError("Name at least one run folder to plot.")
    for path in plot_run([RunFolder.open(run) for run in args.runs], args.out):
        print(path)
    return 0
