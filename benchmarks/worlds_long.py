"""A hundred million steps: do speed and memory stay what they are at the beginning?

One run of ELEMENT with a bounded memory in worlds on the device, ten Ants of ten million steps each
unless told otherwise. At intervals a line goes into `long.csv` in the run's folder: steps of all
agents, seconds, what JAX holds on the first device (of the process, where JAX does not say it),
what it has held at most, remembered states and unique cells. The run goes on where it was, so that
it can be made in pieces:

    python -m benchmarks.worlds_long --seconds 500     # on a GPU, again and again until done
    python -m benchmarks.worlds_long --seconds 0 --page   # the table of docs/worlds.md
"""

import csv
import dataclasses
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro

from benchmarks.pieces import trained
from benchmarks.tables import ROOT, markdown_table, replace_table
from element_rl.agents.sac import SACConfig
from element_rl.runs.watching import Progress
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.worlds.making import Physics

PAGE = ROOT / "docs" / "worlds.md"
COLUMNS = ("steps", "seconds", "bytes", "most_bytes", "memory_size", "coverage")
PARTS = 10  # of the run, each a row of the table


@dataclass(frozen=True)
class Settings:
    """What to run."""

    env: str = "Ant-v5"
    physics: Physics = "warp"
    seeds: int = 10
    # Of each agent.
    steps: int = 10_000_000
    envs_per_agent: int = 480
    updates_per_step: float = 1 / 32
    batch_size: int = 512
    memory: Literal["spaced", "exact"] = "spaced"
    remember: Literal["windows", "always"] = "windows"
    replay_size: int = 1_000_000
    # Units of each hidden layer of actors and critics.
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    env_options: tuple[str, ...] = ()
    # Seconds after which the run stops, to go on when the command is given again.
    seconds: float = 500.0
    # Seconds between two lines.
    every: float = 10.0
    out: Path = Path("runs/worlds-long")
    # Write the table into docs/worlds.md.
    page: bool = False


def main(settings: Settings) -> bool:
    """Whether the run is done."""
    log = settings.out / "long.csv"
    config, before = config_of(settings), read_lines(log)
    began, last = time.monotonic(), 0.0
    spent = before[-1]["seconds"] if before else 0.0

    def watch(progress: Progress) -> None:
        """Called after every chunk."""
        nonlocal last
        now = time.monotonic() - began
        if progress.step and (now - last >= settings.every or progress.step >= config.steps):
            last = now
            row = line(progress, settings.seeds, spent + now)
            _append(log, row)

    done = trained(config, settings.out, settings.seconds, watch)
    table = render(read_lines(log), settings.steps * settings.seeds)
    print(table)
    if settings.page:
        replace_table(PAGE, "long", table)
    return done


def config_of(settings: Settings) -> ExploreConfig:
    """The run."""
    names = (
        *("env", "physics", "seeds", "steps", "envs_per_agent", "updates_per_step", "batch_size"),
        *("memory", "remember", "replay_size", "env_options"),
    )
    return ExploreConfig(
        **{name: getattr(settings, name) for name in names},
        random_seeds=0,
        sac=dataclasses.replace(SACConfig(), hidden_sizes=settings.hidden_sizes),
    )


def line(progress: Progress, seeds: int, seconds: float) -> dict[str, float]:
    """What is written down at a moment. Seconds are those of all pieces, start-ups included."""
    held = jax.devices()[0].memory_stats() or {}
    process = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    latest = progress.latest
    return {
        "steps": progress.step * seeds,
        "seconds": round(seconds, 1),
        "bytes": held.get("bytes_in_use", process),
        "most_bytes": held.get("peak_bytes_in_use", process),
        "memory_size": latest.get("memory_size", np.nan),
        "coverage": latest.get("coverage", np.nan),
    }


def _append(log: Path, row: Mapping[str, float]) -> None:
    new = not log.exists()
    with log.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def read_lines(log: Path) -> list[dict[str, float]]:
    """Those of all pieces, without steps that a later piece made again."""
    if not log.exists():
        return []
    with log.open(newline="") as file:
        rows = [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]
    kept: list[dict[str, float]] = []
    for row in rows:
        while kept and kept[-1]["steps"] >= row["steps"]:
            kept.pop()
        kept.append(row)
    return kept


def render(rows: Sequence[Mapping[str, float]], total: int) -> str:
    """The last line of each tenth of the run, and the speed within it."""
    lines, earlier = [], {"steps": 0.0, "seconds": 0.0}
    for part in range(1, PARTS + 1):
        here = [row for row in rows if earlier["steps"] < row["steps"] <= part * total / PARTS]
        if not here:
            continue
        row = here[-1]
        speed = (row["steps"] - earlier["steps"]) / max(row["seconds"] - earlier["seconds"], 1e-9)
        lines.append(
            [
                f"{row['steps'] / 1e6:,.3g} million",
                f"{row['seconds'] / 60:,.1f}",
                f"{speed:,.0f}",
                f"{row['bytes'] / 1e9:.2f}",
                f"{row['most_bytes'] / 1e9:.2f}",
                f"{row['memory_size']:,.0f}",
                f"{row['coverage']:,.0f}",
            ]
        )
        earlier = dict(row)
    header = [
        "steps of all agents",
        "minutes",
        "steps/s",
        "GB",
        "GB at most",
        "remembered",
        "cells",
    ]
    return markdown_table(header, lines)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
