"""Acting with checkpoints: as many samples as asked for, the same ones again, kept in the cell's
folder."""

import dataclasses

import numpy as np
import pytest

from element_rl.acting import evaluator
from element_rl.studies.engine.episodes import acted
from element_rl.studies.engine.grid import FinishedCell
from element_rl.studies.engine.methods import SMOKE, cell_of
from element_rl.studies.trajectories import analyse, median_seed
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run

ENV = "PointMaze-v0"
SCALE = dataclasses.replace(
    SMOKE,
    steps={ENV: 640},
    samples=700,
    options={"checkpoint_every": 320, "workers": 0, "sac": {"hidden_sizes": (8,), "batch_size": 8}},
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> FinishedCell:
    cell = cell_of(ENV, "element", SCALE)
    run = create_run(cell.config, tmp_path_factory.mktemp("cell") / "run")
    return FinishedCell(cell, run, explore(cell.config, run))


def test_as_many_samples_as_asked_for(finished) -> None:
    episodes = acted(finished.run, [640], 0, 700)[640]
    assert [len(path) for path in episodes] == [
        501,
        201,
    ]  # the first position of an episode is not a sample
    again = acted(finished.run, [640], 0, 700)[640]
    assert all(np.array_equal(a, b) for a, b in zip(episodes, again, strict=True))
    (file,) = finished.run.evaluation_path.glob("acted-000000640-0-700.safetensors")
    file.unlink()
    assert all(
        np.array_equal(a, b)
        for a, b in zip(episodes, acted(finished.run, [640], 0, 700)[640], strict=True)
    )


def test_processes_act_as_this_one_does(finished, monkeypatch: pytest.MonkeyPatch) -> None:
    here = acted(finished.run, [320, 640], 0, 700)
    for file in finished.run.evaluation_path.glob("acted-*-0-700.safetensors"):
        file.unlink()
    monkeypatch.setattr(evaluator, "WORTH_PROCESSES", 0)
    there = acted(finished.run, [320, 640], 0, 700)
    assert list(there) == list(here) == [320, 640]
    for step, paths in here.items():
        assert all(np.array_equal(a, b) for a, b in zip(paths, there[step], strict=True))


def test_analysis(finished) -> None:
    found = analyse([finished], SCALE)
    (paths,) = found.paths
    assert [group.label for group in paths.groups] == ["320 steps", "640 steps"]
    (sentence,) = found.sentences
    assert sentence.startswith(f"On {ENV} the policy at 320 steps gets ")
    (table,) = found.tables
    assert [row[:3] for row in table.rows] == [(ENV, 320, 2), (ENV, 640, 2)]
    ends = acted(finished.run, [640], median_seed(finished), 700)[640][-1][-1]
    assert paths.groups[-1].paths[-1][-1] == pytest.approx(tuple(ends), abs=0.006)


def test_the_median_seed(finished) -> None:
    def of(coverage: list[int | None]) -> int:
        return median_seed(dataclasses.replace(finished, summary={"coverage": coverage}))

    assert of([5, 1, 3]) == 2
    assert of([4, 1, 3, 2]) == 3  # the lower of the two in the middle
    assert of([None, 7]) == 0
