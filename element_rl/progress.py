"""What a person sees of a run in the terminal: a progress bar while it lasts, a table when it is done."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from element_rl.config import ExploreConfig
from element_rl.entropy_range import evaluation_sentence
from element_rl.envs.robots import HEALTH_OPTION
from element_rl.explore import Progress as RunProgress
from element_rl.explore import Watcher

LINES = 20  # of progress, where there is no terminal for a bar


@contextlib.contextmanager
def watching(config: ExploreConfig) -> Iterator[Watcher]:
    """A watcher that draws a bar on a terminal, and prints lines elsewhere."""
    console = Console()
    agents = f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"
    console.print(f"[bold]{config.env}[/bold], reward {config.reward}, {config.steps:,} steps × {agents}")
    if config.reward == "element":
        console.print(_windows(config))
    if f"{HEALTH_OPTION}=false" in config.env_options:
        console.print(f"Falling does not end an episode (the paper's form: --env-options {HEALTH_OPTION}=true).")
    with bar_or_lines(console, "explore", config.steps, _status) as watch:
        yield noting(watch, console)


def noting(watch: Watcher, console: Console) -> Watcher:
    """A watcher that also prints the run's note, once."""
    printed: set[str] = {""}

    def tell(progress: RunProgress) -> None:
        watch(progress)
        if progress.note not in printed:
            printed.add(progress.note)
            console.print(progress.note, style="bold", markup=False, highlight=False, soft_wrap=True)

    return tell


@contextlib.contextmanager
def bar_or_lines(
    console: Console, name: str, total: int, status: Callable[[RunProgress], str]
) -> Iterator[Callable[[RunProgress], None]]:
    """A watcher that draws a bar on a terminal, and elsewhere prints a line now and then."""
    if not sys.stdout.isatty():
        yield _line_printer(status)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=total, text="")
        yield lambda progress: bar.update(task, completed=progress.step, text=status(progress))


@contextlib.contextmanager
def stages_or_lines(
    console: Console, width: int, status: Callable[[str, RunProgress], str]
) -> Iterator[Callable[[str, RunProgress], None]]:
    """The same for work in several stages: a bar for each, under its name, which takes `width` places."""
    if not sys.stdout.isatty():
        printers: dict[str, Callable[[RunProgress], None]] = {}

        def line(stage: str, progress: RunProgress) -> None:
            if stage not in printers:
                printers[stage] = _line_printer(lambda now: status(stage, now), f"{stage:<{width}} ")
            printers[stage](progress)

        yield line
        return
    columns = (TextColumn(f"{{task.description:<{width}}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[text]}"), console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def watch(stage: str, progress: RunProgress) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=progress.steps, text="")
            bar.update(tasks[stage], completed=progress.step, text=status(stage, progress))

        yield watch


@contextlib.contextmanager
def acting() -> Iterator[Callable[[RunProgress], None]]:
    """A watcher of the episodes of an evaluation."""
    status = "{:.1f} episodes/s".format
    with stages_or_lines(Console(), 8, lambda _, progress: status(progress.steps_per_second)) as watch:
        yield lambda progress: watch("episodes", progress)


def status_text(progress: RunProgress, unit: str, entries: Sequence[tuple[str, str, str]]) -> str:
    """Speed, and the latest of those metrics that are known: name, label and format of each."""
    parts = [f"{progress.steps_per_second:,.0f} {unit}/s"]
    for name, label, form in entries:
        if np.isfinite(progress.latest.get(name, np.nan)):
            parts.append(f"{label} {progress.latest[name]:{form}}")
    return "  ".join(parts)


def summary_table(summary: dict[str, Any]) -> None:
    """The run beside a random policy on as many steps."""
    seeds = len(summary["seeds"])
    table = Table(title=f"{summary['env']}, {summary['steps']:,} steps × {seeds} seed{'s' if seeds > 1 else ''}")
    table.add_column("")
    table.add_column(summary["reward"], justify="right")
    random = summary.get("random_policy") or {}
    if random:
        table.add_column("random policy", justify="right")
    names = {
        "coverage": "coverage (cells)",
        "episodic_entropy": "episodic entropy (bits)",
        "episode_length": "episode length",
        "extrinsic_return": "task return",
    }
    for key, label in names.items():
        row = [label, _number(summary[key])]
        table.add_row(*row, *([_number(random[key])] if random else []))
    Console().print(table)
    saturation = [value for value in summary["entropy_saturation"] if value is not None]
    if saturation and (said := evaluation_sentence(float(np.mean(saturation)))):
        Console().print(said, style="bold", highlight=False)
    Console().print(
        f"{summary['env_steps_per_second']:,.0f} environment steps/s, {summary['wall_seconds']:.0f} s of training"
    )


def evaluation_table(rows: Sequence[dict[str, Any]]) -> None:
    """One line per checkpoint."""
    table = Table("step", "episodes", "return", "length", "entropy (bits)", "cells")
    for row in rows:
        cells = "–" if row["coverage"] is None else f"{row['coverage']:,}"
        numbers = [
            "–" if np.isnan(row[name]) else f"{row[name]:.2f}"
            for name in ("extrinsic_return", "episode_length", "episodic_entropy")
        ]
        table.add_row(f"{row['step']:,}", str(row["episodes"]), *numbers, cells)
    Console().print(table)


def _windows(config: ExploreConfig) -> str:
    interval, window = config.update_interval or 0, config.update_steps or 0
    if config.steps <= interval:
        return f"The lifelong memory stays empty: its first window opens at step {interval:,} (--update-interval)."
    return f"The lifelong memory takes in {window:,} steps every {interval:,} (--update-interval, --update-steps)."


def _line_printer(status: Callable[[RunProgress], str], before: str = "") -> Callable[[RunProgress], None]:
    printed = [0]

    def watch(progress: RunProgress) -> None:
        part = progress.step * LINES // progress.steps
        if part > printed[0]:
            printed[0] = part
            print(f"{before}{progress.step:>10,} / {progress.steps:,}  {status(progress)}", flush=True)

    return watch


def _status(progress: RunProgress) -> str:
    entries = (
        ("coverage", "cells", ",.0f"),
        ("episodic_entropy", "entropy", ".2f"),
        ("episode_length", "length", ".0f"),
        ("memory_size", "memory", ",.0f"),
    )
    return status_text(progress, "steps", entries)


def _number(values: Any) -> str:
    """Mean, with the range over seeds where there are several."""
    known = [v for v in (values if isinstance(values, list) else [values]) if v is not None]
    if not known:
        return "–"
    spread = f"  ({min(known):,.2f} to {max(known):,.2f})" if len(known) > 1 else ""
    return f"{np.mean(known):,.2f}{spread}"
