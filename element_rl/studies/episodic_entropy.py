"""Can ELEMENT maximise episodic state entropy? The episodic reward alone (β = 0) against RND, NGU,
RE3 and RISE (the paper's fourth section, second part): matrix-based entropy of order 1.001, which
stands for Shannon's, of episodes over training."""

from collections.abc import Sequence

from element_rl.studies.comparison import (
    SCALES,
    baseline_cells,
    by_environment,
    curves_of,
    element_cells,
    length_notes,
    mean_of,
    scores_of,
)
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.results import Table
from element_rl.studies.engine.tables import improvement_table, score_table, sentences

OURS = "element, β = 0"


def cells(scale: Scale) -> list[Cell]:
    return [
        cell
        for env in scale.envs
        for cell in (*element_cells(env, scale, OURS, beta=0.0), *baseline_cells(env, scale))
    ]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    scores = scores_of(done, "episodic_entropy")
    return Findings(
        sentences=sentences(
            scores, "has a higher episodic entropy than", "has a lower one than", ours=OURS
        ),
        notes=(
            "Entropy is bounded by log2 of the episode's length, so where falling ends an episode, "
            "staying up is the first thing "
            "that raises it: lengths stand beside the entropies.",
            *length_notes(done),
        ),
        tables=(
            score_table(
                "entropy", "Episodic entropy, mean of the last tenth of training", "bits", scores
            ),
            improvement_table(
                "improvement", "Does ELEMENT reach a higher entropy?", scores, ours=OURS
            ),
            _lengths(done),
        ),
        curves=(
            *curves_of(done, "episodic_entropy", "episodic entropy (bits)"),
            *curves_of(done, "episode_length", "episode length (steps)"),
        ),
    )


def _lengths(done: Sequence[FinishedCell]) -> Table:
    rows = tuple(
        (
            env,
            entry.cell.method,
            mean_of(entry.summary, "episode_length"),
            mean_of(entry.summary, "entropy_saturation"),
        )
        for env, entries in by_environment(done).items()
        for entry in entries
    )
    columns = ("environment", "method", "episode length", "entropy / log2 length")
    return Table(
        "lengths",
        "How long episodes are, and how near their entropy is to its ceiling",
        columns,
        rows,
    )


STUDY = Study(
    "episodic-entropy",
    "Can ELEMENT maximise episodic state entropy?",
    "How diverse are the states within one episode, when the agent is paid for exactly that?",
    SCALES,
    cells,
    analyse,
)
