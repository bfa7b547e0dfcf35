"""The leaderboard's page, from the files in docs/leaderboard/: who covers most, with intervals.

    element study coverage --report --seeds 10 --submit NAME    # writes one file
    python -m benchmarks.leaderboard --page                     # the tables of docs/leaderboard.md

Entries are compared within an environment, a number of steps and a track: a track says how agents
learn and act, so that what differs is the reward. The interquartile mean of the seeds decides;
its interval is the bootstrap's, and every method is tested against the first of its table, exactly,
with Holm's correction over the table (`element_rl.studies.engine.statistics`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

from benchmarks.tables import markdown_table, replace_table
from element_rl.studies.engine.statistics import (
    holm,
    interquartile_mean,
    permutation_p_value,
    stratified_bootstrap,
)
from element_rl.studies.engine.submission import Entry, Submission, read_submission

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, FOLDER = DOCS / "leaderboard.md", DOCS / "leaderboard"


@dataclass(frozen=True)
class Settings:
    """What to do."""

    # Folder of the files.
    folder: Path = FOLDER
    # Write the tables into docs/leaderboard.md.
    page: bool = False


class Group(NamedTuple):
    """What is compared with one another."""

    study: str
    track: str
    measure: str
    environment: str
    steps: int


class Row(NamedTuple):
    """An entry, and the file it stands in."""

    entry: Entry
    submission: Submission
    file: Path


def main(settings: Settings) -> None:
    """Print the tables, or write them into the page."""
    text = render(read_groups(settings.folder))
    print(text)
    if settings.page:
        replace_table(PAGE, "leaderboard", text)


def read_groups(folder: Path) -> dict[Group, list[Row]]:
    """All entries of all files, by what they are compared with."""
    groups: dict[Group, list[Row]] = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        submission = read_submission(file)
        for entry in submission.entries:
            own = (submission.study, submission.track, submission.measure)
            groups[Group(*own, entry.environment, entry.steps)].append(Row(entry, submission, file))
    return dict(groups)


def render(groups: Mapping[Group, Sequence[Row]]) -> str:
    """A section for each study and track, in it a table for each environment."""
    lines: list[str] = []
    for group in sorted(groups):
        heading = f"## {group.study}: {group.track}"
        if heading not in lines:
            lines += [heading, ""]
        lines += [f"### {group.environment}, {group.steps:,} steps", ""]
        lines += [table(group, groups[group]), ""]
    return "\n".join(lines).rstrip()


def table(group: Group, rows: Sequence[Row]) -> str:
    """Methods by their interquartile mean, the highest first."""
    middle = {id(row): float(interquartile_mean(np.array(row.entry.scores))) for row in rows}
    ordered = sorted(rows, key=lambda row: -middle[id(row)])
    first = np.array(ordered[0].entry.scores)
    p_values = holm(
        [permutation_p_value([first], [np.array(row.entry.scores)]) for row in ordered[1:]]
    )
    cells = []
    for row, p in zip(ordered, (None, *p_values), strict=True):
        estimate = stratified_bootstrap([np.array(row.entry.scores)])
        commit = row.submission.commit[:7]
        cells.append(
            [
                row.entry.method,
                f"{_number(estimate.value)} ({_number(estimate.low)} to {_number(estimate.high)})",
                "" if p is None else ("< 0.001" if p < 0.001 else f"{p:.2g}"),
                str(len(row.entry.seeds)),
                f"[{row.submission.by}](leaderboard/{row.file.name}), {commit}",
            ]
        )
    header = ["method", f"{group.measure} (95 %)", "p, against the first", "seeds", "by"]
    return markdown_table(header, cells)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
