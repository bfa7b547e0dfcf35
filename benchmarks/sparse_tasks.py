"""Does exploring help where a task hardly ever pays? Report seeds, four ways to the same task.

    alone       SAC, or DQN where actions are a choice, learns from the task's reward
    element     the same, from the task's reward and ELEMENT's (`--extrinsic-weight 1`)
    rnd         the same with RND
    then        ELEMENT without the task for half of the steps (`explorer`), then `element finetune`
                with its policy and its experience for the other half

Small networks, so that two CPU cores do it in an hour. What the runs logged is kept in
docs/results/data/sparse-tasks.csv, from which the table and the figure of
docs/results/sparse-tasks.md are made:

    python -m benchmarks.sparse_tasks --page    # table and figure from the data
    python -m benchmarks.sparse_tasks --run     # the runs first; those that are there are kept
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import tyro

from benchmarks.seed_tables import Cells, read_data, run_command, train, write_data
from benchmarks.tables import ROOT, markdown_table, replace_table
from element_rl.plots.lines import draw_ends, draw_seeds, finish_axes
from element_rl.plots.style import COLOURS, STYLE
from element_rl.studies.engine.statistics import holm, permutation_p_value

DOCS = ROOT / "docs" / "results"
PAGE, DATA = DOCS / "sparse-tasks.md", DOCS / "data" / "sparse-tasks.csv"
EXAMPLES = ROOT / "examples"  # some of the tasks are registered there
SEEDS = 5
FIRST_SEED = 1_000
SHARE = 5  # a score is the mean return in the last fifth of the steps
SMALL_RND = ("feature_dim=64", "target_sizes=[128,128]", "predictor_sizes=[128,128]")


class Task(NamedTuple):
    """An environment whose reward is hard to find."""

    label: str
    steps: int  # of each agent, in all
    solved: float  # a mean return that only a policy has that does the task in most episodes
    agent: str = "sac"


TASKS: Mapping[str, Task] = {
    "MountainCarContinuous-v0": Task("MountainCarContinuous", 50_000, 50.0),
    "MountainCar-v0": Task("MountainCar", 50_000, -170.0, "dqn"),
    "sparse_tasks:SparseCheetah-v0": Task("Cheetah, 15 m away", 50_000, 100.0),
    "sparse_tasks:SparseAnt-v0": Task("Ant, 10 m away", 80_000, 50.0),
}
METHODS: Mapping[str, tuple[str, ...]] = {
    "alone": ("--reward", "extrinsic"),
    "element": ("--extrinsic-weight", "1"),
    "rnd": (
        *("--reward", "rnd", "--recent-scale", "--extrinsic-weight", "1"),
        *("--reward-options", *SMALL_RND),
    ),
    "explorer": (),
    "then": (),
}
LABELS = {
    "alone": "the task alone",
    "element": "with ELEMENT",
    "rnd": "with RND",
    "then": "ELEMENT, then the task",
}


@dataclass(frozen=True)
class Settings:
    """What to do."""

    # Run what is missing, and write the data anew.
    run: bool = False
    # Runs at a time.
    together: int = 2
    # Folder of the runs.
    out: Path = Path("runs/sparse-tasks")
    # Write the table into docs/results/sparse-tasks.md, and draw its figure.
    page: bool = False


def main(settings: Settings) -> None:
    """The table of the page."""
    if settings.run:
        with ThreadPoolExecutor(settings.together) as pool:
            list(pool.map(lambda cell: train_cell(settings.out, *cell), together_cells()))
        write_data(settings.out, DATA, all_cells(), points=40)
    scores = score_cells(read_data(DATA, "extrinsic_return"))
    for name, table in (("scores", render(scores)), ("comparisons", comparisons(scores))):
        print(table, end="\n\n")
        if settings.page:
            replace_table(PAGE, name, table)
    if settings.page:
        draw(curves(read_data(DATA, "extrinsic_return")), PAGE.with_suffix(".png"))


def all_cells() -> list[tuple[str, str]]:
    return [(folder_of(task), method) for task in TASKS for method in METHODS]


def together_cells() -> list[tuple[str, str]]:
    """What can be run side by side: an explorer comes before what is made of it."""
    return [(task, method) for task in TASKS for method in METHODS if method != "explorer"]


def folder_of(task: str) -> str:
    return task.rpartition(":")[2]


def train_cell(out: Path, task: str, method: str) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(EXAMPLES), str(ROOT), os.environ.get("PYTHONPATH")))
    )
    folder = out / folder_of(task)
    if method == "then":
        train(folder / "explorer", task, flags_of(task, "explorer"))
        words = ["finetune", str(folder / "explorer"), *finetune_flags(TASKS[task].steps // 2)]
        run_command(folder / "then", words)
    else:
        train(folder / method, task, flags_of(task, method))


def flags_of(task: str, method: str) -> tuple[str, ...]:
    """What `element explore` is told."""
    _, steps, _, agent = TASKS[task]
    steps = steps // 2 if method == "explorer" else steps
    return (
        *("--steps", str(steps), "--seed", str(FIRST_SEED), "--seeds", str(SEEDS)),
        *(f"--{agent}.hidden-sizes", "64", "64", "--log-every", str(steps // 50)),
        *("--random-seeds", "0", "--no-figures", *METHODS[method]),
    )


def finetune_flags(steps: int) -> tuple[str, ...]:
    """What `element finetune` is told: the last policy, and what the explorer has seen."""
    return (
        *("--steps", str(steps), "--checkpoint", "last", "--replay", "kept", "--no-compare"),
        *("--log-every", str(steps // 25)),
    )


def curves(cells: Cells) -> Cells:
    """Returns of every task and way, by seed; those of `then` begin where the explorer ended, and
    have its returns before."""
    found = {}
    for task, about in TASKS.items():
        name = folder_of(task)
        for method in LABELS:
            rows = dict(cells[name, method])
            if method == "then":
                before, half = cells[name, "explorer"], about.steps // 2
                rows = {
                    seed: [*before[seed], *((step + half, value) for step, value in own)]
                    for seed, own in rows.items()
                }
            found[name, method] = rows
    return found


def score_cells(cells: Cells) -> Mapping[tuple[str, str], Sequence[float]]:
    """Of every seed, the mean return in the last fifth of the steps."""
    scores = {}
    for (name, method), seeds in curves(cells).items():
        steps = next(about.steps for task, about in TASKS.items() if folder_of(task) == name)
        begin = steps - steps // SHARE
        scores[name, method] = [
            float(np.mean([value for step, value in rows if step > begin]))
            for _, rows in sorted(seeds.items())
        ]
    return scores


def render(scores: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """A row for each task: mean ± deviation over the seeds, and how many have solved it."""
    rows = []
    for task, about in TASKS.items():
        own = [np.array(scores[folder_of(task), method]) for method in LABELS]
        best = max(values.mean() for values in own)
        rows.append([about.label, f"{about.solved:,.0f}"])
        for values in own:
            mean = f"{values.mean():,.1f}"
            mean = f"**{mean}**" if values.mean() == best else mean
            solved = f"{(values >= about.solved).sum()} of {len(values)}"
            rows[-1].append(f"{mean} ± {values.std(ddof=1):,.1f} ({solved})")
    return markdown_table(["return (seeds that solved it)", "solved at", *LABELS.values()], rows)


def comparisons(scores: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Exact tests of every way against the task alone, before and after Holm's correction over all
    of them."""
    ways = [method for method in LABELS if method != "alone"]
    p_values = {
        (task, method): permutation_p_value(
            [np.array(scores[folder_of(task), method])],
            [np.array(scores[folder_of(task), "alone"])],
        )
        for task in TASKS
        for method in ways
    }
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    rows = [
        [about.label] + [f"{p_values[task, way]:.2g} ({corrected[task, way]:.2g})" for way in ways]
        for task, about in TASKS.items()
    ]
    header = ["p against the task alone (corrected)", *(LABELS[way] for way in ways)]
    return markdown_table(header, rows)


def draw(cells: Cells, path: Path) -> None:
    """A panel for each task, a line for each way to it, a point for every seed at the end."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(TASKS), figsize=(13.0, 3.6), layout="constrained")
        for panel, (task, about) in zip(panels, TASKS.items(), strict=True):
            ends = []
            for (method, label), colour in zip(LABELS.items(), COLOURS, strict=False):
                seeds = [rows for _, rows in sorted(cells[folder_of(task), method].items())]
                steps = sorted(set.intersection(*({step for step, _ in rows} for rows in seeds)))
                values = np.array([[dict(rows)[step] for step in steps] for rows in seeds])
                style = {"color": colour}
                ends.append(draw_seeds(panel, np.array(steps), values, style, label))
            draw_ends(panel, ends)
            panel.set_title(about.label)
            finish_axes([panel])
        panels[0].set_ylabel("return of the task")
        lines = panels[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower center", ncols=len(LABELS))
        figure.savefig(path, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
