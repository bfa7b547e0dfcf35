"""What a person sees in the terminal of a run that is done: tables, and sentences about them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from element_rl.commands.training import counted
from element_rl.rewards.entropy_range import evaluation_sentence
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.visits import counted as nouns


def summary_table(summary: dict[str, Any]) -> None:
    """The run beside a random policy on as many steps."""
    seeds = len(summary["seeds"])
    random = summary.get("random_policy") or {}
    table = Table(
        title=f"{summary['env']}, {summary['steps']:,} steps × {counted(seeds, 'seed')}",
        caption=_window(bool(random)),
    )
    table.add_column("")
    table.add_column(summary["reward"], justify="right")
    if random:
        table.add_column("random policy", justify="right")
    measured = [summary, random] if random else [summary]
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        f"coverage ({nouns(summary)})": lambda each: mean_and_range(each["coverage"], _count),
        "episodic entropy (bits)": lambda each: mean_and_range(each["episodic_entropy"]),
        "episode length (steps)": lambda each: mean_and_range(each["episode_length"], _count),
        "task return": lambda each: mean_and_range(each["extrinsic_return"]),
        "best task return": _best_episode,
    }
    for label, text in rows.items():
        table.add_row(label, *map(text, measured))
    Console().print(table)
    sentences = (
        [covered_more(summary["coverage"], random["coverage"], nouns(summary))] if random else []
    )
    saturation = [value for value in summary["entropy_saturation"] if value is not None]
    if saturation:
        share, of_reward = float(np.mean(saturation)), summary.get("reward_entropy")
        sentences.append(evaluation_sentence(share, of_reward))
    if faults := sum(summary.get("world_faults", ())):
        sentences.append(
            f"The physics failed {counted(faults, 'time')}; each time that one world was reset "
            "(docs/worlds.md)."
        )
    for sentence in filter(None, sentences):
        Console().print(sentence, style="bold", highlight=False)
    together = f" of all {seeds} seeds together" if seeds > 1 else ""
    Console().print(
        f"{summary['env_steps_per_second']:,.0f} environment steps/s{together}, "
        f"{summary['wall_seconds']:.0f} s of training"
    )


def covered_more(
    coverage: Sequence[int | None], by_chance: Sequence[int | None], noun: str = "cells"
) -> str:
    """How many times the random policy's cells were covered, on average over seeds; empty where
    none are counted."""
    ours, theirs = (
        [cells for cells in each if cells is not None] for each in (coverage, by_chance)
    )
    if not ours or not theirs:
        return ""
    mean, chance = float(np.mean(ours)), float(np.mean(theirs))
    times = mean / chance
    return (
        f"{times:.{1 if times >= 2 else 2}f} times as many {noun} as a random policy on as many "
        f"steps ({mean:,.0f} against {chance:,.0f})."
    )


def _window(beside_random: bool) -> str:
    """Over what the numbers of a summary are taken."""
    random = " (of the random policy: all)" if beside_random else ""
    return (
        "Coverage and best return: of the whole run.\n"
        f"The rest: means over its last {FINAL_SHARE * 100:.0f} %{random}."
    )


def evaluation_table(rows: Sequence[dict[str, Any]]) -> None:
    """One line per checkpoint."""
    table = Table("step", "episodes", "return", "length", "entropy (bits)", "cells")
    for row in rows:
        table.add_row(
            f"{row['step']:,}",
            f"{row['episodes']:,}",
            _if_there(row["extrinsic_return"], "{:,.2f}".format),
            _if_there(row["episode_length"], _count),
            _if_there(row["episodic_entropy"], "{:,.2f}".format),
            _if_there(row["coverage"], _count),
        )
    Console().print(table)


def _if_there(value: float | int | None, text: Callable[[float], str]) -> str:
    return "–" if value is None or np.isnan(value) else text(value)


def mean_and_range(
    values: Sequence[float | int | None], text: Callable[[float], str] = "{:,.2f}".format
) -> str:
    """The mean of the values that are known, with their range where they differ, and how many they
    are where some are missing."""
    there = [value for value in values if value is not None]
    if not there:
        return "–"
    notes = [f"{text(min(there))} to {text(max(there))}"] if min(there) < max(there) else []
    notes += [f"{len(there)} of {len(values)} seeds"] if len(there) < len(values) else []
    return text(float(np.mean(there))) + (f"  ({', '.join(notes)})" if notes else "")


def _count(value: float | int) -> str:
    """A number of things that are counted; a mean of several may still need a decimal."""
    return f"{value:,.1f}".removesuffix(".0")


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
