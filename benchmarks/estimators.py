"""Which estimator of an episode's entropy covers more on Ant and HalfCheetah? Report seeds.

Nearest neighbours against matrix-based Rényi entropy, with RND and a random policy beside them;
small networks, so that two CPU cores do it in an hour and a half. What the runs logged is kept in
docs/results/data/estimators.csv, from which tables and figure of docs/results/estimators.md are
made:

    python -m benchmarks.estimators --page    # tables and figure from the data
    python -m benchmarks.estimators --run     # the runs first; those that are there are kept
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

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"
PAGE, DATA = DOCS / "estimators.md", DOCS / "data" / "estimators.csv"
STEPS = {"Ant-v5": 60_000, "HalfCheetah-v5": 40_000}
SETTINGS = (
    *("--seed", "1000", "--seeds", "10", "--sac.hidden-sizes", "64", "64"),
    *("--random-seeds", "0", "--no-figures"),
)
SMALL_RND = ("feature_dim=64", "target_sizes=[128,128]", "predictor_sizes=[128,128]")
METHODS: dict[str, tuple[str, ...]] = {
    "element-knn": ("--estimator", "knn"),
    "element-renyi": ("--estimator", "renyi"),
    "rnd": ("--reward", "rnd", "--recent-scale", "--reward-options", *SMALL_RND),
    "random": ("--reward", "random"),
}
LABELS = {
    "element-knn": "ELEMENT, neighbours",
    "element-renyi": "ELEMENT, Rényi",
    "rnd": "RND",
    "random": "random",
}
PAIRS = (("element-knn", "element-renyi"), ("element-knn", "rnd"), ("element-knn", "random"))


@dataclass(frozen=True)
class Settings:
    """What to do."""

    # Run what is missing, and write the data anew.
    run: bool = False
    # Runs at a time.
    together: int = 2
    # Folder of the runs.
    out: Path = Path("runs/estimators")
    # Write the tables into docs/results/estimators.md, and draw its figure.
    page: bool = False


def main(settings: Settings) -> None:
    """The tables of the page."""
    if settings.run:
        with ThreadPoolExecutor(settings.together) as pool:
            list(pool.map(lambda cell: train_cell(settings.out, *cell), all_cells()))
        write_data(settings.out, DATA, all_cells(), points=20)
    cells = read_data(DATA)
    tables = {"cells": cells_table(cells), "comparisons": comparisons_table(cells)}
    for name, table in tables.items():
        print(table, end="\n\n")
        if settings.page:
            replace_table(PAGE, name, table)
    if settings.page:
        draw(cells, PAGE.with_suffix(".png"))


def all_cells() -> list[tuple[str, str]]:
    return list(itertools.product(STEPS, METHODS))


def train_cell(out: Path, robot: str, method: str) -> None:
    train(out / robot / method, robot, flags_of(robot, method))


def flags_of(robot: str, method: str) -> tuple[str, ...]:
    return ("--steps", str(STEPS[robot]), *SETTINGS, *METHODS[method])


def cells_table(cells: Cells) -> str:
    return seed_tables.cells_table(cells, list(STEPS), LABELS)


def comparisons_table(cells: Cells) -> str:
    return seed_tables.comparisons_table(cells, list(STEPS), LABELS, PAIRS)


def draw(cells: Cells, path: Path) -> None:
    """A panel for each robot, a line for each method, a point for every seed at the end."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
        for panel, robot in zip(panels, STEPS, strict=True):
            draw_robot(panel, cells, robot, LABELS)
            finish_axes([panel])
        panels[0].set_ylabel("unique cells")
        panels[0].legend(loc="upper left")
        figure.savefig(path, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
