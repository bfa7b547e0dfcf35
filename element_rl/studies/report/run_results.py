"""One run of `explore`, `on-policy` or `mario` in the form of a study's results, so that the same
page can show it.

Everything is read from the run's folder: summary.json, metrics.csv, config.json, checkpoints/ and,
where somebody has acted with the policies, evaluation/. A run that is not done is shown as far as
it is.
"""

import dataclasses
import shlex
from typing import Any

import numpy as np

from element_rl.pages import QUANTITIES
from element_rl.plots.lines import BAND, POINTS, by_seed, is_logged
from element_rl.plots.maps import recorded_episodes
from element_rl.rewards.expression import names_in
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.provenance import hardware_text, versions_text
from element_rl.runs.visits import counted, has_map
from element_rl.storage.files import FileError, read_json_object, to_json
from element_rl.storage.settings import options_of
from element_rl.studies.engine.analysis import mean_of
from element_rl.studies.engine.environments import VECTORS, kind_of_run
from element_rl.studies.engine.maps import episode_paths, visits_map
from element_rl.studies.engine.results import COUNTED, Curves, Map, Paths, Results, Series, Table
from element_rl.studies.report.figures import REFERENCE

PER_SEED = {  # of a summary → the heading of its column
    "coverage": "coverage (cells)",
    "furthest": "furthest",
    "episodic_entropy": "episodic entropy (bits)",
    "episode_length": "episode length",
    "extrinsic_return": "task return",
    "best_return": "best task return",
    "best_length": "its steps",
}
MOST_SEEDS_SHOWN = 5  # each on a map of its own
# decided for every run, and refused for other rewards
SETTINGS_OF_ELEMENT = ("beta", "estimator", "bandwidth")


def run_results(run: RunFolder) -> Results:
    """What a run has to show."""
    _refuse_others(run)
    summary, settings = run.read_summary(), run.config["settings"]
    return Results(
        study="run",
        title=f"{run.config['env']}: {run.config['reward']}",
        question=f"The run {run.path.resolve().name}: where its agents have been, and what they "
        "measured on the way.",
        scale="",
        command=command_of(run),
        cells=(),
        findings=_findings(run, summary),
        notes=_notes(summary),
        tables=(*_summary_tables(summary), *_evaluation_tables(run)),
        curves=_curves(run, summary),
        maps=_maps(run),
        paths=_paths(run),
        settings=settings,
        provenance=_provenance(summary),
    )


def run_facts(run: RunFolder) -> dict[str, str]:
    """What stands below the title."""
    settings, done = run.config["settings"], _steps_done(run)
    state = "finished" if run.read_summary() and done >= settings["steps"] else "not finished"
    steps = f"{done:,}" if state == "finished" else f"{done:,} of {settings['steps']:,}"
    return {
        "environment": run.config["env"],
        "reward": run.config["reward"],
        "steps per seed": steps,
        "seeds": str(settings["seeds"]),
        "run": state,
    }


def _refuse_others(run: RunFolder) -> None:
    settings = run.config.get("settings")
    if not isinstance(settings, dict) or not {"steps", "seeds", "reward"} <= settings.keys():
        raise FileError(
            f"{run.path} is no run of explore, on-policy or mario: of others no page is made."
        )


def _steps_done(run: RunFolder) -> int:
    logged = run.read_metrics().get("step", np.zeros(0))
    return max(int(run.read_summary().get("steps", 0)), int(logged.max(initial=0)))


def _findings(run: RunFolder, summary: dict[str, Any]) -> tuple[str, ...]:
    if not summary:
        return (f"The run is not finished: it is at step {_steps_done(run):,}.",)
    sentences = []
    random = summary.get("random_policy") or {}
    cells, by_chance = mean_of(summary, "coverage"), mean_of(random, "coverage")
    if cells is not None:
        seeds = len(summary["seeds"])
        sentence = f"Visited {cells:,.0f} cells of the map"
        if seeds > 1:
            sentence += f" per seed, in the mean of {seeds}"
        if by_chance:
            times = f"{cells / by_chance:.2f} times as many"
            sentence += f", {times} as a random policy in as many steps ({by_chance:,.0f})"
        sentences.append(f"{sentence}.")
    entropy, share = mean_of(summary, "episodic_entropy"), mean_of(summary, "entropy_saturation")
    if entropy is not None and share is not None:
        sentences.append(
            f"An episode's entropy is {entropy:.2f} bits at the end, {share:.0%} of its ceiling."
        )
    best = [value for value in summary.get("best_return") or [] if value is not None]
    if best:
        index = summary["best_return"].index(max(best))
        sentences.append(
            f"The best episode, of seed {summary['seeds'][index]}, had a task return of "
            f"{max(best):,.2f} in {summary['best_length'][index]:,} steps."
        )
    return tuple(sentences)


def _notes(summary: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    if summary:
        notes.append(
            "Coverage and best return are of the whole run. The other numbers of the table are "
            f"means over its last {FINAL_SHARE * 100:.0f} %, of the random policy over all of it."
        )
    if summary.get("update_interval") and summary.get("reward") in ("element", "element-paper"):
        notes.append(
            f"The lifelong memory takes in {summary['update_steps']:,} steps every "
            f"{summary['update_interval']:,}."
        )
    return tuple(notes)


def _summary_tables(summary: dict[str, Any]) -> tuple[Table, ...]:
    """A line per seed of the run, and of the random policy beside it."""
    if not summary:
        return ()
    headings = {
        name: heading.replace("(cells)", f"({counted(summary)})")
        for name, heading in PER_SEED.items()
        if any(value is not None for value in summary.get(name) or [])
    }
    rows: list[tuple[Any, ...]] = []
    random = summary.get("random_policy") or {}
    for label, measured in ((summary["reward"], summary), (REFERENCE, random)):
        for index, seed in enumerate(measured.get("seeds", [])):
            values = (measured[name][index] if name in measured else None for name in headings)
            rows.append((label, str(seed), *values))
    columns = ("policy", "seed", *headings.values())
    return (Table("summary", "Every seed", columns, tuple(rows)),)


def _evaluation_tables(run: RunFolder) -> tuple[Table, ...]:
    """A line per checkpoint, as `element evaluate` found it."""
    path = run.evaluation_path / "evaluation.json"
    if not path.is_file():
        return ()
    headings = {
        "step": "checkpoint (step)",
        "episodes": "episodes",
        "extrinsic_return": "task return",
        "episode_length": "length",
        "episodic_entropy": "entropy (bits)",
        "coverage": "cells",
    }
    rows = tuple(
        tuple(row.get(name) for name in headings) for row in read_json_object(path)["checkpoints"]
    )
    title = "What the policy of each checkpoint does"
    note = "Means over the episodes of all seeds; cells: visited by any of them."
    return (Table("evaluation", title, tuple(headings.values()), rows, note),)


def _curves(run: RunFolder, summary: dict[str, Any]) -> tuple[Curves, ...]:
    metrics = run.read_metrics()
    drawn = []
    for column, label in _quantities(run).items():
        if not is_logged(metrics, column):
            continue
        series = [_series(run.config["reward"], metrics, column)]
        note = f"{BAND} {POINTS}" if run.config["settings"]["seeds"] > 1 else ""
        reference = mean_of(summary.get("random_policy") or {}, column)
        if reference is not None:
            ends = (0.0, float(metrics["step"].max()))
            series.append(Series(REFERENCE, ends, (reference, reference)))
            note = f"{note} Dashed: a random policy, after as many steps as the run has.".strip()
        title, x_label = label.partition(" (")[0].capitalize(), "environment steps per seed"
        counts = column in COUNTED
        drawn.append(Curves(column, title, x_label, label, tuple(series), note, counts))
    return tuple(drawn)


def _quantities(run: RunFolder) -> dict[str, str]:
    return QUANTITIES | {"coverage": f"coverage ({counted(run.config)})"}


def _series(label: str, metrics: dict[str, np.ndarray], column: str) -> Series:
    """Mean and range over the seeds that have a value."""
    steps, values = by_seed(metrics, column)
    measures = (np.nanmean, np.nanmin, np.nanmax) if len(values) > 1 else (np.nanmean,)
    return Series.of(label, steps, [measure(values, axis=0) for measure in measures], values)


def _maps(run: RunFolder) -> tuple[Map, ...]:
    """All seeds together and, where there are several, some alone."""
    steps = run.checkpoint_steps()
    if not has_map(run.config) or not steps:
        return ()
    first, count = run.config["settings"]["seed"], run.config["settings"]["seeds"]
    shown = {
        f"seed {first + seed}": slice(seed, seed + 1)
        for seed in range(min(count, MOST_SEEDS_SHOWN))
    }
    if count > 1:
        shown = {"all seeds": slice(None), **shown}
    group = "Where the agents have been"
    return tuple(
        visits_map(run, steps, f"visits of {title}", title, "visits", group, seeds)
        for title, seeds in shown.items()
    )


def _paths(run: RunFolder) -> tuple[Paths, ...]:
    """Episodes of the checkpoints' policies, as `element evaluate` recorded them."""
    found = recorded_episodes(run) if has_map(run.config) else {}
    title = "Episodes of the policies of its checkpoints"
    return (episode_paths(run, "paths", title, found),) if found else ()


def _provenance(summary: dict[str, Any]) -> dict[str, str]:
    if not summary:
        return {}
    together = " of all seeds together" if len(summary["seeds"]) > 1 else ""
    return {
        "commit": str(summary.get("commit")),
        "hardware": hardware_text(summary.get("hardware")),
        "versions": versions_text(summary.get("versions")),
        "training": f"{summary['wall_seconds']:,.0f} s, "
        f"{summary['env_steps_per_second']:,.0f} steps/s{together}",
    }


def command_of(run: RunFolder) -> str:
    """The command line of a run, with every setting that is not the default, also those that were
    decided for this run."""
    settings, kind = dict(run.config["settings"]), kind_of_run(run)
    env = settings.pop("env")
    if kind is VECTORS and "element" not in names_in(settings["reward"]):
        settings = {
            name: value for name, value in settings.items() if name not in SETTINGS_OF_ELEMENT
        }
    options = options_of(settings, to_json(dataclasses.asdict(kind.config(env))))
    return shlex.join(["element", kind.command, env, *options])
