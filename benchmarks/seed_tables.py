"""Cells of every seed of several methods on several robots: kept as data, as tables with exact
tests, and drawn. What the pages of report seeds share (`worlds_coverage`, `estimators`)."""

import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown_table
from element_rl.plots.lines import draw_ends, draw_seeds
from element_rl.plots.style import COLOURS, QUIET
from element_rl.studies.engine.statistics import holm, permutation_p_value

COLUMNS = ("coverage", "episodic_entropy", "extrinsic_return", "temperature")

# robot, method → seed → (step, cells, or another column)
Cells = Mapping[tuple[str, str], Mapping[int, Sequence[tuple[int, float]]]]
Labels = Mapping[str, str]  # of methods, in the order of the tables


def train(folder: Path, robot: str, flags: Sequence[str]) -> None:
    """Explore, unless the run is there; its words go into a log beside its folder."""
    run_command(folder, ["explore", robot, *flags])


def run_command(folder: Path, words: Sequence[str]) -> None:
    """A command of `element` that makes a run, unless it is there."""
    if (folder / "summary.json").exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "element_rl.cli", *words, "--out", str(folder)]
    with folder.with_suffix(".log").open("ab") as log:
        subprocess.run(command, stdout=log, stderr=log, check=False)


def write_data(
    out: Path, path: Path, cells: Iterable[tuple[str, str]], points: int | None = None
) -> None:
    """What all runs have logged, a line per seed and step; of so many steps if not all are kept."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("environment", "method", "seed", "step", *COLUMNS))
        for robot, method in cells:
            log = out / robot / method / "metrics.csv"
            with log.open(newline="") as metrics:
                rows = list(csv.DictReader(metrics))
            kept = spread_steps(sorted({int(row["step"]) for row in rows}), points)
            for row in rows:
                if int(row["step"]) in kept:
                    values = [row.get(name, "") for name in COLUMNS]
                    writer.writerow([robot, method, row["seed"], row["step"], *values])


def spread_steps(steps: Sequence[int], points: int | None) -> set[int]:
    """The first step in each of so many equal parts of a run, counted from its end: the last one
    among them."""
    if points is None:
        return set(steps)
    parts = [step * points // steps[-1] for step in steps]
    return {
        step for step, part, before in zip(steps, parts, [0, *parts], strict=False) if part > before
    }


def read_data(path: Path, column: str = "coverage") -> Cells:
    """Unique cells, or another column, by robot and method, then by seed, in the order of steps;
    lines that do not have it left out."""
    found: dict[tuple[str, str], dict[int, list[tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            own = found[row["environment"], row["method"]][int(row["seed"])]
            if (value := float(row[column] or "nan")) == value:
                own.append((int(row["step"]), value))
    return {cell: dict(seeds) for cell, seeds in found.items()}


def at_the_end(cells: Cells, robot: str, method: str) -> list[int]:
    """Cells of every seed at the last step."""
    return [int(rows[-1][1]) for _, rows in sorted(cells[robot, method].items())]


def cells_table(cells: Cells, robots: Sequence[str], labels: Labels) -> str:
    """Mean and standard deviation over the seeds."""
    rows = []
    for robot in robots:
        ends = {method: np.array(at_the_end(cells, robot, method)) for method in labels}
        best = max(ends, key=lambda method: ends[method].mean())
        rows.append([robot])
        for method, values in ends.items():
            mean = f"{values.mean():,.0f}"
            rows[-1].append(
                f"{f'**{mean}**' if method == best else mean} ± {values.std(ddof=1):,.0f}"
            )
    return markdown_table(["unique cells", *labels.values()], rows)


def comparisons_table(
    cells: Cells, robots: Sequence[str], labels: Labels, pairs: Sequence[tuple[str, str]]
) -> str:
    """Exact tests of pairs, corrected together."""
    p_values = {
        (robot, *pair): permutation_p_value(
            *([np.array(at_the_end(cells, robot, method))] for method in pair)
        )
        for robot in robots
        for pair in pairs
    }
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    rows = []
    for robot in robots:
        rows.append([robot])
        for one, other in pairs:
            means = [np.mean(at_the_end(cells, robot, method)) for method in (one, other)]
            ratio, p = means[0] / means[1], corrected[robot, one, other]
            rows[-1].append(f"{ratio:.2f} ({'< 0.001' if p < 0.001 else f'{p:.2g}'})")
    names = [f"{labels[one]} / {labels[other]}" for one, other in pairs]
    return markdown_table(["ratio of means (corrected p)", *names], rows)


def draw_robot(panel: Any, cells: Cells, robot: str, labels: Labels) -> None:
    """A line for each method, a point for every seed at the end; the last method is the quiet
    one."""
    ends = []
    colours = (*COLOURS[: len(labels) - 1], QUIET)
    names = {**labels, "random": "random policy"}
    for method, colour in zip(labels, colours, strict=True):
        rows = [seeds for _, seeds in sorted(cells[robot, method].items())]
        steps = np.array([0, *(step for step, _ in rows[0])])
        values = np.array([[0.0, *(float(count) for _, count in row)] for row in rows])
        ends.append(draw_seeds(panel, steps, values, {"color": colour}, names[method]))
    draw_ends(panel, ends)
    panel.set_title(robot)
