"""Can ELEMENT explore new states efficiently? The full reward against RND, NGU, RE3 and RISE (the
paper's fourth section, third part): unique cells of a 100 × 100 grid over the robot's coordinates,
counted over the whole of training."""

from collections.abc import Sequence

from element_rl.studies.engine.analysis import curves_of, length_notes, maps_of, scores_of
from element_rl.studies.engine.grid import (
    Cell,
    Findings,
    FinishedCell,
    Scale,
    Score,
    Study,
)
from element_rl.studies.engine.methods import (
    SCALES,
    baseline_cells,
    element_cells,
    reward_cell,
)
from element_rl.studies.engine.tables import (
    aggregate_table,
    improvement_table,
    score_table,
    sentences,
)


def cells_of(env: str, scale: Scale) -> list[Cell]:
    return [*element_cells(env, scale), *baseline_cells(env, scale)]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    scores = scores_of(done, "coverage")
    tables = [
        score_table("coverage", "Unique cells visited", "cells", scores),
        improvement_table("improvement", "Does ELEMENT cover more?", scores),
    ]
    if all("random" in methods for methods in scores.values()):
        tables.append(
            aggregate_table("aggregate", "Cells, as a multiple of a random policy's", scores)
        )
    return Findings(
        sentences=sentences(scores, "covers more than", "covers less than"),
        notes=length_notes(done),
        tables=tuple(tables),
        curves=curves_of(done, "coverage", "unique cells visited"),
        maps=maps_of(done),
    )


STUDY = Study(
    "coverage",
    "Can ELEMENT explore new states efficiently?",
    "How many different places does an agent visit in the whole of its training, with no task "
    "reward?",
    SCALES,
    cells_of,
    analyse,
    needs_map=True,
    reward_cell=reward_cell,
    score=Score("unique cells", "coverage", lambda entry: entry.summary["coverage"]),
)
