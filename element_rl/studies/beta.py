"""The ablation of β: how far, and in how many directions, do agents go when the lifelong reward
weighs more? (The paper's section "Ablation study for β".)

The paper looks at densities; here radius and directions are also measured. With d the distance of a
visit from the start,

    radius        the distance that 95 % of all visits stay within
    directions    exp(−Σ p_i log p_i) of the shares p_i of visits in 36 sectors of 10°, of those
                  farther than a tenth of the map's half width: 36 when all directions were taken
                  alike, 1 when only one was
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num

from element_rl.envs.point_maze import START
from element_rl.studies.engine.analysis import (
    curves_of,
    length_notes,
    maps_of,
    measured,
    scores_of,
)
from element_rl.studies.engine.environments import VECTORS
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.methods import SMOKE, cell_of
from element_rl.studies.engine.tables import improvement_table, score_table

WEIGHTS = (0.0, 0.1, 0.5, 1.0, 5.0)
DEFAULT = 0.5  # the paper's, and so that of a run which says nothing of β
LIFELONG_ONLY = "lifelong only"
SECTORS = 36
WITHIN = 0.95  # share of the visits inside the radius
FAR = 0.1  # of the map's half width: nearer visits tell no direction
SCALES = {
    "smoke": dataclasses.replace(SMOKE, screens=None),
    "small": Scale(("Ant-v5",), 5, {"Ant-v5": 400_000}),
    "paper": Scale(("Ant-v5",), 5, {"Ant-v5": 5_000_000}),
}


def cells_of(env: str, scale: Scale) -> list[Cell]:
    """One cell per weight, of the paper's form; the default weight is its cell in the study on
    coverage, if both have as many steps."""
    form = VECTORS.printed_form
    weighted = [
        cell_of(env, f"β = {w:g}", scale, beta=None if w == DEFAULT else w, **form) for w in WEIGHTS
    ]
    lifelong = cell_of(env, LIFELONG_ONLY, scale, beta=1.0, episodic_weight=0.0, **form)
    return [*weighted, lifelong]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    extents = measured(done, _extents)
    radius, directions = (
        {
            env: {method: values[:, part] for method, values in methods.items()}
            for env, methods in extents.items()
        }
        for part in (0, 1)
    )
    coverage, ours = scores_of(done, "coverage"), f"β = {DEFAULT:g}"
    compared = any(ours in methods for methods in coverage.values())
    return Findings(
        sentences=_trends(radius, directions),
        notes=(
            f"Radius: the distance from the start that {WITHIN:.0%} of all visits stay within. "
            f"Directions: the effective number of {SECTORS} sectors that visits far from the start "
            "are spread over.",
            *length_notes(done),
        ),
        tables=(
            score_table("radius", "How far: radius of the visits", "m", radius),
            score_table("directions", "How many directions", f"of {SECTORS}", directions),
            score_table("coverage", "Unique cells visited", "cells", coverage),
            *(
                [improvement_table("improvement", f"Does {ours} cover more?", coverage, ours)]
                if compared
                else []
            ),
        ),
        curves=curves_of(done, "coverage", "unique cells visited"),
        maps=maps_of(done),
    )


def extent(
    visits: Num[np.ndarray, "X Y"], bounds: Float[np.ndarray, "2 2"], start: Float[np.ndarray, "2"]
) -> tuple[float, float]:
    """Radius and directions of one agent's visits."""
    size = (bounds[:, 1] - bounds[:, 0]) / visits.shape
    column, row = np.nonzero(visits)
    offset = bounds[:, 0] + size * (np.stack([column, row], axis=1) + 0.5) - start
    counts = visits[column, row].astype(np.float64)
    distance = np.hypot(offset[:, 0], offset[:, 1])
    order = np.argsort(distance)
    inside = np.searchsorted(np.cumsum(counts[order]), WITHIN * counts.sum())
    radius = float(distance[order][min(inside, len(order) - 1)])
    far = distance > FAR * float((bounds[:, 1] - bounds[:, 0]).min()) / 2
    angle = np.arctan2(offset[far, 1], offset[far, 0])
    sector = np.floor((angle + np.pi) / (2 * np.pi) * SECTORS).astype(int) % SECTORS
    share = np.bincount(sector, weights=counts[far], minlength=SECTORS)
    share = share[share > 0] / max(share.sum(), 1e-12)
    return radius, float(np.exp(-np.sum(share * np.log(share)))) if len(share) else 0.0


def _extents(entry: FinishedCell) -> Float[np.ndarray, "R 2"]:
    """Radius and directions of every seed."""
    bounds = np.asarray(entry.run.config["coverage_bounds"], np.float64)
    start = np.asarray(START if "PointMaze" in entry.cell.env else (0.0, 0.0), np.float64)
    return np.array([extent(visits, bounds, start) for visits in entry.run.load_visits()])


def _trends(
    radius: dict[str, dict[str, np.ndarray]], directions: dict[str, dict[str, np.ndarray]]
) -> tuple[str, ...]:
    """What the paper says of both, beside what was measured from the smallest weight to the
    largest."""
    found = []
    for env, by_method in radius.items():
        ends = [method for method in ("β = 0", LIFELONG_ONLY) if method in by_method]
        if len(ends) == 2:
            far = [float(np.mean(by_method[method])) for method in ends]
            many = [float(np.mean(directions[env][method])) for method in ends]
            found.append(
                f"On {env}, from the episodic reward alone to the lifelong one alone, the radius "
                f"goes from {far[0]:.3g} to {far[1]:.3g} (the paper: it shrinks) and the "
                f"directions from {many[0]:.3g} to {many[1]:.3g} (the paper: they grow)."
            )
    return tuple(found)


STUDY = Study(
    "beta",
    "How do episodic and lifelong rewards share the work?",
    "When the lifelong reward weighs more, do agents stay nearer to the start and take more "
    "directions?",
    SCALES,
    cells_of,
    analyse,
    needs_map=True,
)
