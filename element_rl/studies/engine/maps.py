"""Where a run's agents have been, in the form of `Results`: visits per cell, and episodes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from element_rl.envs.spec import CELLS_PER_AXIS
from element_rl.plots.planes import axis_labels, coverage_start, equal_scales
from element_rl.plots.style import steps_text
from element_rl.runs.folder import RunFolder
from element_rl.runs.visits import bounds_of, picture, window_of
from element_rl.studies.engine.results import Frame, Map, PathGroup, Paths

MOST_FRAMES = 10  # of a map
MOST_POINTS = 4_000  # of the paths of one policy


def visits_map(
    run: RunFolder,
    steps: Sequence[int],
    name: str,
    title: str,
    value_label: str,
    group: str,
    seeds: slice = slice(None),
) -> Map:
    """Visits per cell up to each of some checkpoints of a run, of some seeds (all) together."""
    config = run.config
    window = window_of(config, run.load_visits(steps[-1]))
    bounds = bounds_of(config, window)
    chosen = np.linspace(0, len(steps) - 1, min(MOST_FRAMES, len(steps))).astype(int)
    x_label, y_label = axis_labels(config)
    return Map(
        name=name,
        title=title,
        x_label=x_label,
        y_label=y_label,
        bounds=tuple(tuple(map(float, bound)) for bound in bounds),  # type: ignore[arg-type]
        shape=tuple(config.get("coverage_cells", (CELLS_PER_AXIS, CELLS_PER_AXIS)))
        if window is None
        else window.shape,
        frames=tuple(
            Frame.of(
                f"{steps_text(step)} steps",
                picture(run.load_visits(step), window)[seeds].sum(axis=0),
            )
            for step in (steps[index] for index in np.unique(chosen))
        ),
        value_label=value_label,
        equal_scales=equal_scales(config, bounds),
        start=_start(run),
        group=group,
    )


def episode_paths(
    run: RunFolder, name: str, title: str, episodes: dict[int, list[Float[np.ndarray, "_ 2"]]]
) -> Paths:
    """Episodes of the policies of checkpoints, by their steps."""
    return Paths(
        name,
        title,
        *axis_labels(run.config),
        tuple(path_group(step, found) for step, found in episodes.items()),
        equal_scales=equal_scales(run.config),
        start=_start(run),
    )


def path_group(step: int, episodes: Sequence[Float[np.ndarray, "_ 2"]]) -> PathGroup:
    """Episodes of the policy of a checkpoint, with so few points that a page can hold them."""
    every = max(1, -(-sum(map(len, episodes)) // MOST_POINTS))
    thinned = (path[np.unique([*range(0, len(path), every), len(path) - 1])] for path in episodes)
    points = tuple(
        tuple((round(float(x), 2), round(float(y), 2)) for x, y in path) for path in thinned
    )
    return PathGroup(f"{steps_text(step)} steps", points)


def _start(run: RunFolder) -> tuple[float, float] | None:
    """Where episodes begin, in a map's coordinates; None where that is not known."""
    start = coverage_start(run.config)
    return None if start is None else (start[0], start[1])
