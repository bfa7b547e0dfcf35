"""Can ELEMENT agents conduct task-agnostic exploration for downstream tasks? (The paper's section
of that name.)

Each explorer's best of ten checkpoints, by task return, learns on with the task's reward; beside
them SAC from nothing, on as many steps (on screens it is A3C that learns). Two numbers say what a
head start is worth: the return of the transferred policy before it has learned anything of the task
(zero-shot), and the mean return over the whole of learning, which is the area under the curve
divided by its length.
"""

from collections.abc import Mapping, Sequence

from element_rl.studies.engine.analysis import (
    by_environment,
    curves_of,
    mean_of,
    means_over_training,
    scores_of,
)
from element_rl.studies.engine.environments import FRAMES, ONLINE, VECTORS
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.results import Table
from element_rl.studies.engine.tables import improvement_table, score_table, sentences
from element_rl.studies.engine.tasks import EXPLORERS, SCALES, explorer, online
from element_rl.training.finetune import FinetuneConfig

NOTES = {
    VECTORS.learner: "sac: from scratch, its first steps at random. Critics, temperature and "
    "replay start afresh for all; the actor waits for 1,000 updates of the critics.",
    FRAMES.learner: "a3c: from scratch. The critic starts afresh for all.",
}


def cells_of(env: str, scale: Scale) -> list[Cell]:
    explorers = [explorer(env, method, scale) for method in EXPLORERS]
    here = scale.on(env)
    logged = {
        name: here.options[name]
        for name in ("log_every", "checkpoint_every")
        if name in here.options
    }
    settings = {"compare": False, **logged, **here.finetune_options}
    finetuned = [
        Cell(
            env,
            cell.method,
            FinetuneConfig(cell.reference, here.task_steps, **settings),
            (cell,),
        )
        for cell in explorers
    ]
    return [online(env, scale), *explorers, *finetuned]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    """Of the agents that learned the task; the explorers have done their part."""
    finetuned = [entry for entry in done if isinstance(entry.cell.config, FinetuneConfig)]
    on_task = [*finetuned, *(entry for entry in done if entry.cell.method in ONLINE)]
    learners = [name for name in ONLINE if any(entry.cell.method == name for entry in on_task)]
    mean_return = means_over_training(on_task, "extrinsic_return")
    final_return = scores_of(on_task, "extrinsic_return")
    return Findings(
        sentences=sentences(
            mean_return, "gets more over the whole of learning than", "gets less than"
        ),
        notes=(
            "Returns of training episodes, actions drawn from the policy. The others act with the "
            "transferred policy from the first step.",
            *(NOTES[name] for name in learners),
            *_anchored(scale.finetune_options),
        ),
        tables=(
            score_table(
                "mean_return",
                "Task return, mean over the whole of learning",
                "return",
                mean_return,
            ),
            improvement_table("improvement", "Does ELEMENT give the better start?", mean_return),
            _starts_and_ends(on_task),
            score_table(
                "final_return", "Task return, last tenth of learning", "return", final_return
            ),
        ),
        curves=curves_of(on_task, "extrinsic_return", "task return"),
    )


def _anchored(settings: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence on what holds the actors, if anything does."""
    if not settings.get("anchor"):
        return ()
    halving = (
        f", halving every {settings['anchor_halflife']:,.0f} updates"
        if "anchor_halflife" in settings
        else ""
    )
    return (
        "Transferred actors are held near the policy they came with: anchor "
        f"{settings['anchor']:g}{halving}.",
    )


def _starts_and_ends(cells: Sequence[FinishedCell]) -> Table:
    rows = tuple(
        (
            env,
            entry.cell.method,
            ", ".join(f"{step:,}" for step in entry.summary.get("transferred_step", ())) or None,
            mean_of(entry.summary, "zero_shot_return"),
            mean_of(entry.summary, "extrinsic_return"),
        )
        for env, entries in by_environment(cells).items()
        for entry in entries
    )
    columns = (
        "environment",
        "method",
        "checkpoints transferred",
        "zero-shot return",
        "final return",
    )
    note = (
        "Means over seeds. Zero-shot: the transferred policy before it learned anything of the "
        "task, in episodes of its own."
    )
    return Table("starts", "What was transferred, and what became of it", columns, rows, note)


STUDY = Study(
    "transfer",
    "Is exploration a head start on tasks?",
    "An agent that has explored without reward is given a task. Does it learn it sooner than one "
    "that starts from nothing?",
    SCALES,
    cells_of,
    analyse,
    references=ONLINE,
)
