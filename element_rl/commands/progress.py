"""What a person sees of a run in the terminal: a progress bar while it lasts, a table when it is
done."""

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from element_rl.commands.bars import bar_or_lines, stages_or_lines
from element_rl.envs.robots import HEALTH_OPTION
from element_rl.rewards.entropy_range import evaluation_sentence
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.watching import Progress as RunProgress
from element_rl.runs.watching import Watcher
from element_rl.training.off_policy.config import ExploreConfig


@contextlib.contextmanager
def watching(config: ExploreConfig) -> Iterator[Watcher]:
    """A watcher that draws a bar on a terminal, and prints lines elsewhere."""
    console = Console()
    agents = f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"
    console.print(
        f"[bold]{config.env}[/bold], reward {config.reward}, {config.steps:,} steps × {agents}"
    )
    if config.reward == "element":
        console.print(_windows(config))
    if f"{HEALTH_OPTION}=false" in config.env_options:
        console.print(
            "Falling does not end an episode (the paper's form: --env-options "
            f"{HEALTH_OPTION}=true)."
        )
    with bar_or_lines(console, "steps", config.steps, _status) as watch:
        yield watch


@contextlib.contextmanager
def acting() -> Iterator[Callable[[RunProgress], None]]:
    """A watcher of the episodes of an evaluation."""
    with stages_or_lines(Console(), {"episodes": "episodes"}, lambda stage, progress: ()) as watch:
        yield lambda progress: watch("episodes", progress)


@contextlib.contextmanager
def filming() -> Iterator[Callable[[RunProgress], None]]:
    """A watcher of the frames of a film; an episode may end before all that it could have."""
    with stages_or_lines(Console(), {"film": "frames"}, lambda stage, progress: ()) as watch:
        yield lambda progress: watch("film", progress)


def status_parts(progress: RunProgress, entries: Sequence[tuple[str, str, str]]) -> list[str]:
    """The latest of those metrics that are known: name, label and format of each, the most telling
    first."""
    return [
        f"{label} {progress.latest[name]:{form}}"
        for name, label, form in entries
        if np.isfinite(progress.latest.get(name, np.nan))
    ]


def said_finished(run: RunFolder, steps: int, unit: str = "step") -> bool:
    """Whether a run has all its steps behind it and a summary written; if so, a sentence says it
    and how to go on."""
    done = max(run.read_summary().get("steps", 0), run.latest_checkpoint() or 0)
    if not run.read_summary() or done < steps:
        return False
    print(f"{run.path} is finished at {unit} {done:,}; give --steps M, more than that, to go on.")
    return True


def resuming(run: RunFolder, steps: int) -> str:
    """What to say to a command so that it goes on with a run; --steps only if they are not those of
    its settings."""
    more = "" if steps == run.config["settings"]["steps"] else f" --steps {steps}"
    return f"--resume {shlex.quote(str(run.path))}{more}"


def summary_table(summary: dict[str, Any]) -> None:
    """The run beside a random policy on as many steps."""
    seeds = len(summary["seeds"])
    random = summary.get("random_policy") or {}
    table = Table(
        title=f"{summary['env']}, {summary['steps']:,} steps × {seeds} seed{'s' if seeds > 1 else ''}",
        caption=_window(bool(random)),
    )
    table.add_column("")
    table.add_column(summary["reward"], justify="right")
    if random:
        table.add_column("random policy", justify="right")
    measured = [summary, random] if random else [summary]
    table.add_row("coverage (cells)", *(_count(each["coverage"]) for each in measured))
    table.add_row(
        "episodic entropy (bits)", *(_number(each["episodic_entropy"]) for each in measured)
    )
    table.add_row("episode length (steps)", *(_count(each["episode_length"]) for each in measured))
    table.add_row("task return", *(_number(each["extrinsic_return"]) for each in measured))
    table.add_row("best task return", *(_best_episode(each) for each in measured))
    Console().print(table)
    if random and (said := covered_more(summary["coverage"], random["coverage"])):
        Console().print(said, style="bold", highlight=False)
    saturation = [value for value in summary["entropy_saturation"] if value is not None]
    if saturation and (said := evaluation_sentence(float(np.mean(saturation)))):
        Console().print(said, style="bold", highlight=False)
    together = f" of all {seeds} seeds together" if seeds > 1 else ""
    Console().print(
        f"{summary['env_steps_per_second']:,.0f} environment steps/s{together}, "
        f"{summary['wall_seconds']:.0f} s of training"
    )


def covered_more(coverage: Sequence[int | None], by_chance: Sequence[int | None]) -> str:
    """How many times the random policy's cells were covered, on average over seeds; empty where
    there is no map."""
    ours, theirs = (
        [cells for cells in each if cells is not None] for each in (coverage, by_chance)
    )
    if not ours or not theirs:
        return ""
    mean, chance = float(np.mean(ours)), float(np.mean(theirs))
    times = mean / chance
    return (
        f"{times:.{1 if times >= 2 else 2}f} times as many cells as a random policy on as many "
        f"steps ({mean:,.0f} against {chance:,.0f})."
    )


def _window(beside_random: bool) -> str:
    """Over what the numbers of a summary are taken."""
    random = " (of the random policy: all)" if beside_random else ""
    return f"Coverage and best return: of the whole run.\nThe rest: means over its last {FINAL_SHARE * 100:.0f} %{random}."


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


def _status(progress: RunProgress) -> list[str]:
    entries = (
        ("coverage", "cells", ",.0f"),
        ("episodic_entropy", "entropy", ".2f"),
        ("episode_length", "length", ".0f"),
        ("memory_size", "memory", ",.0f"),
    )
    return status_parts(progress, entries)


def _number(values: Any, text: Callable[[float], str] = "{:,.2f}".format) -> str:
    """Mean, with the range over seeds where there are several."""
    known = [v for v in (values if isinstance(values, list) else [values]) if v is not None]
    if not known:
        return "–"
    spread = f"  ({text(min(known))} to {text(max(known))})" if min(known) < max(known) else ""
    return f"{text(float(np.mean(known)))}{spread}"


def _count(values: Any) -> str:
    """The same of things that are counted; a mean of several may still need a decimal."""
    return _number(values, lambda value: f"{value:,.1f}".removesuffix(".0"))


def _best_episode(measured: dict[str, Any]) -> str:
    """The highest task return of any seed, and in how many steps."""
    returns, lengths = measured.get("best_return") or [], measured.get("best_length") or []
    known = [
        (value, -length, -seed)  # of equal ones the shortest, and the first seed's
        for value, length, seed in zip(returns, lengths, measured["seeds"], strict=False)
        if value is not None
    ]
    if not known:
        return "–"
    value, length, seed = max(known)
    whose = f", seed {-seed}" if len(measured["seeds"]) > 1 else ""
    return f"{value:,.2f} in {-length:,} steps{whose}"
