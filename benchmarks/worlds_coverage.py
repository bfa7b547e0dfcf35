"""Which method covers most when thousands of worlds act on the device? Report seeds, one recipe.

Every cell is a run of `element explore ROBOT --physics warp` with the same settings but for the
reward. What the runs logged is kept in docs/results/data/worlds.csv, a line per seed and step, from
which table and figure of docs/results/worlds.md are made:

    python -m benchmarks.worlds_coverage                    # table and figure from the data
    python -m benchmarks.worlds_coverage --run --together 8 # on a GPU: the runs, then the data
    python -m benchmarks.worlds_coverage --submit           # the leaderboard's file, from the data

`--run` starts several runs at a time; CUDA's multi-process service (`nvidia-cuda-mps-control -d`)
lets them share a GPU. Cells that are there are not run again.
"""

import csv
import itertools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tyro

from benchmarks.tables import markdown_table, replace_table
from element_rl.plots.lines import draw_ends, draw_seeds, finish_axes
from element_rl.plots.style import COLOURS, QUIET, STYLE
from element_rl.studies.engine.statistics import holm, permutation_p_value
from element_rl.studies.engine.submission import Entry, Submission, write_submission

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGE, DATA = DOCS / "worlds.md", DOCS / "data" / "worlds.csv"
LEADERBOARD = DOCS.parent / "leaderboard"
COMMIT = "8291c58"  # of the runs in the data
TRACK = "64 worlds on the device, SAC with three layers of 256, 1/8 updates of 256"
ROBOTS = ("Humanoid-v5", "HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5")
METHODS: dict[str, tuple[str, ...]] = {
    "element": (),
    "element-beta0-robust": ("--beta", "0", "--normalisation", "robust"),
    "rnd": ("--reward", "rnd", "--recent-scale"),
    "random": ("--reward", "random"),
}
LABELS = {"element": "ELEMENT", "element-beta0-robust": "ELEMENT, β = 0, robust", "rnd": "RND"}
STEPS = 204_800
RECIPE = (
    *("--physics", "warp", "--envs-per-agent", "64", "--updates-per-step", "0.125"),
    *("--batch-size", "256", "--seed", "1000", "--seeds", "10", "--steps", str(STEPS)),
    *("--log-every", "20480", "--checkpoint-every", "999999999", "--replay-size", "220000"),
    *("--random-seeds", "0", "--no-figures"),
)
COLUMNS = ("coverage", "episodic_entropy", "extrinsic_return", "temperature")

Cells = Mapping[tuple[str, str], Mapping[int, Sequence[tuple[int, int]]]]  # seed → (step, cells)


@dataclass(frozen=True)
class Settings:
    """What to do."""

    # Run what is missing, and write the data anew.
    run: bool = False
    # Runs at a time.
    together: int = 8
    # Folder of the runs.
    out: Path = Path("runs/worlds")
    # Write the tables into docs/results/worlds.md, and draw its figure.
    page: bool = False
    # Write the leaderboard's file.
    submit: bool = False


def main(settings: Settings) -> None:
    """The tables of the page."""
    if settings.run:
        with ThreadPoolExecutor(settings.together) as pool:
            list(pool.map(lambda cell: run(settings.out, *cell), all_cells()))
        write_data(settings.out, DATA)
    cells = read_data(DATA)
    tables = {"cells": cells_table(cells), "comparisons": comparisons_table(cells)}
    for name, table in tables.items():
        print(table, end="\n\n")
        if settings.page:
            replace_table(PAGE, name, table)
    if settings.page:
        draw(cells, PAGE.with_suffix(".png"))
    if settings.submit:
        print(write_submission(LEADERBOARD, submission_of(cells)))


def submission_of(cells: Cells) -> Submission:
    """What the data say to the leaderboard. Where they come from stands on the page, whose runs
    these are."""
    entries = []
    for robot, method in all_cells():
        seeds = sorted(cells[robot, method].items())
        lines = [[float(count) for _, count in rows] for _, rows in seeds]
        entries.append(
            Entry(
                environment=robot,
                method=method,
                steps=STEPS,
                seeds=tuple(seed for seed, _ in seeds),
                scores=tuple(line[-1] for line in lines),
                curve_steps=tuple(step for step, _ in seeds[0][1]),
                curves=tuple(map(tuple, lines)),
                reward=method.removesuffix("-beta0-robust"),
                settings={"flags": [*RECIPE, *METHODS[method]]},
            )
        )
    return Submission(
        study="coverage",
        track=TRACK,
        measure="unique cells",
        by="worlds",
        command="python -m benchmarks.worlds_coverage --run --together 8",
        commit=COMMIT,
        versions="jax 0.11.2, mujoco 4.0.0, mujoco-warp 4.0.0",
        hardware="one NVIDIA H200, 16 CPU cores",
        date="2026-11-18",
        entries=tuple(entries),
    )


def all_cells() -> list[tuple[str, str]]:
    return list(itertools.product(ROBOTS, METHODS))


def run(out: Path, robot: str, method: str) -> None:
    """Train a cell, unless it is there; its words go into a log beside its folder."""
    folder = out / robot / method
    if (folder / "summary.json").exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "element_rl.cli", "explore", robot, *RECIPE, *METHODS[method]]
    with folder.with_suffix(".log").open("ab") as log:
        subprocess.run([*command, "--out", str(folder)], stdout=log, stderr=log, check=False)


def write_data(out: Path, path: Path) -> None:
    """What all runs have logged, a line per seed and step."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("environment", "method", "seed", "step", *COLUMNS))
        for robot, method in all_cells():
            log = out / robot / method / "metrics.csv"
            with log.open(newline="") as metrics:
                for row in csv.DictReader(metrics):
                    values = [row.get(name, "") for name in COLUMNS]
                    writer.writerow([robot, method, row["seed"], row["step"], *values])


def read_data(path: Path) -> Cells:
    """Unique cells by robot and method, then by seed, in the order of steps."""
    found: dict[tuple[str, str], dict[int, list[tuple[int, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            own = found[row["environment"], row["method"]][int(row["seed"])]
            own.append((int(row["step"]), int(row["coverage"])))
    return {cell: dict(seeds) for cell, seeds in found.items()}


def at_the_end(cells: Cells, robot: str, method: str) -> list[int]:
    """Cells of every seed at the last step."""
    return [rows[-1][1] for _, rows in sorted(cells[robot, method].items())]


def cells_table(cells: Cells) -> str:
    """Mean and standard deviation over the seeds."""
    rows = []
    for robot in ROBOTS:
        ends = {method: np.array(at_the_end(cells, robot, method)) for method in METHODS}
        best = max(ends, key=lambda method: ends[method].mean())
        rows.append([robot])
        for method, values in ends.items():
            mean = f"{values.mean():,.0f}"
            rows[-1].append(
                f"{f'**{mean}**' if method == best else mean} ± {values.std(ddof=1):,.0f}"
            )
    return markdown_table(["unique cells", *(LABELS.get(name, name) for name in METHODS)], rows)


def comparisons_table(cells: Cells) -> str:
    """Exact tests of pairs, corrected together."""
    pairs = (("element", "rnd"), ("element-beta0-robust", "rnd"), ("element", "random"))
    p_values = {
        (robot, *pair): permutation_p_value(
            *([np.array(at_the_end(cells, robot, method))] for method in pair)
        )
        for robot in ROBOTS
        for pair in pairs
    }
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    rows = []
    for robot in ROBOTS:
        rows.append([robot])
        for one, other in pairs:
            means = [np.mean(at_the_end(cells, robot, method)) for method in (one, other)]
            ratio, p = means[0] / means[1], corrected[robot, one, other]
            rows[-1].append(f"{ratio:.2f} ({'< 0.001' if p < 0.001 else f'{p:.2g}'})")
    names = [f"{LABELS.get(one, one)} / {LABELS.get(other, other)}" for one, other in pairs]
    return markdown_table(["ratio of means (corrected p)", *names], rows)


def draw(cells: Cells, path: Path) -> None:
    """A panel for each robot, a line for each method, a point for every seed at the end."""
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 3, figsize=(10.0, 5.6), layout="constrained")
        *panels, empty = grid.reshape(-1)
        empty.axis("off")
        for panel, robot in zip(panels, ROBOTS, strict=True):
            ends = []
            for method, colour in zip(METHODS, (*COLOURS[:3], QUIET), strict=True):
                rows = [seeds for _, seeds in sorted(cells[robot, method].items())]
                steps = np.array([0, *(step for step, _ in rows[0])])
                values = np.array([[0.0, *(float(count) for _, count in row)] for row in rows])
                style = {"color": colour}
                label = LABELS.get(method, "random policy")
                ends.append(draw_seeds(panel, steps, values, style, label))
            draw_ends(panel, ends)
            panel.set_title(robot)
        for panel in panels:
            finish_axes([panel])
        for panel in (panels[0], panels[3]):
            panel.set_ylabel("unique cells")
        empty.legend(*panels[0].get_legend_handles_labels(), loc="center left")
        figure.savefig(path, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
