"""The transferred and the fresh run beside each other; that being stopped or killed changes
nothing; mistakes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.car_run import (
    AGENT,
    CAR,
    SOURCE,
    WARMUP,
    assert_equal_leaves,
    fresh_agents,
    settings,
    start,
)
from support.run_outcomes import assert_same, outcome

from element_rl.commands.finetune import _comparison_table, _show, main
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.metrics_log import METRIC_COLUMNS
from element_rl.runs.watching import Interrupted
from element_rl.training.finetune import finetune
from element_rl.training.finetune.comparison import area_under_curve, steps_to_reach, table
from element_rl.training.finetune.settings import off_policy_settings
from element_rl.training.finetune.transplants import transplanted
from element_rl.training.off_policy.config import config_from_json
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run


@pytest.fixture(scope="module")
def compared(source: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "out"
    finetune(settings(source), folder)
    return folder


def test_the_actor_is_the_checkpoints_and_the_rest_is_fresh(
    source: RunFolder, compared: Path
) -> None:
    transferred = RunFolder.open(compared / "transferred")
    for name, array in transferred.load_policy(0).items():
        for agent, step in enumerate((200, 300)):
            np.testing.assert_array_equal(array[agent], source.load_policy(step)[name][agent])
    scratch = fresh_agents((3, 4))  # the seeds of both runs
    agents = transplanted(AGENT, scratch, source, start(source))
    for name in (
        "critics",
        "target_critics",
        "critic_optimiser",
        "actor_optimiser",
        "log_temperature",
    ):
        assert_equal_leaves(getattr(agents, name), getattr(scratch, name))


def test_two_runs_a_figure_and_a_summary(
    compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((compared / "summary.json").read_text())
    assert summary["seeds"] == [3, 4]
    assert summary["transferred_step"] == [200, 300]
    for run in ("transferred", "scratch"):
        assert len(summary[run]["final_return"]) == len(summary[run]["area_under_curve"]) == 2
        metrics = RunFolder.open(compared / run).read_metrics()
        assert set(METRIC_COLUMNS) <= metrics.keys()
        assert metrics["step"].max() == 300
        assert metrics["episodes"][:2].tolist() == [
            3,
            3,
        ]  # of 20 steps in the first 60: the explorer's do not count
    assert summary["mean"]["zero_shot_return"] == pytest.approx(
        np.mean(summary["zero_shot_return"])
    )
    for name in ("versions", "commit", "hardware", "transferred_from"):
        assert name in summary
    for kind in ("png", "svg"):
        assert (compared / "figures" / f"transfer.{kind}").stat().st_size > 5_000
    assert len((compared / "table.md").read_text().splitlines()) == 5
    transferred = RunFolder.open(compared / "transferred")
    assert transferred.read_summary()["zero_shot_return"] == summary["zero_shot_return"]
    assert transferred.config["settings"]["sac"]["learn_start"] == 0
    assert RunFolder.open(compared / "scratch").config["settings"]["sac"]["learn_start"] == 100
    # Given again, there is nothing left to do.
    stamps = {path: path.stat().st_mtime_ns for path in compared.rglob("*") if path.is_file()}
    assert main(["--resume", str(compared)]) == 0
    printed = capsys.readouterr().out
    assert f"{compared} is finished at step " in printed
    assert "transfer.png" in printed
    assert stamps == {
        path: path.stat().st_mtime_ns for path in compared.rglob("*") if path.is_file()
    }


def test_measures_by_hand() -> None:
    steps = np.array([100, 200, 300, 350])
    returns = np.array([np.nan, 2.0, np.nan, 8.0])
    assert area_under_curve(steps, returns) == pytest.approx(
        (100 * 2 + 100 * 2 + 100 * 6 + 50 * 8) / 350
    )
    assert area_under_curve(steps, np.full(4, np.nan)) is None
    assert steps_to_reach(steps, returns, 5.0) == 350  # the mean of 2 and 8
    assert steps_to_reach(steps, returns, 2.0) == 200
    assert steps_to_reach(steps, returns, 5.1) is None
    assert steps_to_reach(steps, returns, 5.1, zero_shot=6.0) == 0
    numbers = {
        "final_return": [1.0, None],
        "area_under_curve": [1.0, 3.0],
        "steps_to_reach": [100, None],
    }
    text = table(
        {
            "seeds": [0, 1],
            "transferred_step": [5, 5],
            "zero_shot_return": [1.5, 2.5],
            "return_to_reach": 4.0,
        }
        | {"transferred": numbers, "scratch": numbers}
    )
    assert (
        text.splitlines()[-1]
        == "| mean |  | 2 | 1 of 2 seeds | 1 of 2 seeds | 2 | 2 | 1 of 2 seeds | 1 of 2 seeds |"
    )


def after(calls: int) -> Callable[[], bool]:
    count = [0]

    def stop() -> bool:
        count[0] += 1
        return count[0] >= calls

    return stop


def test_stopped_anywhere_and_continued(source: RunFolder, compared: Path, tmp_path: Path) -> None:
    """While choosing and in the warm-up; then continued by `explore`, to which it is a run like any
    other."""
    config = settings(source, compare=False)
    folder = tmp_path / "alone"
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=after(3))
    assert not folder.exists()
    policies = 4 + 1  # to choose from, and the best
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=after(policies + 4), resume=True)
    run = RunFolder.open(folder)
    assert not run.summary_path.exists()
    assert run.latest_checkpoint() == 80
    explore(config_from_json(run.config["settings"]), run, resume=True)
    assert_same(outcome(RunFolder.open(compared / "transferred")), outcome(run))
    summary = finetune(config, folder, resume=True)
    assert summary["zero_shot_return"] == run.read_summary()["zero_shot_return"]
    assert summary["transferred_step"] == [200, 300]


def test_killed_at_a_random_moment(source: RunFolder, compared: Path, tmp_path: Path) -> None:
    code = "import sys; from element_rl.commands.finetune import main; sys.exit(main(sys.argv[1:]))"
    arguments = [
        *(
            str(source.path),
            "--steps",
            "300",
            "--episodes",
            "2",
            "--log-every",
            "50",
            "--checkpoint-every",
            "100",
        ),
        *(
            "--critic-warmup",
            str(WARMUP),
            "--replay",
            "kept",
            "--no-compare",
            "--out",
            str(tmp_path / "killed"),
        ),
    ]
    with open(tmp_path / "log.txt", "w") as log:
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=log, stderr=log)
    while (
        process.poll() is None
        and not (tmp_path / "killed" / "checkpoints" / "step_000000000").exists()
    ):
        time.sleep(0.01)
    time.sleep(np.random.default_rng(os.getpid()).uniform(0.0, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(arguments) == 0
    assert_same(
        outcome(RunFolder.open(compared / "transferred")),
        outcome(RunFolder.open(tmp_path / "killed")),
    )


def test_a_run_that_has_not_begun_is_not_begun_from_scratch(
    source: RunFolder, tmp_path: Path
) -> None:
    task, *_ = off_policy_settings(settings(source), source)
    run = create_run(task, tmp_path / "run")
    (run.path / "transfer.json").write_text("{}")
    with pytest.raises(RunError, match="continue it with element finetune"):
        explore(task, run, resume=True)


def test_mistakes(
    source: RunFolder, compared: Path, tmp_path: Path, complaint: Callable[..., str]
) -> None:
    run = str(source.path)
    assert "Name the run" in complaint()
    assert "no run folder" in complaint(str(tmp_path / "nowhere"))
    assert "has no checkpoint of step 7: it has steps 100, 200" in complaint(
        run, "--checkpoint", "7"
    )
    assert "best, last or a number" in complaint(run, "--checkpoint", "first")
    assert "hidden layers of 8 units, not 16" in complaint(run, "--sac.hidden-sizes", "16")
    assert "has 2 agents" in complaint(run, "--seeds", "3")
    assert "NAME=VALUE" in complaint(run, "--env-options", "x")
    assert "--steps must be at least 1" in complaint(run, "--steps", "0")
    assert "--anchor must not be negative" in complaint(run, "--anchor", "-1")
    assert "--anchor-halflife must be above 0" in complaint(run, "--anchor-halflife", "0")
    assert "no fine-tuning in" in complaint("--resume", run)
    for reward, sentence in (("random", "acted at random"), ("rnd", "no complete checkpoint")):
        create_run(
            dataclasses.replace(SOURCE, reward=reward, recent_scale=False), tmp_path / reward
        )
        assert sentence in complaint(str(tmp_path / reward))
    RunFolder.create(tmp_path / "foreign", {"env": CAR, "algorithm": "cql"})
    assert "not a run of element explore" in complaint(str(tmp_path / "foreign"))
    assert not (tmp_path / "out").exists()


def test_who_lost_a_policy_is_told_of_the_anchor(
    source: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(source, compare=False)
    summary = finetune(config, tmp_path / "alone")
    summary |= {"zero_shot_return": [1e6, 1e6], "extrinsic_return": [1.0, 2.0]}
    for anchor, hint in ((0.0, "--anchor 1 --anchor-halflife 30 "), (1.0, "")):
        _show(dataclasses.replace(config, anchor=anchor), tmp_path / "alone", summary)
        said = capsys.readouterr().out
        assert (hint or "Fine-tuning") in said
        assert ("--anchor" in said) == bool(hint)


def test_one_seed_is_one_seed() -> None:
    numbers = {"final_return": [1.0], "area_under_curve": [1.0], "steps_to_reach": [100]}
    summary = {"env": "Ant-v5", "steps": 100, "seeds": [0], "zero_shot_return": [1.0]}
    runs = {"return_to_reach": 1.0, "transferred": numbers, "scratch": numbers}
    assert _comparison_table(summary | runs).title == "Ant-v5, 100 steps × 1 seed"


def test_nothing_is_overwritten(source: RunFolder, compared: Path) -> None:
    before = {
        path: path.read_bytes() for path in [*compared.rglob("*.csv"), *source.path.rglob("*.json")]
    }
    with pytest.raises(ValueError, match="holds a run that is no fine-tuning"):
        main([str(source.path), "--out", str(source.path)])
    with pytest.raises(ValueError, match='critics was "fresh" and is "kept"'):
        main(["--resume", str(compared), "--critics", "kept"])
    with pytest.raises(RunError, match="already holds a fine-tuning"):
        finetune(settings(source), compared)
    assert before == {path: path.read_bytes() for path in before}


def test_of_two_that_choose_at_once_one_takes_the_folder(source: RunFolder, tmp_path: Path) -> None:
    config, folder, seen = settings(source), tmp_path / "out", list[str]()

    def another(stage: str, progress: object) -> None:
        """While this one chooses, another begins in the folder and is stopped when it trains."""
        if not seen:
            with pytest.raises(Interrupted):
                finetune(
                    config,
                    folder,
                    lambda stage, progress: seen.append(stage),
                    lambda: "transferred" in seen,
                )

    with pytest.raises(RunError, match="already holds a fine-tuning: continue it with --resume"):
        finetune(config, folder, another)
    assert "transferred" in seen
