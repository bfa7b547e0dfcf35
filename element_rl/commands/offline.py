"""`element offline`: train agents on datasets, without acting in the world to learn."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from element_rl.commands.bars import bar_or_lines
from element_rl.commands.options import read_options
from element_rl.commands.progress import resuming, said_finished, status_parts
from element_rl.runs.folder import RunFolder
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted, Progress, Watcher
from element_rl.storage.settings import resumed_folder, settings_from_json
from element_rl.training.offline import create_offline_run, reopen_offline_run, train_offline
from element_rl.training.offline.config import OfflineConfig


@dataclass(frozen=True)
class Offline:
    """Train agents on Minari datasets, without acting to learn: conservative Q-learning, or
    behaviour cloning."""

    config: Annotated[OfflineConfig, tyro.conf.arg(name="")]
    # Folder of the run. (default: runs/DATASET-ALGORITHM-SEED)
    out: Path | None = None
    # Folder of a run to continue; settings are taken from it. (default: a new run begins)
    resume: Path | None = None
    # Draw the learning curve at the end.
    figures: bool = True


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    folder = resumed_folder(arguments)
    default = None
    if folder is not None:
        stored = settings_from_json(OfflineConfig, RunFolder.open(folder).config["settings"])
        default = Offline(stored, resume=folder)
    args = read_options(Offline, arguments, "element offline", default)
    if args.resume is not None:
        run = reopen_offline_run(args.config, args.resume)
        if said_finished(run, args.config.steps, "update"):
            return 0
    else:
        label = Path(args.config.datasets[0].rstrip("/")).name
        run = create_offline_run(
            args.config,
            args.out or Path("runs") / f"{label}-{args.config.algorithm}-{args.config.seed}",
        )
    try:
        with stop_signals() as stop, _watching(args.config) as watch:
            summary = train_offline(args.config, run, watch, stop, resume=args.resume is not None)
    except Interrupted as interrupted:
        print(
            f"Stopped after {interrupted.step:,} updates. Continue with: element offline "
            f"{resuming(run, args.config.steps)}"
        )
        return INTERRUPTED
    if args.figures and args.config.evaluate:
        _draw(run)
    _table(summary)
    print(f"Run: {run.path}")
    return 0


def _draw(run: RunFolder) -> None:
    from element_rl.plots import save_figure
    from element_rl.plots.offline import offline_curve

    figure = offline_curve(run)
    for kind in ("png", "svg"):
        path = save_figure(figure, run.figures_path / f"offline.{kind}")
        if kind == "png":
            print(f"Figure: {path}")


@contextlib.contextmanager
def _watching(config: OfflineConfig) -> Iterator[Watcher]:
    """A bar on a terminal, a line now and then elsewhere."""
    console = Console()
    names = ", ".join(config.datasets)
    console.print(f"[bold]{config.algorithm}[/bold] on {names}, {config.steps:,} updates")
    with bar_or_lines(console, "updates", config.steps, _status, one="agent") as watch:
        yield watch


def _status(progress: Progress) -> list[str]:
    entries = (
        ("extrinsic_return", "return", ",.1f"),
        ("normalised_score", "score", ".3f"),
        ("q_mean", "value", ",.1f"),
        ("conservative_gap", "gap", ".2f"),
    )
    return status_parts(progress, entries)


def _table(summary: dict[str, Any]) -> None:
    """One line per dataset, or per agent that made one."""
    table = Table(title=f"{summary['algorithm']} in {summary['env'] or 'an unnamed environment'}")
    for heading in ("dataset", "agents", "transitions", "return of the data", "return", "score"):
        table.add_column(
            heading, justify="left" if heading == "dataset" else "right", overflow="fold"
        )
    groups = list(dict.fromkeys(zip(summary["datasets"], summary["agents"], strict=True)))
    for group in groups:
        own = [
            i
            for i, each in enumerate(zip(summary["datasets"], summary["agents"], strict=True))
            if each == group
        ]
        name = group[0] if group[1] is None else f"{group[0]}, agent {group[1]}"
        first = own[0]
        numbers = [
            f"{len(own)}",
            f"{summary['transitions'][first]:,}",
            f"{summary['behaviour_return'][first]:,.2f}",
        ]
        spreads = [
            _spread([summary[key][i] for i in own])
            for key in ("extrinsic_return", "normalised_score")
        ]
        table.add_row(name, *numbers, *spreads)
    Console().print(table)
    count = len(summary["seeds"])
    together = f" of all {count} agents together" if count > 1 else ""
    Console().print(
        f"{summary['updates_per_second']:,.0f} updates/s{together}, {summary['wall_seconds']:.0f} "
        "s of training"
    )


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    spread = f"  ({min(known):,.2f} to {max(known):,.2f})" if len(known) > 1 else ""
    return f"{np.mean(known):,.2f}{spread}"
