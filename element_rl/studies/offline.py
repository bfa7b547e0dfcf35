"""Can the samples collected by ELEMENT agents be used for offline learning? (The paper's section of
that name, and its table.)

Every explorer acts in the task's environment with the policies of its checkpoints, and conservative
Q-learning learns the task from what they did, the data of each seed teaching an agent of its own.
With G the mean return of the policy that it ends with,

    score = (G − G_random) / (G_SAC − G_random)

so that a random policy scores 0 and SAC, which learned the task online, 1. Learned policies act
without noise, SAC's too. A dataset of a random policy is learned from as well: what it teaches, no
exploration is needed for.

On frames it is A3C that learns online and scores 1. It draws its actions, as it learned to: the
likeliest one, always taken, can be to stand before a wall for ever. What discrete conservative
Q-learning has learned there takes the best action.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from element_rl.datasets.collecting import CollectConfig
from element_rl.envs.names import MARIO
from element_rl.evaluate.checkpoints import evaluate
from element_rl.storage.files import read_json_object, write_json
from element_rl.studies.engine.analysis import (
    SeedScores,
    by_environment,
    curves_of,
    mean_of,
    means_over_training,
    scores_of,
)
from element_rl.studies.engine.environments import ONLINE, kind_of_environment
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.results import Table
from element_rl.studies.engine.tables import improvement_table, score_table, sentences
from element_rl.studies.engine.tasks import EXPLORERS, RANDOM, SCALES, explorer, online, random
from element_rl.training.offline import OfflineConfig

EPISODES = 10  # of each agent that learned online, to know what it has reached
TITLE = "Scores: 0 a random policy, 1 SAC (on screens A3C) online"
REFERENCE = "reference.json"  # in the folder of its run: what it has reached
# the paper's table, by EXPLORERS: 5,000,000 steps of exploration and 1,000,000 samples
PAPER = {
    "Hopper-v5": "0.516 ± 0.075, 0.271 ± 0.073, 0.391 ± 0.040, 0.469 ± 0.051, 0.534 ± 0.076",
    "Walker2d-v5": "0.212 ± 0.043, 0.106 ± 0.036, 0.201 ± 0.082, 0.111 ± 0.024, 0.120 ± 0.059",
    "Ant-v5": "0.142 ± 0.072, 0.110 ± 0.023, 0.107 ± 0.026, 0.137 ± 0.347, 0.126 ± 0.018",
    "Humanoid-v4": "0.373 ± 0.048, 0.256 ± 0.031, 0.131 ± 0.054, 0.071 ± 0.036, 0.100 ± 0.081",
    MARIO: "0.481 ± 0.012, 0.359 ± 0.023, 0.423 ± 0.026, 0.402 ± 0.208, 0.352 ± 0.159",
}


def cells_of(env: str, scale: Scale) -> list[Cell]:
    sources = [*(explorer(env, method, scale) for method in EXPLORERS), random(env, scale)]
    datasets = [_dataset(env, cell, scale) for cell in sources]
    learners = [_learner(env, cell, scale) for cell in datasets]
    return [online(env, scale), *sources, *datasets, *learners]


def _dataset(env: str, source: Cell, scale: Scale) -> Cell:
    samples = scale.on(env).samples
    # Entropies would be noted in the dataset, where nobody reads them; that of 1,000 steps takes
    # 0.1 s.
    config = CollectConfig(
        source.reference,
        _dataset_id(env, source.method),
        samples,
        out=Path("datasets"),
        entropy=False,
    )
    return Cell(env, source.method, config, (source,))


def _learner(env: str, dataset: Cell, scale: Scale) -> Cell:
    config = OfflineConfig(
        (_dataset_id(env, dataset.method),),
        steps=scale.on(env).updates,
        by_agent=True,
        seed=scale.first_seed,
        root=str(dataset.reference / "datasets"),
        **scale.on(env).offline_options,
    )
    return Cell(env, dataset.method, config, (dataset,))


def _learning(env: str, scale: Scale) -> str:
    """How much CQL keeps to its data there; of another algorithm its name."""
    learner = OfflineConfig(("any",), **scale.on(env).offline_options)
    if learner.algorithm != "cql":
        return f"algorithm {learner.algorithm}"
    settings = getattr(learner, kind_of_environment(env).offline_learner)
    return f"conservative weight {settings.conservative_weight:g}"


def _dataset_id(env: str, method: str) -> str:
    return f"{env.partition('-')[0].lower()}/{method}-v0"


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    learners = [entry for entry in done if isinstance(entry.cell.config, OfflineConfig)]
    references = {env: _references(entries) for env, entries in by_environment(done).items()}
    scores = _scores(scores_of(learners, "extrinsic_return"), references)
    throughout = _scores(means_over_training(learners, "extrinsic_return"), references)
    missing = {env: reason for env, ends in references.items() if (reason := _no_scores(ends))}
    return Findings(
        sentences=sentences(scores, "teaches more than", "teaches less than"),
        notes=(
            *(
                f"{env}: {scale.on(env).samples:,} samples per seed, from all checkpoints of the "
                f"explorers alike; {scale.on(env).updates:,} updates, "
                f"{_learning(env, scale)}."
                for env in references
            ),
            "A score is of the last tenth of the updates. A policy learned offline can differ much "
            "from one evaluation to the next: the mean over all of learning is steadier, and "
            "counts the beginning too.",
            "The paper's scores are after 5,000,000 steps of exploration, with 1,000,000 samples.",
            *(f"{env} has no scores: {reason}." for env, reason in missing.items()),
        ),
        tables=(
            _beside_the_paper(score_table("scores", TITLE, "score", scores)),
            improvement_table("improvement", "Is ELEMENT's data better to learn from?", scores),
            score_table(
                "scores_throughout", "Scores, mean over all of learning", "score", throughout
            ),
            _returns(learners, references),
        ),
        curves=curves_of(learners, "extrinsic_return", "task return", "updates"),
    )


# environment → returns of a random policy and of one learned online
References = Mapping[str, tuple[float, float] | None]


def _references(cells: Sequence[FinishedCell]) -> tuple[float, float] | None:
    """Returns of a random policy and of one learned online, means over their seeds, where both are
    done."""
    acted = [
        entry for entry in cells if entry.cell.method == RANDOM and not _is_made_of_runs(entry.cell)
    ]
    learned = [entry for entry in cells if entry.cell.method in ONLINE]
    returned = mean_of(acted[0].summary, "extrinsic_return") if acted else None
    return (returned, _reached(learned[0])) if returned is not None and learned else None


def _is_made_of_runs(cell: Cell) -> bool:
    return isinstance(cell.config, CollectConfig | OfflineConfig)


def _reached(entry: FinishedCell) -> float:
    """The mean return of the final policies of a run; written down beside the run."""
    path = entry.run.path / REFERENCE
    if not path.exists():
        (row,) = evaluate(
            entry.run,
            EPISODES,
            deterministic=not kind_of_environment(entry.cell.env).draws_actions,
            checkpoint=entry.run.latest_checkpoint(),
            out=entry.run.path / "reached",
        )
        write_json(path, row)
    return float(read_json_object(path)["extrinsic_return"])


def _scores(returns: SeedScores, references: References) -> SeedScores:
    """Scores of returns, where there are any."""
    return {
        env: {
            method: (of_seeds - ends[0]) / (ends[1] - ends[0])
            for method, of_seeds in methods.items()
        }
        for env, methods in returns.items()
        if (ends := references[env]) is not None and _no_scores(ends) is None
    }


def _no_scores(ends: tuple[float, float] | None) -> str | None:
    """Why there are no scores between these two returns, if there are none."""
    if ends is None:
        return f"learning online or {RANDOM} is not done"
    few = ".3g" if max(map(abs, ends)) < 100 else ",.0f"  # Rooms-v0 gives 0 or 1, robots thousands
    learned, at_random = format(ends[1], few), format(ends[0], few)
    return (
        None
        if ends[1] > ends[0]
        else f"learning online ({learned}) came to no more than {RANDOM} ({at_random})"
    )


def _beside_the_paper(table: Table) -> Table:
    """The table of scores with the paper's own, where it has any."""
    printed = {
        (env, method): text
        for env, row in PAPER.items()
        for method, text in zip(EXPLORERS, row.split(", "), strict=True)
    }
    rows = tuple((*row, printed.get((str(row[0]), str(row[1])))) for row in table.rows)
    return Table(table.name, table.title, (*table.columns, "paper: mean ± std"), rows, table.note)


def _returns(learners: Sequence[FinishedCell], references: References) -> Table:
    rows = []
    for env, entries in by_environment(learners).items():
        ends = references[env] or (None, None)
        for entry in entries:
            behaviour, learned = (
                mean_of(entry.summary, name) for name in ("behaviour_return", "extrinsic_return")
            )
            transitions = sum(entry.summary["transitions"])
            rows.append((env, entry.cell.method, transitions, behaviour, learned, *ends))
    columns = (
        "environment",
        "data of",
        "transitions",
        "return in the data",
        "learned from it",
        "random policy",
        "learned online",
    )
    note = "Mean returns of episodes, over seeds. Transitions: of all seeds together."
    return Table(
        "returns", "What the data held, and what was learned from it", columns, tuple(rows), note
    )


STUDY = Study(
    "offline",
    "Is what explorers collect good to learn from?",
    "Explorers that know no task collect data; an agent learns the task from it without ever "
    "acting. How far does it come?",
    SCALES,
    cells_of,
    analyse,
    references=(*ONLINE, RANDOM),
)
