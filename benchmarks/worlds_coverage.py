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

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import tyro

from benchmarks import seed_tables
from benchmarks.seed_tables import Cells, draw_robot, read_data, train, write_data
from benchmarks.tables import replace_table
from element_rl.plots.lines import finish_axes
from element_rl.plots.style import STYLE
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
LABELS = {
    "element": "ELEMENT",
    "element-beta0-robust": "ELEMENT, β = 0, robust",
    "rnd": "RND",
    "random": "random",
}
# ELEMENT's estimator there when the data were made; it is another by default since
ESTIMATORS = {"Ant-v5": "renyi", "HalfCheetah-v5": "renyi"}
STEPS = 204_800
RECIPE = (
    *("--physics", "warp", "--envs-per-agent", "64", "--updates-per-step", "0.125"),
    *("--batch-size", "256", "--seed", "1000", "--seeds", "10", "--steps", str(STEPS)),
    *("--log-every", "20480", "--checkpoint-every", "999999999", "--replay-size", "220000"),
    *("--random-seeds", "0", "--no-figures"),
)


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
            list(pool.map(lambda cell: train_cell(settings.out, *cell), all_cells()))
        write_data(settings.out, DATA, all_cells())
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
                settings={"flags": [*flags_of(robot, method)]},
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


def train_cell(out: Path, robot: str, method: str) -> None:
    train(out / robot / method, robot, flags_of(robot, method))


def flags_of(robot: str, method: str) -> tuple[str, ...]:
    """What a method is called by on a robot."""
    estimator = ESTIMATORS.get(robot) if method.startswith("element") else None
    return (*RECIPE, *METHODS[method], *(("--estimator", estimator) if estimator else ()))


def cells_table(cells: Cells) -> str:
    return seed_tables.cells_table(cells, ROBOTS, LABELS)


def comparisons_table(cells: Cells) -> str:
    pairs = (("element", "rnd"), ("element-beta0-robust", "rnd"), ("element", "random"))
    return seed_tables.comparisons_table(cells, ROBOTS, LABELS, pairs)


def draw(cells: Cells, path: Path) -> None:
    """A panel for each robot, a line for each method, a point for every seed at the end."""
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 3, figsize=(10.0, 5.6), layout="constrained")
        *panels, empty = grid.reshape(-1)
        empty.axis("off")
        for panel, robot in zip(panels, ROBOTS, strict=True):
            draw_robot(panel, cells, robot, LABELS)
        for panel in panels:
            finish_axes([panel])
        for panel in (panels[0], panels[3]):
            panel.set_ylabel("unique cells")
        empty.legend(*panels[0].get_legend_handles_labels(), loc="center left")
        figure.savefig(path, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
