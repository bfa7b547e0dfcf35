"""The page of a run: two seeds of a random policy, for real, and as it is before its first line and
half way."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.browser import Browser, open_browser

from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.studies.report import write_run_report
from element_rl.studies.report.run_results import run_facts, run_results
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run

TINY = ExploreConfig(
    "PointMaze",
    reward="random",
    steps=400,
    seeds=2,
    seed=3,
    log_every=100,
    checkpoint_every=200,
    workers=0,
    env_options=("max_episode_steps=50",),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = create_run(TINY, tmp_path_factory.mktemp("runs") / "maze <of two>")
    explore(TINY, folder)
    return folder


def test_what_is_on_it(run: RunFolder) -> None:
    results, summary, metrics = run_results(run), run.read_summary(), run.read_metrics()
    assert run_facts(run) == {
        "environment": "PointMaze-v0",
        "reward": "random",
        "steps per seed": "400",
        "seeds": "2",
        "run": "finished",
    }
    (table,) = results.tables
    assert [row[:3] for row in table.rows] == [
        ("random", "3", summary["coverage"][0]),
        ("random", "4", summary["coverage"][1]),
    ]
    coverage = next(curves for curves in results.curves if curves.name == "coverage").series[0]
    assert coverage.x == (100.0, 200.0, 300.0, 400.0)
    assert coverage.middle == tuple(metrics["coverage"].reshape(4, 2).mean(axis=1))
    assert coverage.low == tuple(metrics["coverage"].reshape(4, 2).min(axis=1))
    assert [curves.name for curves in results.curves if curves.counts] == [
        "coverage",
        "episode_length",
        "memory_size",
    ]
    assert [item.title for item in results.maps] == ["all seeds", "seed 3", "seed 4"]
    assert [frame.label for frame in results.maps[0].frames] == ["200 steps", "400 steps"]
    visits = run.load_visits()
    for item, wanted in zip(results.maps, (visits.sum(axis=0), *visits), strict=True):
        np.testing.assert_array_equal(np.nan_to_num(item.frames[-1].grid(item.shape)), wanted)
    assert results.provenance["commit"] == str(summary["commit"])
    assert results.settings == run.config["settings"]


def test_it_opens_from_disk_without_errors_or_requests(run: RunFolder, browser: Browser) -> None:
    address = write_run_report(run).as_uri()
    browser.open(address, 400)
    assert browser.problems() == []
    assert browser.requests() == [address]
    assert "maze <of two>" in browser.evaluate("document.querySelector('.question').textContent")
    assert browser.evaluate("document.querySelectorAll('figure.maps canvas').length") >= 3
    assert browser.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_a_run_that_is_not_done(tmp_path: Path) -> None:
    run = create_run(dataclasses.replace(TINY, steps=4_000), tmp_path / "run")
    assert "it is at step 0" in write_run_report(run).read_text()
    calls = iter(range(1_000))
    with pytest.raises(Interrupted):
        explore(dataclasses.replace(TINY, steps=4_000), run, stop=lambda: next(calls) >= 3)
    results = run_results(run)
    step = run.latest_checkpoint()
    assert run_facts(run)["run"] == "not finished"
    assert run_facts(run)["steps per seed"].endswith("of 4,000")
    assert results.tables == ()
    assert results.maps[0].frames[-1].label == f"{step} steps"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from open_browser("the page of a run")
