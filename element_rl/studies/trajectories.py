"""How does ELEMENT drive the agent? Trajectories of the policies of every checkpoint, coloured by
checkpoint (the paper's first experiment): each policy acts for 30,000 samples, and the x–z or x–y
coordinates are drawn.

Of the seeds of a run the one with the median coverage is shown.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from element_rl.plots.style import steps_text
from element_rl.studies.engine.analysis import by_environment, length_notes
from element_rl.studies.engine.environments import map_cells
from element_rl.studies.engine.episodes import acted
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.maps import episode_paths
from element_rl.studies.engine.methods import PAPER, SMALL, SMOKE, cell_of
from element_rl.studies.engine.results import Paths, Table

ENVIRONMENTS = ("Ant-v5", "Walker2d-v5")
SCALES = {
    "smoke": SMOKE,
    "small": dataclasses.replace(SMALL, envs=ENVIRONMENTS),
    "paper": dataclasses.replace(PAPER, envs=ENVIRONMENTS, seeds=5),
}


def cells_of(env: str, scale: Scale) -> list[Cell]:
    """The same cell as ELEMENT's in the study on coverage, if both have as many steps."""
    return [cell_of(env, "element", scale)]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    paths: list[Paths] = []
    rows: list[tuple[str, int, int, float, int, int]] = []
    for env, entries in by_environment(done).items():
        for entry in entries:
            agent = median_seed(entry)
            episodes = acted(entry.run, _with_policies(entry), agent, scale.on(env).samples)
            title = f"{env}, element, seed {entry.summary['seeds'][agent]}"
            paths.append(episode_paths(entry.run, f"paths_{env}", title, episodes))
            rows += [(env, step, *_measures(entry, found)) for step, found in episodes.items()]
    columns = (
        "environment",
        "checkpoint",
        "episodes",
        "farthest from the start",
        "directions",
        "cells",
    )
    counts = " or ".join(
        f"{count:,}" for count in dict.fromkeys(scale.on(entry.cell.env).samples for entry in done)
    )
    table = Table(
        "checkpoints", f"{counts} samples with each checkpoint's policy", columns, tuple(rows)
    )
    notes = (
        "Farthest: mean over episodes of the largest distance reached. "
        "Directions: in how many of 12 sectors of 30° episodes end.",
    )
    units = {entry.cell.env: entry.run.config.get("coverage_unit", "m") for entry in done}
    return Findings(
        _changes(rows, units), (*notes, *length_notes(done)), (table,), paths=tuple(paths)
    )


def median_seed(entry: FinishedCell) -> int:
    """The index of the seed whose coverage is the median one."""
    coverage = np.array([value or 0 for value in entry.summary["coverage"]])
    return int(np.argsort(coverage, kind="stable")[(len(coverage) - 1) // 2])


def _with_policies(entry: FinishedCell) -> list[int]:
    """Checkpoints whose policy is at hand: those of a run that was made elsewhere may have been
    left there."""
    folder = entry.run.checkpoints_path
    return [
        step
        for step in entry.run.planned_checkpoints()
        if (folder / f"step_{step:09d}" / "policy.safetensors").exists()
    ]


def _measures(entry: FinishedCell, episodes: Sequence[np.ndarray]) -> tuple[int, float, int, int]:
    """Number of episodes, how far they go in the mean, directions they end in, cells they visit."""
    offsets = [path - path[:1] for path in episodes]
    farthest = float(np.mean([np.hypot(o[:, 0], o[:, 1]).max() for o in offsets]))
    ends = np.stack([o[-1] for o in offsets])
    sectors = np.floor((np.arctan2(ends[:, 1], ends[:, 0]) + np.pi) / (np.pi / 6)).astype(int) % 12
    visited = np.unique(map_cells(entry.run, np.concatenate(episodes)))
    return len(episodes), farthest, len(np.unique(sectors)), len(visited)


def _changes(
    rows: Sequence[tuple[str, int, int, float, int, int]], units: Mapping[str, str]
) -> tuple[str, ...]:
    """The first checkpoint's policy beside the last one's, for every environment."""
    found = []
    for env in dict.fromkeys(row[0] for row in rows):
        (_, first, _, near, few, little), *_, (_, last, _, far, many, much) = [
            row for row in rows if row[0] == env
        ] * 2
        if last > first:
            unit = f" {units[env]}".rstrip()
            found.append(
                f"On {env} the policy at {steps_text(first)} steps gets {near:.3g}{unit} away, in "
                f"{few} of 12 directions, through {little:,} cells; at {steps_text(last)} steps "
                f"{far:.3g}{unit}, in {many} directions, through {much:,} cells."
            )
    return tuple(found)


STUDY = Study(
    "trajectories",
    "How does ELEMENT drive the agent?",
    "What do the policies of the checkpoints do, from the first, which knows only the episodic "
    "reward, to the last?",
    SCALES,
    cells_of,
    analyse,
    needs_map=True,
)
