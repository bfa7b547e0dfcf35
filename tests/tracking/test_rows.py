"""Metrics as trackers show them: each step once, however the file grows and is cut."""

from pathlib import Path

import numpy as np
import pytest

from element_rl.runs.folder import RunFolder
from element_rl.tracking.files import results_of, sent_files
from element_rl.tracking.rows import NewSteps, shown


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element"})


def row(step: int, seed: int, **values) -> dict:
    return {"step": step, "seed": seed, **values}


def test_means_over_seeds_and_the_numbers_of_each() -> None:
    rows = [
        {"step": "10", "seed": "0", "coverage": "3", "q_mean": "", "actor_loss": "nan"},
        {"step": "10", "seed": "4", "coverage": "6", "q_mean": "0.5", "actor_loss": "inf"},
    ]
    assert shown(rows, several=True) == {
        "coverage": 4.5,
        "q_mean": 0.5,
        "seed_0/coverage": 3.0,
        "seed_4/coverage": 6.0,
        "seed_4/q_mean": 0.5,
    }
    assert shown(rows[:1], several=False) == {"coverage": 3.0}


def test_every_step_is_told_once(run: RunFolder) -> None:
    steps = NewSteps(run.metrics_path, told=-1)
    assert list(steps.read(ended=False)) == []
    run.append_metrics([row(10, 0, coverage=1), row(10, 1, coverage=2)])
    run.append_metrics([row(20, 0, coverage=3)])
    # the newest step may have more rows to come
    assert [step for step, _ in steps.read(ended=False)] == [10]
    run.append_metrics([row(20, 1, coverage=5)])
    assert list(steps.read(ended=False)) == []
    (told,) = steps.read(ended=False)
    assert told == (20, {"coverage": 4, "seed_0/coverage": 3, "seed_1/coverage": 5})
    run.append_metrics([row(30, 0, coverage=7)])
    assert [step for step, _ in steps.read(ended=True)] == [30]
    assert list(steps.read(ended=True)) == []


def test_a_run_that_goes_back_to_its_checkpoint_tells_nothing_twice(run: RunFolder) -> None:
    for step in (10, 20, 30):
        run.append_metrics([row(step, 0, coverage=step)])
    steps = NewSteps(run.metrics_path, told=10)
    assert [step for step, _ in steps.read(ended=True)] == [20, 30]
    run.truncate_metrics(10)
    run.append_metrics([row(step, 0, coverage=step) for step in (20, 30, 40)])
    assert list(steps.read(ended=True)) == [(40, {"coverage": 40})]


def test_what_could_not_be_sent_is_told_again(run: RunFolder) -> None:
    run.append_metrics([row(step, 0, coverage=step) for step in (10, 20, 30)])
    steps = NewSteps(run.metrics_path, told=-1)
    for step, _ in steps.read(ended=True):
        if step == 20:  # what it is asked for fails here
            break
    assert [step for step, _ in steps.read(ended=True)] == [20, 30]


def test_half_a_line_waits_for_its_end(run: RunFolder) -> None:
    run.metrics_path.write_bytes(b"step,seed,coverage\n10,0,4\n20,0,5")
    steps = NewSteps(run.metrics_path, told=-1)
    assert list(steps.read(ended=True)) == [(10, {"coverage": 4})]
    with run.metrics_path.open("ab") as file:
        file.write(b"5\n")
    assert list(steps.read(ended=True)) == [(20, {"coverage": 55})]


def test_files_without_the_replay_and_what_links_lead_to(run: RunFolder, tmp_path: Path) -> None:
    arrays = {"a": np.zeros(3)}
    run.save_checkpoint(5, arrays, None, arrays, {})
    run.append_metrics([row(5, 0)])
    (run.path / "figures").mkdir()
    (run.path / "figures" / "coverage.png").touch()
    (tmp_path / "private").write_text("another's")
    (run.path / "figures" / "linked.png").symlink_to(tmp_path / "private")
    assert sorted(sent_files(run.path)) == [
        "checkpoints/step_000000005/manifest.json",
        "checkpoints/step_000000005/policy.safetensors",
        "config.json",
        "figures/coverage.png",
        "metrics.csv",
    ]


def test_results_are_numbers_of_the_summary() -> None:
    summary = {
        "env": "Ant-v5",
        "steps": 100,
        "seeds": [0, 1],
        "coverage": [3, 5],
        "best_return": [None, 2.0],
        "episode_length": [None, None],
        "is_random": True,
        "random_policy": {"coverage": [1]},
        "hardware": {"cpu_count": 2},
    }
    assert results_of(summary) == {
        "final/steps": 100,
        "final/coverage": 4,
        "final/best_return": 2,
        "final/random_policy/coverage": 1,
    }
