"""What the two comparisons of the paper share: the same methods, learners and environments,
measured in two ways.

The baselines are those of the paper with their official settings. One thing is added for all of
them: the reward is divided by its recent standard deviation (`--recent-scale`). SAC weighs a reward
against the entropy of its policy, so that an unscaled bonus that shrinks, as RND's does, would be
compared by its size and not by what it rewards (docs/results/history/point-maze-series.md).
ELEMENT's terms are within [0, 1] by themselves, as in the paper. On environments that show images
the same methods act on rollouts (`screens.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from element_rl.envs.make import is_screen
from element_rl.envs.spec import CELLS_PER_AXIS
from element_rl.plots.maps import axis_labels, coverage_start, equal_scales
from element_rl.plots.style import steps_text
from element_rl.runs.folder import RunFolder
from element_rl.studies import screens
from element_rl.studies.engine.grid import Cell, FinishedCell, Scale
from element_rl.studies.engine.results import COUNTED, Curves, Frame, Map, Series
from element_rl.studies.engine.statistics import curve_with_interval
from element_rl.training.off_policy.config import ExploreConfig

ROBOTS = ("Ant-v5", "Hopper-v5", "Walker2d-v5")
BASELINES = ("rnd", "ngu", "re3", "rise")
SMOKE = Scale(
    ("PointMaze-v0",),
    2,
    {"PointMaze-v0": 600},
    samples=1_000,
    # Most of the time goes into compiling; the rest is kept so small that all of it, learning too,
    # is over in a minute.
    options={
        "sac": {"hidden_sizes": (16,), "batch_size": 16, "learn_start": 450},
        "env_options": ("max_episode_steps=100",),
        "log_every": 60,
        "replay_size": 1_000,
    },
    screens=screens.SMOKE,
)
SMALL = Scale(
    ROBOTS,
    5,
    {"Ant-v5": 1_000_000, "Hopper-v5": 400_000, "Walker2d-v5": 400_000},
    screens=screens.SMALL,
)
PAPER = Scale(
    (*ROBOTS, "Humanoid-v4"),
    10,
    dict.fromkeys((*ROBOTS, "Humanoid-v4"), 5_000_000),
    screens=screens.PAPER,
)
SCALES = {"smoke": SMOKE, "small": SMALL, "paper": PAPER}
PAPER_FORM = {"credit": "episode", "bandwidth": 1.0}  # of ELEMENT on robots, as printed
BAND = "Line: interquartile mean over seeds. Band: 95 % bootstrap interval."


def cell_of(env: str, method: str, scale: Scale, **settings: object) -> Cell:
    """A cell with the settings that all studies have in common."""
    scale = scale.on(env)
    if is_screen(env):
        return screens.screen_cell_of(env, method, scale, **settings)
    steps = scale.steps[env]
    config = ExploreConfig(env, steps=steps, seeds=scale.seeds, random_seeds=0, **settings)  # type: ignore[arg-type]
    options = dict(scale.options)
    sac = dataclasses.replace(config.sac, **options.pop("sac", {}))
    return Cell(env, method, dataclasses.replace(config, sac=sac, **options))


def element_cells(
    env: str, scale: Scale, method: str = "element", **settings: object
) -> list[Cell]:
    """ELEMENT as it is by default, and beside it the paper's form, which pays all states of an
    episode alike (and has σ = 1).

    On rollouts, where r_ep is a reward of places, the paper's form is the default
    (docs/results/rooms.md).
    """
    ours = cell_of(env, method, scale, **settings)
    if is_screen(env):
        return [ours]
    return [ours, cell_of(env, f"{method} (paper)", scale, **PAPER_FORM, **settings)]


def baseline_cell(env: str, name: str, scale: Scale, **settings: object) -> Cell:
    """A cell of another method, its reward scaled as its learner needs it."""
    scaled = "scale_reward" if is_screen(env) else "recent_scale"
    return cell_of(env, name, scale, reward=name, **{scaled: True}, **settings)


def baseline_cells(env: str, scale: Scale) -> list[Cell]:
    """The paper's four, and a random policy to show where nobody learns."""
    cells = [baseline_cell(env, name, scale) for name in BASELINES]
    return [*cells, cell_of(env, "random", scale, reward="random")]


def by_environment(cells: Sequence[FinishedCell]) -> dict[str, list[FinishedCell]]:
    """Cells of each environment, in their order."""
    groups: dict[str, list[FinishedCell]] = {}
    for entry in cells:
        groups.setdefault(entry.cell.env, []).append(entry)
    return groups


def scores_of(cells: Sequence[FinishedCell], quantity: str) -> dict[str, dict[str, np.ndarray]]:
    """environment → method → one score per seed, from the summaries."""
    return {
        env: {
            entry.cell.method: np.array(
                [np.nan if v is None else v for v in entry.summary[quantity]], np.float64
            )
            for entry in entries
        }
        for env, entries in by_environment(cells).items()
    }


def means_over_training(
    cells: Sequence[FinishedCell], column: str
) -> dict[str, dict[str, np.ndarray]]:
    """environment → method → one number per seed: the mean of a column of the metrics over all of
    training."""
    return {
        env: {entry.cell.method: mean_over_training(entry, column) for entry in entries}
        for env, entries in by_environment(cells).items()
    }


def mean_over_training(entry: FinishedCell, column: str) -> Float[np.ndarray, " R"]:
    """Over its steps, however unevenly they were logged; before its first finished episode a run
    has no return."""
    steps, values = entry.curves(column)
    weights = np.diff(steps, prepend=0) * np.isfinite(values)
    return np.asarray(
        np.sum(weights * np.nan_to_num(values), axis=1) / np.maximum(np.sum(weights, axis=1), 1)
    )


def curves_of(
    cells: Sequence[FinishedCell],
    column: str,
    y_label: str,
    x_label: str = "environment steps per seed",
) -> tuple[Curves, ...]:
    """One set of axes per environment, one line per method."""
    return tuple(
        Curves(
            f"{column}_{env}",
            env,
            x_label,
            y_label,
            tuple(_series(entry, column) for entry in entries),
            BAND,
            counts=column in COUNTED,
        )
        for env, entries in by_environment(cells).items()
    )


def maps_of(cells: Sequence[FinishedCell], most_frames: int = 10) -> tuple[Map, ...]:
    """Where the agents of each cell have been, all seeds together, up to each checkpoint."""
    mapped = (
        entry for entry in cells if entry.run.config.get("coverage_bounds") and entry.checkpoints()
    )
    return tuple(_map(entry, most_frames) for entry in mapped)


def length_notes(cells: Sequence[FinishedCell]) -> tuple[str, ...]:
    """U and T_u as they were, and how long episodes are: both matter to every entropy."""
    notes = []
    for env, entries in by_environment(cells).items():
        shrunk = [e.summary for e in entries if e.summary["reward"] == "element"]
        if shrunk and "update_interval" in shrunk[0]:  # a run on a screen tells it when it is done
            interval, window = shrunk[0]["update_interval"], shrunk[0]["update_steps"]
            notes.append(
                f"{env}: {shrunk[0]['steps']:,} steps per seed; the lifelong memory takes in "
                f"{window:,} steps every "
                f"{interval:,} (the paper: 50,000 every 500,000, shrunk in proportion)."
            )
    return tuple(notes)


def mean_of(summary: Mapping[str, object], quantity: str) -> float | None:
    """The mean over seeds of a quantity of a summary."""
    values = [value for value in summary[quantity] if value is not None]  # type: ignore[attr-defined]
    return float(np.mean(values)) if values else None


def _series(entry: FinishedCell, column: str) -> Series:
    steps, values = entry.curves(column)
    known = np.isfinite(values).any(axis=0)
    curve = curve_with_interval(values[:, known])
    parts = [
        tuple(float(f"{v:.6g}") for v in part) for part in (curve.value, curve.low, curve.high)
    ]
    return Series(entry.cell.method, tuple(map(float, steps[known])), *parts)


def _map(entry: FinishedCell, most_frames: int) -> Map:
    return visits_map(
        entry.run,
        entry.checkpoints(),
        name=f"visits_{entry.cell.env}_{entry.cell.method}",
        title=f"{entry.cell.method}",
        value_label="visits, all seeds",
        group=f"{entry.cell.env}: where the agents have been",
        most_frames=most_frames,
    )


def visits_map(
    run: RunFolder,
    steps: Sequence[int],
    name: str,
    title: str,
    value_label: str,
    group: str,
    seeds: slice = slice(None),
    most_frames: int = 10,
) -> Map:
    """Visits per cell up to each of some checkpoints of a run, of some of its seeds together (all)."""
    config = run.config
    shown = [
        steps[i]
        for i in np.unique(np.linspace(0, len(steps) - 1, min(most_frames, len(steps))).astype(int))
    ]
    x_label, y_label = axis_labels(config)
    return Map(
        name=name,
        title=title,
        x_label=x_label,
        y_label=y_label,
        bounds=tuple(tuple(map(float, bound)) for bound in config["coverage_bounds"]),  # type: ignore[arg-type]
        shape=tuple(config.get("coverage_cells", (CELLS_PER_AXIS, CELLS_PER_AXIS))),
        frames=tuple(
            Frame.of(f"{steps_text(step)} steps", run.load_visits(step)[seeds].sum(axis=0))
            for step in shown
        ),
        value_label=value_label,
        equal_scales=equal_scales(config),
        start=start_of(run),
        group=group,
    )


def start_of(run: RunFolder) -> tuple[float, float] | None:
    """Where episodes begin, in a map's coordinates; None where that is not known."""
    start = coverage_start(run.config)
    return None if start is None else (start[0], start[1])
