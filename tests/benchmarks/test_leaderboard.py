"""The leaderboard's page says what its files say."""

import dataclasses
from pathlib import Path

from benchmarks import leaderboard, worlds_coverage
from element_rl.studies.engine.submission import Entry, Submission, write_submission

SUBMISSION = Submission(
    "coverage", "small", "unique cells", "me", "element study …", "0123456789", "", "", "", ()
)


def entry(method: str, scores: tuple[float | int, ...], environment: str = "Ant-v5") -> Entry:
    seeds = tuple(range(1_000, 1_000 + len(scores)))
    return Entry(environment, method, 100, seeds, tuple(map(float, scores)))


def test_the_page_is_that_of_the_files() -> None:
    groups = leaderboard.read_groups(leaderboard.FOLDER)
    assert leaderboard.render(groups) in leaderboard.PAGE.read_text()


def test_the_file_of_worlds_is_that_of_its_data() -> None:
    cells = worlds_coverage.read_data(worlds_coverage.DATA)
    (path,) = leaderboard.FOLDER.glob("coverage-worlds.json")
    assert leaderboard.read_submission(path) == worlds_coverage.submission_of(cells)


def test_methods_of_several_files_are_compared_in_one_table(tmp_path: Path) -> None:
    """By hand: of five scores the interquartile mean weighs 0, 0.3, 0.4, 0.3, 0. Five above five
    have p = 2/252, corrected for two comparisons."""
    ours = dataclasses.replace(
        SUBMISSION,
        entries=(entry("mine", (1, 2, 3, 4, 50)), entry("mine", (1, 1, 1, 1, 1), "Hopper-v5")),
    )
    theirs = dataclasses.replace(
        SUBMISSION,
        by="them",
        entries=(
            entry("theirs", (100, 101, 102, 103, 104)),
            entry("worse", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ),
    )
    for submission in (ours, theirs):
        write_submission(tmp_path, submission)
    groups = leaderboard.read_groups(tmp_path)
    assert [group.environment for group in sorted(groups)] == ["Ant-v5", "Hopper-v5"]
    rows = leaderboard.table(*next(iter(groups.items()))).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == ["theirs", "mine", "worse"]
    assert cells[0][1].startswith("102 (")
    assert cells[1][1].startswith("3 (")
    assert [row[2] for row in cells] == ["", "0.016", "0.016"]
    assert cells[0][4] == "[them](leaderboard/coverage-them.json), 0123456"


def test_other_tracks_and_budgets_are_not_compared(tmp_path: Path) -> None:
    one = dataclasses.replace(SUBMISSION, entries=(entry("mine", (1, 2, 3, 4, 5)),))
    longer = dataclasses.replace(one.entries[0], steps=200)
    for by, other in (
        ("a", one),
        ("b", dataclasses.replace(one, track="paper")),
        ("c", dataclasses.replace(one, entries=(longer,))),
    ):
        write_submission(tmp_path, dataclasses.replace(other, by=by))
    assert len(leaderboard.read_groups(tmp_path)) == 3
