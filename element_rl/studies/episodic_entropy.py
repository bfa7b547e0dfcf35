"""Can ELEMENT maximise episodic state entropy? The episodic reward alone (β = 0) against RND, NGU,
RE3 and RISE (the paper's fourth section, second part): matrix-based entropy of order 1.001, which
stands for Shannon's, of episodes over training."""

from collections.abc import Sequence

from element_rl.studies.engine.analysis import curves_of, length_notes, means_table, scores_of
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
from element_rl.studies.engine.tables import improvement_table, score_table, sentences

OURS = "element, β = 0"


def cells_of(env: str, scale: Scale) -> list[Cell]:
    return [*element_cells(env, scale, OURS, beta=0.0), *baseline_cells(env, scale)]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    scores = scores_of(done, "episodic_entropy")
    return Findings(
        sentences=sentences(
            scores, "has a higher episodic entropy than", "has a lower one than", ours=OURS
        ),
        notes=(
            "Entropy is bounded by log2 of the episode's length, so where falling ends an episode, "
            "staying up is the first thing that raises it: lengths stand beside the entropies.",
            *length_notes(done),
        ),
        tables=(
            score_table(
                "entropy", "Episodic entropy, mean of the last tenth of training", "bits", scores
            ),
            improvement_table(
                "improvement", "Does ELEMENT reach a higher entropy?", scores, ours=OURS
            ),
            means_table(
                "lengths",
                "How long episodes are, and how near their entropy is to its ceiling",
                done,
                {
                    "episode length": "episode_length",
                    "entropy / log2 length": "entropy_saturation",
                },
            ),
        ),
        curves=(
            *curves_of(done, "episodic_entropy", "episodic entropy (bits)"),
            *curves_of(done, "episode_length", "episode length (steps)"),
        ),
    )


STUDY = Study(
    "episodic-entropy",
    "Can ELEMENT maximise episodic state entropy?",
    "How diverse are the states within one episode, when the agent is paid for exactly that?",
    SCALES,
    cells_of,
    analyse,
    reward_cell=reward_cell,
    score=Score(
        "bits of episodic entropy, mean of the last tenth of training",
        "episodic_entropy",
        lambda entry: entry.summary["episodic_entropy"],
    ),
)
