"""Does every reward explore? Coverage of the point maze by each, beside a random policy, several
seeds at once.

The maze (`element_rl.envs.point_maze`) has nine rooms in a row; a random walk sees the first two.
Reported are the cells of 0.1 visited (of 10,000, a third of them wall), how many rooms were
entered, and whether the last one was. All methods learn with the same SAC, from their reward alone,
with the settings of their papers. Two things are set for all: a reward is divided by its recent
standard deviation (ELEMENT's is within [0, 1] as it is), because SAC minds its size; and SAC's
target entropy is 0.

    python -m benchmarks.bench_coverage --seeds 5 --steps 40000

Runs are kept and not run again; `--together 3` runs three at a time.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro

from benchmarks.tables import markdown_table, replace_table
from element_rl.envs.point_maze import LAST_ROOM, WALL
from element_rl.envs.spec import CELLS_PER_AXIS
from element_rl.rewards import NAMES
from element_rl.runs.folder import RunFolder

PAGE = Path("docs/results/point-maze.md")
# E3B's 512 features are meant for images; its bonus is scaled and clipped as in its authors'
# MiniHack runs, because the first steps of every episode have by far the largest.
OWN_OPTIONS = {"e3b": ("--reward-options feature_dim=128 normalise=true largest_reward=1.0",)}
ROOM_EDGES = (6, 13)  # of the cells of the plan: walls between rooms, along both axes


@dataclass(frozen=True)
class Settings:
    """What to run."""

    rewards: tuple[str, ...] = ("random", *NAMES)
    seeds: int = 5
    steps: int = 40_000
    together: int = 1  # runs at the same time
    out: Path = Path("runs/point-maze")
    page: bool = True  # write the table into docs/results/point-maze.md
    options: tuple[str, ...] = ("--sac.target-entropy 0",)  # more, for `element explore`


def main(settings: Settings) -> list[dict[str, Any]]:
    """Run what has not been run, then the table."""
    waiting = [
        name for name in settings.rewards if not (settings.out / name / "summary.json").exists()
    ]
    while waiting:
        turn, waiting = waiting[: settings.together], waiting[settings.together :]
        processes = {name: _start(settings, name) for name in turn}
        for name, process in processes.items():
            code = process.wait()
            print(f"{name}: {'done' if code == 0 else f'exit code {code}'}", flush=True)
    rows = [
        summary_of(settings.out / name)
        for name in settings.rewards
        if (settings.out / name / "summary.json").exists()
    ]
    text = render(rows)
    print(text)
    missing = sorted(set(settings.rewards) - {row["reward"] for row in rows})
    if missing:
        raise SystemExit(
            f"Not finished: {', '.join(missing)}; see the logs in {settings.out}. The page is left "
            "as it is."
        )
    if settings.page:
        replace_table(PAGE, "point-maze", text)
        draw(rows, PAGE.with_suffix(".png"))
    return rows


def _start(settings: Settings, name: str) -> subprocess.Popen[bytes]:
    folder = settings.out / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    known = ["--resume", str(folder)] if (folder / "config.json").exists() else []
    fresh = [
        "--reward",
        name,
        "--seeds",
        str(settings.seeds),
        "--steps",
        str(settings.steps),
        "--out",
        str(folder),
    ]
    fresh += ["--random-seeds", "0", "--no-figures"]
    fresh += [] if name in ("element", "random") else ["--recent-scale"]
    fresh += [
        word
        for option in (*settings.options, *OWN_OPTIONS.get(name, ()))
        for word in option.split()
    ]
    command = [sys.executable, "-m", "element_rl.cli", "explore", "PointMaze", *(known or fresh)]
    with (folder.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def summary_of(folder: Path) -> dict[str, Any]:
    """Cells, rooms and the last room, per seed, from the final map of visits."""
    summary = json.loads((folder / "summary.json").read_text())
    visits = RunFolder.open(folder).load_visits()
    return {
        "reward": folder.name,
        "steps": summary["steps"],
        "visits": visits,
        "cells": summary["coverage"],
        "rooms": [rooms_entered(seed) for seed in visits],
        "last": [in_last_room(seed) for seed in visits],
        "seconds": summary["wall_seconds"],
        "commit": summary["commit"],
        "hardware": summary["hardware"],
    }


def rooms_entered(visits: Any) -> int:
    """How many of the nine rooms hold a visited cell."""
    columns, rows = np.nonzero(visits)
    scale = len(WALL) / CELLS_PER_AXIS
    x, y = (np.digitize(axis * scale, ROOM_EDGES) for axis in (columns, rows))
    return len(set(zip(x.tolist(), y.tolist(), strict=True)))


def in_last_room(visits: Any) -> bool:
    """Whether a cell of the last room was visited."""
    columns, rows = np.nonzero(visits)
    scale = len(WALL) / CELLS_PER_AXIS
    return bool(LAST_ROOM[(columns * scale).astype(int), (rows * scale).astype(int)].any())


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A map for each reward: how many of its seeds have been in each cell."""
    rows = sorted(rows, key=lambda row: -float(np.median(row["cells"])))
    figure, axes = plt.subplots(
        2, -(-len(rows) // 2), figsize=(2.6 * -(-len(rows) // 2), 5.6), layout="constrained"
    )
    walls = np.kron(WALL, np.ones((CELLS_PER_AXIS // len(WALL),) * 2))
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, row in zip(axes.flat, rows, strict=False):
        seeds = np.where(walls, np.nan, (row["visits"] > 0).sum(axis=0))
        image = axis.imshow(
            seeds.swapaxes(0, 1), origin="lower", cmap="viridis", vmin=0, vmax=len(row["visits"])
        )
        axis.set_title(f"{row['reward']}: {np.median(row['cells']):,.0f} cells", fontsize=10)
    figure.colorbar(image, ax=axes, label="seeds that have been there", shrink=0.8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def render(rows: list[dict[str, Any]]) -> str:
    """One line per reward, most cells first."""
    header = [
        "reward",
        "cells: median",
        "lowest–highest",
        "× random",
        "rooms entered, per seed",
        "seeds in the last room",
        "seconds",
    ]
    random = next(
        (float(np.median(row["cells"])) for row in rows if row["reward"] == "random"), float("nan")
    )
    lines = []
    for row in sorted(rows, key=lambda row: -float(np.median(row["cells"]))):
        median = float(np.median(row["cells"]))
        rooms = ", ".join(str(number) for number in sorted(row["rooms"], reverse=True))
        cells = [
            f"{median:,.0f}",
            f"{min(row['cells']):,}–{max(row['cells']):,}",
            f"{median / random:.2f}",
        ]
        lines.append(
            [
                row["reward"],
                *cells,
                rooms,
                f"{sum(row['last'])} of {len(row['last'])}",
                f"{row['seconds']:.0f}",
            ]
        )
    return markdown_table(header, lines)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
