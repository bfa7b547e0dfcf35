"""What a study tells the leaderboard: one file with the scores and curves of every seed, and with
what it takes to measure them again (docs/leaderboard.md).

    {"format": 1, "study": "coverage", "track": "small", "measure": "unique cells", "by": "me",
     "command": "element study …", "commit": "8291c58…", "versions": …, "hardware": …, "date": …,
     "entries": [{"environment": "Ant-v5", "method": "rnd", "reward": "rnd", "settings": {…},
                  "source": "", "steps": 1000000, "seeds": [1000, …], "scores": [3756.0, …],
                  "curve_steps": [10000, …], "curves": [[34.0, …], …]}]}

Only report seeds are taken, of runs at one commit whose tree had no changes: a number on the
leaderboard can be measured again. A reward of one's own comes with its source.
"""

import datetime
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.provenance import hardware_text
from element_rl.storage.files import FileError, read_json_object, write_text
from element_rl.storage.settings import settings_from_json
from element_rl.studies.engine.grid import (
    REPORT_SEEDS,
    FinishedCell,
    Score,
    Study,
    has_default,
    reward_source,
)

FORMAT = 1
MOST_POINTS = 50  # of a curve
DIGITS = 6  # of a number
FEWEST_SEEDS = 5
NAME = re.compile(r"[\w][\w .+-]{0,39}")
# Of a cell's settings, what the entry says elsewhere, and what changes no number.
SAID_ELSEWHERE = ("env", "reward", "seed", "seeds", "steps", "random_seeds", "workers")


@dataclass(frozen=True)
class Entry:
    """A method in an environment."""

    environment: str
    method: str
    steps: int
    seeds: tuple[int, ...]
    scores: tuple[float, ...]  # one per seed
    curve_steps: tuple[int, ...] = ()
    curves: tuple[tuple[float | None, ...], ...] = ()  # one per seed; None: not measured
    reward: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # those that are not the defaults
    source: str = ""  # of a reward of one's own


@dataclass(frozen=True)
class Submission:
    """The file."""

    study: str
    track: str  # entries of different tracks are not compared
    measure: str
    by: str
    command: str
    commit: str
    versions: str
    hardware: str
    date: str
    entries: tuple[Entry, ...]
    format: int = FORMAT


def submission_of(
    study: Study, track: str, by: str, command: str, cells: Sequence[FinishedCell]
) -> Submission:
    """What these finished cells say; a ValueError that says why they cannot be submitted."""
    score = score_of(study)
    check_name(by)
    if not cells or not all(entry.cell.is_for_report for entry in cells):
        raise ValueError(
            f"The leaderboard takes seeds from {REPORT_SEEDS:,} on only, by which nobody has "
            "chosen anything: give --report."
        )
    summaries = [entry.summary for entry in cells]
    return Submission(
        study=study.name,
        track=track,
        measure=score.measure,
        by=by,
        command=command,
        commit=_one_commit([str(summary.get("commit")) for summary in summaries]),
        versions=_versions(summaries),
        hardware="; ".join(dict.fromkeys(hardware_text(s.get("hardware")) for s in summaries)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        entries=tuple(_entry(score, cell) for cell in cells),
    )


def score_of(study: Study) -> Score:
    """What a study is compared by; a ValueError where it has no leaderboard."""
    if study.score is None:
        raise ValueError(
            f"The study {study.name} has no leaderboard: coverage and episodic-entropy have one."
        )
    return study.score


def check_name(by: str) -> None:
    """Refuses what cannot stand in a table and in the name of a file."""
    if NAME.fullmatch(by) is None:
        raise ValueError(
            f"--submit takes a name of letters, digits, spaces and .+-, 40 at most; got {by!r}."
        )


def write_submission(folder: Path, submission: Submission) -> Path:
    """Write the file into a folder; where it is."""
    path = folder / f"{submission.study}-{re.sub(r'[ +]+', '-', submission.by)}.json"
    write_text(path, json.dumps(asdict(submission), ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read_submission(path: Path) -> Submission:
    """A file that somebody submitted; a `FileError` that names it where it is not whole."""
    values = read_json_object(path)
    if values.get("format") != FORMAT:
        raise FileError(f"{path} has format {values.get('format')!r}; this version reads {FORMAT}.")
    try:
        submission = settings_from_json(Submission, values)
        for entry in submission.entries:
            _check(entry)
        check_name(submission.by)
    except (ValueError, TypeError, KeyError) as error:
        raise FileError(f"{path} is no submission to the leaderboard: {error}") from error
    return submission


def _check(entry: Entry) -> None:
    where = f"{entry.environment}, {entry.method}"
    seeds = entry.seeds
    if len(set(seeds)) != len(seeds) or len(seeds) < FEWEST_SEEDS or min(seeds) < REPORT_SEEDS:
        raise ValueError(
            f"{where} needs {FEWEST_SEEDS} different seeds from {REPORT_SEEDS:,} on, got "
            f"{list(seeds)}."
        )
    if len(entry.scores) != len(seeds) or not all(map(math.isfinite, entry.scores)):
        raise ValueError(f"{where} needs one finite score for each of its {len(seeds)} seeds.")
    if entry.steps < 1:
        raise ValueError(f"{where} has {entry.steps} steps.")
    sizes = {len(curve) for curve in entry.curves}
    if entry.curves and (len(entry.curves) != len(seeds) or sizes != {len(entry.curve_steps)}):
        raise ValueError(f"{where} needs one curve for each seed, as long as its steps.")


def _entry(score: Score, finished: FinishedCell) -> Entry:
    cell, config = finished.cell, finished.cell.config
    reward = getattr(config, "reward", "")
    steps, values = finished.curves(score.column)
    kept = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round())
    points = kept.astype(int)
    entry = Entry(
        environment=cell.env,
        method=cell.method,
        steps=cell.steps,
        seeds=tuple(int(seed) for seed in finished.summary["seeds"]),
        scores=tuple(_rounded(float(value)) for value in score.of(finished)),
        curve_steps=tuple(int(step) for step in steps[points]),
        curves=tuple(
            tuple(_rounded(value) if math.isfinite(value) else None for value in line)
            for line in values[:, points].tolist()
        ),
        reward=reward,
        settings=_changed(config),
        source=reward_source(reward),
    )
    _check(entry)
    return entry


def _changed(config: Any) -> dict[str, Any]:
    """The settings that are not the defaults."""
    names = [entry.name for entry in fields(config) if entry.name not in SAID_ELSEWHERE]
    values = asdict(config)
    changed = {name: values[name] for name in names if not has_default(config, name)}
    return dict(json.loads(json.dumps(changed, default=str)))


def _one_commit(commits: Sequence[str]) -> str:
    found = list(dict.fromkeys(commits))
    if len(found) > 1 or found[0].endswith("-dirty"):
        raise ValueError(
            "The leaderboard takes runs of one commit without changes to its files, and these are "
            f"of {', '.join(found)}: commit, and run them again."
        )
    return found[0]


def _versions(summaries: Sequence[Mapping[str, Any]]) -> str:
    names = ("element_rl", "python", "jax", "gymnasium", "mujoco")
    each = (
        ", ".join(f"{name} {summary['versions'][name]}" for name in names)
        for summary in summaries
        if summary.get("versions")
    )
    return "; ".join(dict.fromkeys(each))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
