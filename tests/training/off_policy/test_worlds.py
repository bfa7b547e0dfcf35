"""Runs whose environments are worlds on the device: like any other run, in every command."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome
from support.small_rewards import SMALL_REWARDS

from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.cli import main
from element_rl.rewards import TRAINING_NAMES
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved

MAZE = ExploreConfig(
    "PointMaze-v0",
    physics="jax",
    envs_per_agent=4,
    steps=2_560,
    seeds=2,
    replay_size=4_000,
    log_every=640,
    checkpoint_every=640,
    update_interval=400,
    update_steps=200,
    updates_per_step=0.25,
    random_seeds=1,
    env_options=("max_episode_steps=100",),
    sac=SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=100),
    td3=TD3Config(hidden_sizes=(8, 8), batch_size=8, learn_start=100),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(MAZE, tmp_path_factory.mktemp("worlds") / "run")
    explore(MAZE, run)
    return run


def test_a_run_is_measured_and_ends_in_a_summary(finished: RunFolder) -> None:
    summary, metrics = finished.read_summary(), finished.read_metrics()
    assert summary["steps"] == 2_560
    assert summary["physics"] == "jax"
    assert summary["world_faults"] == [0, 0]
    assert set(metrics["world_faults"].tolist()) == {0}
    assert min(summary["coverage"]) > 30
    assert np.isfinite(metrics["critic_loss"][-2:]).all()
    # staggered: of 4 worlds and 640 steps each, an episode ends every 100 steps of the agent
    assert metrics["episodes"][-2:].tolist() == [25, 25]
    assert len(summary["random_policy"]["coverage"]) == 1
    assert finished.load_visits().sum() == 2 * (2_560 + 25)  # a last observation of each episode


def test_what_is_left_open_fits_worlds() -> None:
    config = resolved(dataclasses.replace(MAZE, envs_per_agent=None, steps=200_000)).config
    assert config.num_envs == 64
    assert config.learner.batch_size == 256
    assert config.chunk_steps == 16 * 64
    usual = dataclasses.replace(config, updates_per_step=None)
    assert usual.updates_per_chunk == 128
    host = resolved(ExploreConfig("PointMaze-v0", steps=6_400)).config
    assert (host.num_envs, host.chunk_steps, host.updates_per_chunk) == (1, 64, 64)
    assert host.learner.batch_size == 128


def test_the_temperature_falls_as_fast_for_each_step_as_on_the_host() -> None:
    def rate(**settings: Any) -> float | None:
        config = ExploreConfig("PointMaze-v0", steps=6_400, **settings)
        return resolved(config).config.sac.temperature_learning_rate

    assert rate() == 3e-4
    assert rate(updates_per_step=0.125) == 3e-4  # nothing changes on the host
    assert rate(physics="jax") == pytest.approx(8 * 3e-4)
    assert rate(physics="jax", updates_per_step=0.25) == pytest.approx(4 * 3e-4)
    assert rate(physics="jax", updates_per_step=1e-3) == pytest.approx(32 * 3e-4)
    assert rate(physics="jax", updates_per_step=2.0) == 3e-4
    assert rate(physics="jax", sac=SACConfig(temperature_learning_rate=0.0)) == 0.0


def test_learning_begins_with_the_first_episode_that_is_over() -> None:
    settings = resolved(MAZE)
    with Explorer(*settings, None) as explorer:
        while explorer.step < 128:
            explorer.train_chunk()
        assert explorer.learner.updates == 0
        explorer.train_chunk()
        assert explorer.learner.updates == 16  # a quarter of the 64 steps of a chunk


def test_interrupted_and_resumed(finished: RunFolder, tmp_path: Path) -> None:
    """In the middle of episodes and of an update window, twice."""
    run = create_run(MAZE, tmp_path / "run")
    for chunks in (7, 16):
        asked = iter([False] * chunks + [True] * 100)
        with pytest.raises(Interrupted):
            explore(MAZE, run, stop=lambda asked=asked: next(asked), resume=chunks > 7)
    explore(MAZE, reopen_run(MAZE, run.path), resume=True)
    assert_same(outcome(finished), outcome(run))


@pytest.mark.parametrize("reward", sorted(set(TRAINING_NAMES) - {"element", "random"}))
def test_every_reward_learns_from_worlds(reward: str) -> None:
    options = tuple(
        f"{option}={list(value) if isinstance(value, tuple) else value}"
        for option, value in SMALL_REWARDS.get(reward, {}).items()
        if reward != "element-paper"  # the windows of MAZE are its own
    )
    config = dataclasses.replace(
        MAZE, reward=reward, reward_options=options, steps=640, random_seeds=0, seeds=1
    )
    with Explorer(*resolved(config), None) as explorer:
        explorer.train(lambda progress: None, lambda: False)
        assert explorer.learner.updates > 0
        assert np.isfinite(explorer.metrics.latest["critic_loss"])


def test_td3_learns_from_worlds() -> None:
    config = dataclasses.replace(MAZE, agent="td3", steps=640, random_seeds=0)
    with Explorer(*resolved(config), None) as explorer:
        explorer.train(lambda progress: None, lambda: False)
        assert np.isfinite(explorer.metrics.latest["critic_loss"])


def test_other_commands_take_the_run(finished: RunFolder, tmp_path: Path) -> None:
    path = str(finished.path)
    assert main(["evaluate", path, "--episodes", "1", "--out", str(tmp_path / "evaluated")]) == 0
    assert main(["plot", path, "--out", str(tmp_path / "figures")]) == 0
    arguments = ["collect", path, "--steps", "200", "--dataset", "maze/worlds-v0"]
    assert main([*arguments, "--out", str(tmp_path / "data")]) == 0
    replayed = ["collect", path, "--from-replay", "--steps", "1600", "--dataset", "maze/replay-v0"]
    assert main([*replayed, "--out", str(tmp_path / "data")]) == 0
    tuned = str(tmp_path / "tuned")
    assert main(["finetune", path, "--steps", "300", "--no-compare", "--out", tuned]) == 0
    learned = RunFolder.open(Path(tuned)).config["settings"]  # on the host, as is usual there
    assert learned["sac"]["temperature_learning_rate"] == 3e-4
    assert learned["chunk_steps"] <= 64


def test_what_cannot_be_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["Pendulum-v1", "--physics", "jax"], "Pendulum-v1 has none"),
        (["PointMaze-v0", "--updates-per-step", "0"], "--updates-per-step must be a positive"),
        (["PointMaze-v0", "--batch-size", "0"], "--batch-size must be at least 1"),
        (["PointMaze-v0", "--physics", "jax", "--workers", "2"], "--workers"),
    ):
        assert main(["explore", *arguments, "--steps", "100"]) == 2
        printed = capsys.readouterr().err.strip()
        assert sentence in printed
        assert len(printed.splitlines()) == 1


HOPPER = dataclasses.replace(
    MAZE,
    env="Hopper-v5",
    physics="warp",
    steps=256,
    seeds=1,
    replay_size=1_000,
    log_every=64,
    checkpoint_every=64,
    update_interval=40,
    update_steps=20,
    random_seeds=0,
    env_options=("max_episode_steps=20", "terminate_when_unhealthy=true"),
)


def test_robots_by_warp_are_interrupted_and_resumed(tmp_path: Path) -> None:
    """MuJoCo Warp on the CPU: the same path as on a GPU, and the same numbers twice."""
    whole, parted = (create_run(HOPPER, tmp_path / name) for name in ("whole", "parted"))
    explore(HOPPER, whole)
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        explore(HOPPER, parted, stop=lambda: next(asked))
    explore(HOPPER, reopen_run(HOPPER, parted.path), resume=True)
    assert_same(outcome(whole), outcome(parted))
    summary = whole.read_summary()
    assert summary["physics"] == "warp"
    assert summary["world_faults"] == [0]
    assert summary["coverage"][0] > 1
