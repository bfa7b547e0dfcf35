"""A study that is not done is read where all of its cells have come to."""

from pathlib import Path

import numpy as np
import pytest
from support.tiny_study import CELLS, SCALE, STUDY, study

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.studies.engine.grid import cell_folder
from element_rl.studies.engine.runner import conclude
from element_rl.studies.engine.so_far import so_far


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of which one cell was killed after 1,000 of 1,200 steps: no summary, and the metrics
    of what it had logged."""
    out = tmp_path_factory.mktemp("stopped")
    study(out, CELLS[1:2])
    folder = cell_folder(out, CELLS[1])
    (folder / "summary.json").unlink()
    RunFolder.open(folder).truncate_metrics(1_000)
    return out


def test_all_cells_are_read_at_the_step_that_all_have_reached(stopped: Path) -> None:
    longer, shorter = CELLS[1], CELLS[0]
    (entry,), notes = so_far(CELLS, stopped)
    assert entry.cell is longer
    assert entry.summary["steps"] == 1_000
    assert notes == (
        "PointMaze-v0: all methods at 1,000 steps per seed, because element went no further.",
    )
    study(stopped, [shorter])  # 600 steps of a random policy
    entries, notes = so_far(CELLS, stopped)
    assert [entry.summary["steps"] for entry in entries] == [
        500,
        500,
    ]  # both have logged it; 600 only one
    metrics = RunFolder.open(cell_folder(stopped, longer)).read_metrics()
    at = metrics["step"] == 500
    assert entries[1].summary["coverage"] == [
        int(metrics["coverage"][at & (metrics["seed"] == s)][0]) for s in (0, 1)
    ]
    last_tenth = (metrics["step"] > 450) & (metrics["step"] <= 500) & (metrics["seed"] == 1)
    assert entries[1].summary["episodic_entropy"][1] == pytest.approx(
        np.nanmean(metrics["episodic_entropy"][last_tenth])
    )
    steps, values = entries[1].curves("coverage")
    assert steps[-1] == 500
    assert values.shape == (2, len(steps))
    assert max(entries[1].checkpoints()) == 500


def test_the_report_says_where_it_was_read(stopped: Path) -> None:
    results = conclude(
        STUDY, "smoke", SCALE, CELLS, stopped, "element study tiny --so-far", unfinished=True
    )
    assert any("went no further" in note for note in results.notes)
    assert (stopped / "tiny" / "report.html").is_file()
    assert not (cell_folder(stopped, CELLS[1]) / "summary.json").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["coverage", "--so-far", "--slice", "1/2"], "leave out --slice"),
        (["coverage", "--so-far"], "No cell of the study coverage"),
        (["offline", "--so-far"], "No cell of the study offline"),
    ],
)
def test_mistakes(
    arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *arguments, "--scale", "smoke", "--out", str(tmp_path)]) == 2
    assert part in capsys.readouterr().err
