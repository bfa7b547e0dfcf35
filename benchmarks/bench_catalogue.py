"""Every reward of the registry in one table: unique cells in a maze and on robots, small networks.

The papers' networks (RND's have 1,024 units a layer) take hours on a CPU. Here the agent and all
that a reward learns have the same small size, so that a laptop can repeat the comparison: it says
what each reward leads to at that size, not what its paper reports. Everything else is as in
`bench_coverage`: the same SAC for all, from the reward alone, a reward divided by its recent
standard deviation where its terms are not within [0, 1] anyway.

    python -m benchmarks.bench_catalogue --env Hopper-v5 --steps 25000

Runs are kept and not run again. `--page` writes the table of the environment into
docs/results/catalogue.md, and draws the figure of all tables that stand there. A reward of which
the folder holds no run keeps the line it has on the page.
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
from element_rl.rewards import NAMES, make_reward
from element_rl.training.off_policy.config import ELEMENTS

PAGE = Path("docs/results/catalogue.md")
ENVIRONMENTS = ("PointMaze-v0", "Hopper-v5", "Walker2d-v5")
LEARNER = ("--sac.hidden-sizes", "64", "64")
# In the maze agents press against walls unless their actions stay random (as in `bench_coverage`).
OF_ENVIRONMENT = {"PointMaze-v0": ("--sac.target-entropy", "0")}
# Units of a layer, and features, at most, of everything that a reward learns.
UNITS, FEATURES = 128, 64
# E3B's bonus is scaled and clipped as in its authors' MiniHack runs (docs/results/point-maze.md).
OWN_OPTIONS = {"e3b": ("normalise=true", "largest_reward=1.0")}


@dataclass(frozen=True)
class Settings:
    """What to run."""

    # Environment to explore.
    env: str = "PointMaze-v0"
    # Rewards to compare.
    rewards: tuple[str, ...] = ("random", *NAMES)
    # Environment steps of each agent.
    steps: int = 25_000
    # Agents of each reward.
    seeds: int = 5
    # Seed of the first agent; from 1,000 on they are for reporting.
    seed: int = 1_000
    # Folder of all runs.
    out: Path = Path("runs/catalogue")
    # Whether to write the table into docs/results/catalogue.md, and draw the figure.
    page: bool = False


def main(settings: Settings) -> None:
    """Run what has not been run, then the table."""
    folders = {name: settings.out / settings.env / name for name in settings.rewards}
    for name, folder in folders.items():
        if not (folder / "summary.json").exists():
            code = run(settings, name, folder)
            print(f"{settings.env} {name}: {'done' if code == 0 else f'exit code {code}'}")
    missing = [name for name, folder in folders.items() if not (folder / "summary.json").exists()]
    if missing:
        raise SystemExit(f"Not finished: {', '.join(missing)}; see the logs beside their folders.")
    scores = scores_in(settings.out / settings.env)
    print(render(scores))
    if settings.page:
        replace_table(PAGE, settings.env, render(scores_on(PAGE).get(settings.env, {}) | scores))
        draw(scores_on(PAGE), PAGE.with_suffix(".png"))


def run(settings: Settings, name: str, folder: Path) -> int:
    """Train a reward; its words go into a log beside its folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "element_rl.cli", "explore"]
    if (folder / "config.json").exists():
        command += ["--resume", str(folder)]
    else:
        command += [settings.env, "--reward", name, "--steps", str(settings.steps)]
        command += ["--seeds", str(settings.seeds), "--seed", str(settings.seed)]
        command += ["--out", str(folder), "--random-seeds", "0", "--no-figures", *LEARNER]
        command += OF_ENVIRONMENT.get(settings.env, ())
        command += [] if name in (*ELEMENTS, "random") else ["--recent-scale"]
        command += reward_options(name)
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


def reward_options(name: str) -> list[str]:
    """Options that make the networks of a reward small."""
    if name == "random":
        return []
    options = list(OWN_OPTIONS.get(name, ()))
    for field, value in vars(make_reward(name).config).items():  # type: ignore[attr-defined]
        if field.endswith("_sizes") and max(value, default=0) > UNITS:
            options.append(f"{field}={[min(units, UNITS) for units in value]}".replace(" ", ""))
        if field.endswith("_dim") and value > FEATURES:
            options.append(f"{field}={FEATURES}")
    return ["--reward-options", *options] if options else []


def scores_in(folder: Path) -> dict[str, list[int]]:
    """Cells of every seed, by reward, of the runs of an environment that are done."""
    summaries = sorted(folder.glob("*/summary.json"))
    return {path.parent.name: json.loads(path.read_text())["coverage"] for path in summaries}


def scores_on(page: Path) -> dict[str, dict[str, list[int]]]:
    """Cells of every seed, by environment and reward, as the tables of a page have them."""
    text = page.read_text(encoding="utf-8")
    found: dict[str, dict[str, list[int]]] = {}
    for env in ENVIRONMENTS:
        table = text.partition(f"<!-- begin {env} -->")[2].partition(f"<!-- end {env} -->")[0]
        rows = [[cell.strip() for cell in row.split("|")[1:3]] for row in table.splitlines()[3:]]
        if rows:
            found[env] = {
                name: [int(cells.replace(",", "")) for cells in seeds.split()]
                for name, seeds in rows
            }
    return found


def by_median(scores: dict[str, list[int]]) -> list[str]:
    """Rewards, most cells first."""
    return sorted(scores, key=lambda name: -float(np.median(scores[name])))


def render(scores: dict[str, list[int]]) -> str:
    """One line per reward: every seed, the median, and how many times a random policy's that is."""
    random = float(np.median(scores.get("random", [np.nan])))
    rows = []
    for name in by_median(scores):
        median = float(np.median(scores[name]))
        seeds = " ".join(f"{cells:,}" for cells in sorted(scores[name], reverse=True))
        rows.append([name, seeds, f"{median:,.0f}", f"{median / random:.2f}"])
    return markdown_table(["reward", "cells of each seed", "median", "× random"], rows)


def draw(found: dict[str, dict[str, list[int]]], path: Path) -> None:
    """A panel for each environment, a row for each reward: a point for every seed, a bar at the
    median. The dashed line is a random policy's median."""
    rows = max(len(scores) for scores in found.values())
    figure, axes = plt.subplots(
        1, len(found), figsize=(4.2 * len(found), 0.3 * rows + 1.0), layout="constrained"
    )
    for axis, (env, scores) in zip(np.atleast_1d(axes), found.items(), strict=True):
        draw_panel(axis, env, scores)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_panel(axis: Any, env: str, scores: dict[str, list[int]]) -> None:
    names = by_median(scores)[::-1]
    for row, name in enumerate(names):
        colour = "tab:red" if name.startswith("element") else "tab:gray"
        axis.plot(scores[name], [row] * len(scores[name]), "o", ms=4, color=colour, alpha=0.7)
        axis.plot([np.median(scores[name])], [row], "|", ms=14, mew=2, color="black")
    if "random" in scores:
        axis.axvline(np.median(scores["random"]), ls="--", lw=0.8, color="black")
    axis.set_yticks(range(len(names)), names)
    axis.set_xlim(left=0)
    axis.set_title(env)
    axis.set_xlabel("unique cells")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
