"""The comparison on Stable-Baselines3: what is compared within a round, what reaches the replay,
what is counted as visited."""

import ast
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import bench_sb3, rlexplore_rewards, sb3_point_maze
from benchmarks.bench_sb3 import Entry
from benchmarks.tables import ROOT

SOURCE = {"machine": "a machine", "versions": "some versions", "commit": "abc", "date": "today"}


def test_overheads_are_taken_within_a_round_and_against_the_learner_without_bonus() -> None:
    entries = [
        Entry("SB3 SAC", "none"),
        Entry("SB3 SAC", "element", 100),
        Entry("RLeXplore", "none"),
        Entry("RLeXplore", "re3", 100),
    ]
    slices = {  # ms: wall, processor, inside the bonus's calls; the second round was disturbed
        "SB3 SAC: none": [[11.0, 10.0, 0.5], [30.0, 20.0, 1.0], [11.0, 10.0, 0.5]],
        "SB3 SAC: element, 100 remembered": [
            [12.0, 9.0, 1.5],
            [33.0, 22.0, 3.0],
            [12.0, 11.0, 1.5],
        ],
        "RLeXplore: none": [[10.0, 10.0, 0.5], [20.0, 20.0, 1.0], [10.0, 10.0, 0.5]],
        "RLeXplore: re3, 100 remembered": [[14.0, 14.0, 4.5], [28.0, 28.0, 9.0], [14.0, 14.0, 4.5]],
    }
    rows = {row["name"]: row for row in bench_sb3.summarise(entries, slices)}
    ours = rows["SB3 SAC: element, 100 remembered"]
    assert ours["overhead"] == pytest.approx(0.1)  # in every round
    assert ours["extra"] == pytest.approx(1.0)  # of 1, 2, 1
    assert ours["extra_spread"] == pytest.approx([1.0, 2.0])
    assert ours["of_rlexplore"] == pytest.approx(0.25)  # 1 ms against 4
    assert "of_rlexplore" not in rows["SB3 SAC: none"]
    result = {
        "rows": list(rows.values()),
        "load": [0.3, 1.2],
        "peer": "rllte-core 1.0.1",
        "source": SOURCE,
    }
    text = bench_sb3.render(bench_sb3.Settings(), result)
    assert (
        "| SB3 SAC: element, 100 remembered | 256 | 11 (9–22) | 12 | 1.00 (1.00–2.00) | 10.0 % | "
        "×0.25 |" in text
    )
    assert "| RLeXplore: re3, 100 remembered | 4 |" in text
    assert "rllte-core 1.0.1" in text
    assert "Provisional" not in text
    busy = bench_sb3.render(bench_sb3.Settings(), {**result, "load": [0.3, 3.0], "peer": ""})
    assert "Provisional" in busy
    assert "RLeXplore was not at hand" in busy


def test_the_part_for_the_other_environment_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(rlexplore_rewards.__file__).read_text(encoding="utf-8"))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    assert not [name for name in names if name.startswith(("element_rl", "benchmarks"))]


def test_a_call_within_a_watched_call_is_not_counted_twice() -> None:
    class Worker:
        def work(self) -> None:
            began = time.process_time()
            while time.process_time() - began < 0.02:
                pass

        def outer(self) -> None:
            self.work()
            self.work()

    worker, clock = Worker(), rlexplore_rewards.Clock()
    clock.watch(worker, "work", "outer")
    worker.outer()
    assert 0.04 <= clock.seconds < 0.06


class _Curious:
    """A module with RLeXplore's three verbs that pays 7 for every transition."""

    batch_size = 4

    def __init__(self) -> None:
        self.watched, self.learned = 0, 0

    def watch(self, observations: Any, *_: Any) -> None:
        self.watched += len(observations)

    def compute(self, samples: dict[str, Any], sync: bool) -> Any:
        assert not sync
        assert samples["next_observations"].shape == (1, 2, 3)  # steps, environments, observation
        return 7.0 + 0.0 * samples["rewards"]

    def update(self, samples: dict[str, Any]) -> None:
        assert samples["observations"].shape == (4, 1, 3)
        self.learned += 1


def test_the_documented_callback_puts_the_bonus_into_the_replay() -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3", reason="pip install -e '.[sb3]'")
    from stable_baselines3.common.env_util import make_vec_env

    module = _Curious()
    model = stable_baselines3.SAC(
        "MlpPolicy", make_vec_env("Pendulum-v1", 2, seed=0), device="cpu", buffer_size=100
    )
    model.learn(10, callback=rlexplore_rewards._callback(module), log_interval=None)
    assert (module.watched, module.learned) == (
        10,
        4,
    )  # nothing to learn from at the first of five steps
    assert model.replay_buffer.rewards[:5].max() <= 7.0  # Pendulum pays 0 at best
    assert model.replay_buffer.rewards[:5].min() > 7.0 - 17.0  # and no less than -17


def test_a_contender_trains_when_told() -> None:
    pytest.importorskip("stable_baselines3", reason="pip install -e '.[sb3]'")
    request = {
        "learner": "SB3 SAC",
        "reward": "element",
        "remembered": 300,
        "options": {},
        "num_envs": 1,
        "batch_size": 8,
        "stored": 1_000,
    }
    command = [sys.executable, "-m", "benchmarks.sb3_contender", json.dumps(request)]
    answered = subprocess.run(
        command, input="8\n8\n", capture_output=True, text=True, check=True, cwd=ROOT
    )
    said, *slices = map(json.loads, answered.stdout.splitlines())
    assert "versions" in said
    assert len(slices) == 2
    assert all(one["processor_seconds"] > one["inside"] > 0 for one in slices)


def test_random_actions_are_counted_cell_by_cell(tmp_path: Path) -> None:
    settings = sb3_point_maze.Settings(sac_steps=600, out=tmp_path, arms=("sac", "random"))
    assert sb3_point_maze._expanded(settings) == ["sac", "random-600"]
    result = sb3_point_maze.run_arm(settings, "random-600", 0)
    visits = np.load(tmp_path / "random-600-seed0.npy")
    assert visits.sum() == 600
    assert result["cells"] == np.count_nonzero(visits)
    assert result["rooms"] >= 1
    written = json.loads((tmp_path / "random-600-seed0.json").read_text())
    assert written["cells"] == result["cells"]


# so few steps end before its first window
@pytest.mark.filterwarnings("ignore:The lifelong memory")
def test_an_agent_with_the_plug_in_is_counted_alike(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="pip install -e '.[sb3]'")
    settings = sb3_point_maze.Settings(ppo_steps=2_000, out=tmp_path)
    result = sb3_point_maze.run_arm(settings, "ppo+element", 1)
    assert np.load(tmp_path / "ppo+element-seed1.npy").sum() == 2_000
    table = sb3_point_maze.render(
        [result, {**result, "arm": "random-2000", "cells": result["cells"] // 2, "seed": 0}]
    )
    assert "| SB3 PPO + element | 2,000 |" in table
    assert "| 2.00 |" in table
