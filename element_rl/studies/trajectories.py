"""How does ELEMENT drive the agent? Trajectories of the policies of every checkpoint, coloured by
checkpoint (the paper's first experiment): each policy acts for 30,000 samples, and the x–z or x–y
coordinates are drawn.

Of the seeds of a run the one with the median coverage is shown. Acting takes a while, so what a
policy did is kept in the cell's folder and not done again.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float, Integer

from element_rl.acting.episode import record_paths
from element_rl.acting.evaluator import Evaluator, workers_for
from element_rl.envs.make import describe
from element_rl.envs.spec import coverage_cell
from element_rl.plots.maps import axis_labels, equal_scales
from element_rl.plots.style import steps_text
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import sees_frames
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.settings import settings_from_json
from element_rl.studies import screens
from element_rl.studies.comparison import SMOKE, by_environment, cell_of, length_notes, start_of
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.results import PathGroup, Paths, Table
from element_rl.training.off_policy.config import config_from_json, parsed_options
from element_rl.training.on_policy.config import OnPolicyConfig, env_options

MOST_POINTS = 4_000  # drawn per checkpoint; samples in between are left out
SCALES = {
    "smoke": SMOKE,
    "small": Scale(
        ("Ant-v5", "Walker2d-v5"),
        5,
        {"Ant-v5": 1_000_000, "Walker2d-v5": 400_000},
        screens=screens.SMALL,
    ),
    "paper": Scale(
        ("Ant-v5", "Walker2d-v5"),
        5,
        {"Ant-v5": 5_000_000, "Walker2d-v5": 5_000_000},
        screens=screens.PAPER,
    ),
}


def cells(scale: Scale) -> list[Cell]:
    """The same cells as ELEMENT's in the study on coverage, if both have as many steps."""
    return [cell_of(env, "element", scale) for env in scale.envs]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    paths: list[Paths] = []
    rows: list[tuple[str, int, int, float, int, int]] = []
    for env, entries in by_environment(done).items():
        for entry in entries:
            agent = median_seed(entry)
            samples = scale.on(env).samples
            episodes = acted(entry, _with_policies(entry), agent, samples)
            paths.append(_paths(entry, agent, episodes))
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


def acted(
    entry: FinishedCell, steps: Sequence[int], agent: int, samples: int
) -> dict[int, list[Float[np.ndarray, "T position"]]]:
    """By checkpoint: positions of the episodes its policy acts until it has taken so many samples;
    kept in the cell's folder."""
    files = {
        step: entry.run.evaluation_path / f"acted-{step:09d}-{agent}-{samples}.safetensors"
        for step in steps
    }
    missing = [step for step, file in files.items() if not file.exists()]
    act = _acted_on_screen if sees_frames(entry.run.config) else _acted_by_robot
    for step, episodes in act(entry.run, missing, agent, samples):
        write_arrays(
            files[step], {f"episode_{index:05d}": array for index, array in enumerate(episodes)}
        )
    return {
        step: [array for _, array in sorted(read_arrays(file)[0].items())]
        for step, file in files.items()
    }


# checkpoints, and positions of episodes of each
Acted = Iterator[tuple[int, list[Float[np.ndarray, "T position"]]]]


def _acted_on_screen(run: RunFolder, steps: Sequence[int], agent: int, samples: int) -> Acted:
    for step in steps:
        yield step, screens.acted_on_screen(run, step, agent, samples)


def _acted_by_robot(run: RunFolder, steps: Sequence[int], agent: int, samples: int) -> Acted:
    """All checkpoints at once, in as many processes as there are cores; a few at a time, so that
    what is done is kept."""
    config = config_from_json(run.config["settings"])
    options = parsed_options(config)
    workers = workers_for(len(steps), len(steps) * samples)
    together = max(workers, 1)
    act = partial(record_paths, describe(config.env, **options), samples)
    with Evaluator(config.env, options, workers, run=act) as evaluator:
        for batch in (steps[begin : begin + together] for begin in range(0, len(steps), together)):
            policies = [run.load_policy(step) for step in batch]
            parameters = {
                name: np.stack([policy[name][agent] for policy in policies]) for name in policies[0]
            }
            evaluator.start(
                parameters,
                [[(config.seed + agent, step, 0)] for step in batch],
                deterministic=False,
            )
            yield from zip(batch, evaluator.results(), strict=True)


def _with_policies(entry: FinishedCell) -> list[int]:
    """Checkpoints whose policy is at hand: those of a run that was made elsewhere may have been
    left there."""
    folder = entry.run.checkpoints_path
    return [
        step
        for step in entry.run.planned_checkpoints()
        if (folder / f"step_{step:09d}" / "policy.safetensors").exists()
    ]


def _paths(entry: FinishedCell, agent: int, episodes: dict[int, list[np.ndarray]]) -> Paths:
    groups = [path_group(step, found) for step, found in episodes.items()]
    seed = entry.summary["seeds"][agent]
    return Paths(
        f"paths_{entry.cell.env}",
        f"{entry.cell.env}, element, seed {seed}",
        *axis_labels(entry.run.config),
        tuple(groups),
        equal_scales=equal_scales(entry.run.config),
        start=start_of(entry.run),
    )


def path_group(step: int, episodes: Sequence[Float[np.ndarray, "_ 2"]]) -> PathGroup:
    """Episodes of the policy of a checkpoint, with so few points that a page can hold them."""
    every = max(1, -(-sum(map(len, episodes)) // MOST_POINTS))
    thinned = (path[np.unique([*range(0, len(path), every), len(path) - 1])] for path in episodes)
    points = tuple(
        tuple((round(float(x), 2), round(float(y), 2)) for x, y in path) for path in thinned
    )
    return PathGroup(f"{steps_text(step)} steps", points)


def _measures(entry: FinishedCell, episodes: Sequence[np.ndarray]) -> tuple[int, float, int, int]:
    """Episodes, how far they go in the mean, the directions they end in, and the cells they visit."""
    offsets = [path - path[:1] for path in episodes]
    farthest = float(np.mean([np.hypot(o[:, 0], o[:, 1]).max() for o in offsets]))
    ends = np.stack([o[-1] for o in offsets])
    sectors = np.floor((np.arctan2(ends[:, 1], ends[:, 0]) + np.pi) / (np.pi / 6)).astype(int) % 12
    visited = np.unique(_cells(entry, np.concatenate(episodes)))
    return len(episodes), farthest, len(np.unique(sectors)), len(visited)


def _cells(entry: FinishedCell, positions: Float[np.ndarray, "T 2"]) -> Integer[np.ndarray, " T"]:
    """The map cell of each position."""
    settings = entry.run.config["settings"]
    if sees_frames(entry.run.config):
        on_screen = settings_from_json(OnPolicyConfig, settings)
        return coverage_cell(describe(on_screen.env, **env_options(on_screen)), positions)
    config = config_from_json(settings)
    return np.asarray(coverage_cell(describe(config.env, **parsed_options(config)), positions))


def _changes(
    rows: Sequence[tuple[str, int, int, float, int, int]], units: Mapping[str, str]
) -> tuple[str, ...]:
    """The first checkpoint's policy beside the last one's, for every environment."""
    said = []
    for env in dict.fromkeys(row[0] for row in rows):
        (_, first, _, near, few, little), *_, (_, last, _, far, many, much) = [
            row for row in rows if row[0] == env
        ] * 2
        if last > first:
            unit = f" {units[env]}".rstrip()
            said.append(
                f"On {env} the policy at {steps_text(first)} steps gets {near:.3g}{unit} away, in "
                f"{few} of 12 directions, "
                f"through {little:,} cells; at {steps_text(last)} steps {far:.3g}{unit}, in {many} "
                "directions, through "
                f"{much:,} cells."
            )
    return tuple(said)


STUDY = Study(
    "trajectories",
    "How does ELEMENT drive the agent?",
    "What do the policies of the checkpoints do, from the first, which knows only the episodic "
    "reward, to the last?",
    SCALES,
    cells,
    analyse,
    needs_map=True,
)
