"""Do worlds on the device learn tasks sooner than the host? SAC on the tasks' own rewards.

Every cell is a population of agents that learn a robot's task by a recipe:

    host            one environment per agent in worker processes, one update of 128 per step
    worlds          64 worlds per agent by MuJoCo Warp, 1/8 updates of 256 per step: the default
    worlds-running  the same, learning from episodes while they run
    worlds-norm     the same with layer normalisation in the critics
    worlds-large    480 worlds per agent, 1/32 updates of 1,024, layer normalisation in the critics,
                    an actor that learns at every second update

Cells run one after the other, because minutes are compared; a cell is one run of all seeds. They go
on where they were, so that the whole can be made in pieces:

    python -m benchmarks.worlds_tasks --run --seconds 500   # on a GPU, again and again until done
    python -m benchmarks.worlds_tasks --page                # table and figure from the data

What the runs logged is kept in docs/results/data/worlds-tasks.csv, a line per seed and step:
minutes of training (without starting up), and the mean return of the episodes that ended since the
line before. The table stands in docs/worlds.md.
"""

import csv
import dataclasses
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from jaxtyping import Float

from benchmarks.pieces import trained
from benchmarks.tables import ROOT, markdown_table, replace_table
from element_rl.agents.sac import SACConfig
from element_rl.plots.lines import draw_ends, draw_seeds, finish_axes
from element_rl.plots.style import COLOURS, STYLE
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.worlds.making import Physics

PAGE = ROOT / "docs" / "worlds.md"
DATA = ROOT / "docs" / "results" / "data" / "worlds-tasks.csv"
FIGURE = ROOT / "docs" / "results" / "worlds-tasks.png"
COLUMNS = ("environment", "recipe", "seed", "step", "minutes", "extrinsic_return")
NORMS = SACConfig(layer_norm="critics")
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "host": {},
    "worlds": {"envs_per_agent": 64},
    "worlds-running": {"envs_per_agent": 64, "learn_from": "running"},
    "worlds-norm": {"envs_per_agent": 64, "sac": NORMS},
    "worlds-large": {
        **{"envs_per_agent": 480, "updates_per_step": 1 / 32, "batch_size": 1_024},
        "sac": dataclasses.replace(NORMS, policy_delay=2),
    },
}
LABELS = {
    "host": "host, one environment",
    "worlds": "64 worlds",
    "worlds-running": "64 worlds, from running episodes",
    "worlds-norm": "64 worlds, layer norm",
    "worlds-large": "480 worlds, layer norm, delay 2",
}

# of a robot and a recipe, by seed: rows of (step, minutes, return)
Cells = Mapping[tuple[str, str], Mapping[int, Float[np.ndarray, "N 3"]]]


@dataclass(frozen=True)
class Settings:
    """What to do."""

    # Train what is missing, and write the data anew.
    run: bool = False
    # Seconds after which training stops, to go on when the command is given again.
    seconds: float = 500.0
    robots: tuple[str, ...] = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    recipes: tuple[str, ...] = tuple(RECIPES)
    # Of each agent.
    steps: int = 1_000_000
    seeds: int = 5
    # Seed of the first agent.
    seed: int = 0
    physics: Physics = "warp"
    env_options: tuple[str, ...] = ()
    # Units of each hidden layer of actors and critics.
    hidden_sizes: tuple[int, ...] = (256, 256)
    replay_size: int = 1_000_000
    # Folder of the runs.
    out: Path = Path("runs/worlds-tasks")
    data: Path = DATA
    # Write the table into docs/worlds.md, and draw the figure.
    page: bool = False
    # Minutes at which returns are compared.
    minutes: tuple[float, ...] = field(default=(2.0, 5.0, 10.0))


def main(settings: Settings) -> str:
    """The table."""
    if settings.run:
        done = train_all(settings)
        write_data(settings)
        print("All cells are done." if done else "Not done yet: give the command again.")
    cells = read_data(settings.data)
    table = render(cells, settings.minutes)
    print(table)
    if settings.page:
        replace_table(PAGE, "tasks", table)
        draw(cells, FIGURE)
    return table


def train_all(settings: Settings) -> bool:
    """Trains cell after cell until time is over; whether all are done."""
    ends = time.monotonic() + settings.seconds
    return all(
        trained(
            config_of(settings, robot, recipe),
            settings.out / robot / recipe,
            ends - time.monotonic(),
        )
        for robot in settings.robots
        for recipe in settings.recipes
    )


def config_of(settings: Settings, robot: str, recipe: str) -> ExploreConfig:
    """A cell's run."""
    own = dict(RECIPES[recipe])
    learner: SACConfig = own.pop("sac", SACConfig())
    return ExploreConfig(
        robot,
        reward="extrinsic",
        steps=settings.steps,
        seeds=settings.seeds,
        seed=settings.seed,
        physics="host" if recipe == "host" else settings.physics,
        replay_size=settings.replay_size,
        env_options=settings.env_options,
        log_every=max(settings.steps // 50, 1),
        random_seeds=0,
        sac=dataclasses.replace(learner, hidden_sizes=settings.hidden_sizes),
        **own,
    )


def write_data(settings: Settings) -> None:
    """What all runs have logged."""
    settings.data.parent.mkdir(parents=True, exist_ok=True)
    with settings.data.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for robot in settings.robots:
            for recipe in settings.recipes:
                log = settings.out / robot / recipe / "metrics.csv"
                if not log.exists():
                    continue
                with log.open(newline="") as metrics:
                    for row in csv.DictReader(metrics):
                        minutes = f"{float(row['wall_seconds']) / 60:.3f}"
                        own = (row["seed"], row["step"], minutes, row["extrinsic_return"])
                        writer.writerow([robot, recipe, *own])


def read_data(path: Path) -> Cells:
    """By robot and recipe, then by seed, in the order of steps; lines without an episode left
    out."""
    found: dict[tuple[str, str], dict[int, list[tuple[float, ...]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            values = tuple(float(row[name] or "nan") for name in COLUMNS[3:])
            if np.isfinite(values[-1]):
                found[row["environment"], row["recipe"]][int(row["seed"])].append(values)
    return {
        cell: {seed: np.array(rows) for seed, rows in seeds.items()}
        for cell, seeds in found.items()
    }


def render(cells: Cells, minutes: Sequence[float]) -> str:
    """A row for each cell: mean ± deviation over seeds of the return after so many minutes, and at
    the end."""
    times = [f"after {minute:g} min" for minute in minutes]
    rows = []
    for (robot, recipe), seeds in cells.items():
        ends = [rows[-1] for rows in seeds.values()]
        last = [
            f"{max(end[0] for end in ends):,.0f}",
            f"{max(end[1] for end in ends):.1f}",
            _spread([end[2] for end in ends]),
        ]
        early = [
            _spread([at_minute(rows, minute) for rows in seeds.values()]) for minute in minutes
        ]
        rows.append([f"{robot}, {LABELS.get(recipe, recipe)}", *early, *last])
    return markdown_table(["return", *times, "steps", "minutes", "at the end"], rows)


def at_minute(rows: Float[np.ndarray, "N 3"], minute: float) -> float:
    """The return that was logged last by then; NaN before the first, and after the end."""
    before = rows[rows[:, 1] <= minute]
    return float(before[-1, 2]) if 0 < len(before) < len(rows) else float("nan")


def _spread(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "–"
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):,.0f} ± {deviation:,.0f}"


def draw(cells: Cells, path: Path) -> None:
    """A panel for each robot: returns over minutes."""
    robots = list(dict.fromkeys(robot for robot, _ in cells))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, len(robots), figsize=(3.6 * len(robots), 3.2), layout="constrained", squeeze=False
        )
        for panel, robot in zip(panels[0], robots, strict=True):
            own = {recipe: seeds for (name, recipe), seeds in cells.items() if name == robot}
            ends = []
            for (recipe, seeds), colour in zip(own.items(), COLOURS, strict=False):
                shortest = min(map(len, seeds.values()))
                minutes = np.mean([rows[:shortest, 1] for rows in seeds.values()], axis=0)
                returns = np.stack([rows[:shortest, 2] for rows in seeds.values()])
                style, label = {"color": colour}, LABELS.get(recipe, recipe)
                ends.append(draw_seeds(panel, minutes, returns, style, label))
            draw_ends(panel, ends)
            panel.set_title(robot)
            finish_axes([panel])
            panel.set_xlabel("minutes")
        panels[0][0].set_ylabel("return")
        panels[0][0].legend()
        figure.savefig(path, dpi=130)
        plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
