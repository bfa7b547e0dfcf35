"""The on-policy loop as a whole: repeated, interrupted, with workers that die; and A3C that learns
in it."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support import screen_probes
from support.run_outcomes import assert_same, outcome

from element_rl.acting.rollout_workers import WorkerError
from element_rl.agents.a3c import A3CConfig
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import create_run, reopen_run
from element_rl.training.on_policy.training import train

SMALL = OnPolicyConfig(
    screen_probes.NAME,
    steps=330,
    seeds=2,
    workers=0,
    state_dim=4,
    update_interval=60,
    update_steps=30,
    log_every=60,
    checkpoint_every=120,
    random_seeds=0,
    a3c=A3CConfig(channels=(2, 2), hidden_size=8, local_steps=16, learning_rate=3e-3),
)


@pytest.fixture(scope="module", autouse=True)
def _probe_environment() -> Iterator[None]:
    screen_probes.register_probes()
    yield
    gymnasium.registry.pop(screen_probes.NAME)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SMALL, tmp_path_factory.mktemp("undisturbed") / "run")
    train(SMALL, run)
    return run


def stopping_after(rollouts: int) -> Callable[[], bool]:
    calls: list[int] = []
    return lambda: len(calls) >= rollouts or bool(calls.append(1))


def test_metrics_checkpoints_and_summary(undisturbed: RunFolder) -> None:
    metrics, summary = undisturbed.read_metrics(), undisturbed.read_summary()
    assert metrics["step"].tolist() == [
        step for step in (60, 120, 180, 240, 300, 330) for _ in range(2)
    ]
    assert metrics["seed"].tolist() == [0, 1] * 6
    for name in (
        "policy_entropy",
        "critic_loss",
        "actor_loss",
        "reward_episodic",
        "reward_lifelong",
        "gradient_norm",
    ):
        assert np.isfinite(metrics[name]).all(), name
    assert (metrics["policy_lag"] == 0).all()
    assert undisturbed.checkpoint_steps() == undisturbed.planned_checkpoints() == [120, 240, 330]
    visits = undisturbed.load_visits()
    assert visits.shape == (2, 9, 2)
    np.testing.assert_array_equal(np.count_nonzero(visits, axis=(1, 2)), summary["coverage"])
    episodes = metrics["episodes"][-2:]
    assert (visits.sum(axis=(1, 2)) >= 330 + episodes).all()  # every step, and every reset
    for name in (
        "env",
        "reward",
        "steps",
        "seeds",
        "wall_seconds",
        "episodic_entropy",
        "extrinsic_return",
        "versions",
    ):
        assert name in summary
    assert all(value <= 9 for value in summary["furthest"])


def test_one_worker_in_a_process_does_the_same(undisturbed: RunFolder, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, workers=1)
    run = create_run(config, tmp_path / "run")
    train(config, run)
    assert_same(outcome(undisturbed), outcome(run))


def test_interrupted_anywhere_and_resumed(undisturbed: RunFolder, tmp_path: Path) -> None:
    """In the middle of episodes, between two lines, with one agent ahead of the other."""
    run = create_run(SMALL, tmp_path / "run")
    for rollouts in (5, 12, 18):
        with pytest.raises(Interrupted):
            train(
                SMALL,
                run,
                stop=stopping_after(rollouts),
                resume=run.latest_checkpoint() is not None,
            )
    train(SMALL, reopen_run(SMALL, run.path), resume=True)
    assert_same(outcome(undisturbed), outcome(run))
    np.testing.assert_array_equal(undisturbed.load_visits(), run.load_visits())


def test_a_sum_of_rewards_is_resumed_too(tmp_path: Path) -> None:
    small = ("rnd.feature_dim=8", "rnd.target_sizes=[16]", "rnd.predictor_sizes=[16]")
    config = dataclasses.replace(SMALL, reward="element + 0.5*rnd", reward_options=small, seeds=1)
    runs = [create_run(config, tmp_path / name) for name in ("whole", "parts")]
    train(config, runs[0])
    with pytest.raises(Interrupted):
        train(config, runs[1], stop=stopping_after(9))
    train(config, reopen_run(config, runs[1].path), resume=True)
    assert_same(*map(outcome, runs))
    metrics = runs[0].read_metrics()
    paid = metrics["reward_element"] + 0.5 * metrics["reward_rnd"]
    np.testing.assert_allclose(metrics["reward_mean"], paid, rtol=1e-4)
    assert (metrics["reward_rnd_deviation"] > 0).all()
    assert np.nanmax(metrics["element_nodes"]) > 200
    assert runs[0].read_summary()["update_interval"] == 60


def test_a_worker_that_is_killed_comes_back_where_it_was(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    config = dataclasses.replace(SMALL, workers=1)
    run = create_run(config, tmp_path / "run")
    train(
        dataclasses.replace(config, env_options=("kills_at=75", f"flag={tmp_path / 'killed'}")), run
    )
    assert (tmp_path / "killed").exists()
    assert_same(outcome(undisturbed), outcome(run))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_always_breaks_stops_the_run_with_a_good_checkpoint(
    workers: int, tmp_path: Path
) -> None:
    config = dataclasses.replace(SMALL, workers=workers, seeds=1, restarts=workers)
    run = create_run(config, tmp_path / "run")
    with pytest.raises(
        WorkerError, match=r"the emulator gave up.*stopped at step .* with a checkpoint"
    ):
        train(dataclasses.replace(config, env_options=("breaks_at=6",)), run)
    arrays, metadata, _ = run.load_resume()
    assert arrays["agent/0/counters"][0] == metadata["step"] < 330
    train(config, run, resume=True)  # repaired, it goes on
    assert run.read_metrics()["step"][-1] == 330


def test_several_workers_make_the_steps_together(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, workers=3, seeds=1, reward="rnd", update_interval=None, update_steps=None
    )
    run = create_run(config, tmp_path / "run")
    train(config, run)
    metrics = run.read_metrics()
    assert metrics["step"][-1] == 330
    assert metrics["policy_lag"].max() > 0  # others have learned while a worker acted
    arrays, _, _ = run.load_resume()
    assert arrays["agent/0/counters"][0] == 330
    assert all(arrays[f"place/0/{worker}/counts"][0] > 0 for worker in range(3))


def test_a3c_learns_from_the_environment_s_reward(tmp_path: Path) -> None:
    """Going right at once takes 6 to 8 steps; a random policy takes about 40, or runs out of
    time."""
    config = dataclasses.replace(
        SMALL,
        steps=2_500,
        seeds=1,
        reward="extrinsic",
        log_every=250,
        checkpoint_every=2_500,
        random_seeds=1,
        update_interval=None,
        update_steps=None,
        a3c=dataclasses.replace(SMALL.a3c, local_steps=12, learning_rate=1e-2),
    )
    run = create_run(config, tmp_path / "run")
    summary = train(config, run)
    assert summary["episode_length"][0] < 15 < summary["random_policy"]["episode_length"][0]
    assert summary["extrinsic_return"][0] > 0.95


def test_a_run_begins_with_the_policies_of_another(undisturbed: RunFolder, tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, begin=undisturbed.path, reward="random", update_interval=None, update_steps=None
    )
    run = create_run(config, tmp_path / "run")
    train(config, run)
    learned, begun = undisturbed.load_policy(), run.load_policy()
    for name in learned:
        np.testing.assert_array_equal(learned[name], begun[name])


def test_mistakes_are_answered_in_a_sentence(undisturbed: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no reward called 'elemnt'"):
        dataclasses.replace(SMALL, reward="elemnt")
    with pytest.raises(ValueError, match="--workers must not be negative"):
        dataclasses.replace(SMALL, workers=-1)
    with pytest.raises(ValueError, match="ELEMENT's"):
        create_run(dataclasses.replace(SMALL, reward="rnd"), tmp_path / "none")
    with pytest.raises(ValueError, match="no encoder in"):
        create_run(dataclasses.replace(SMALL, encoder=tmp_path), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="seed was 0 and is 5"):
        reopen_run(dataclasses.replace(SMALL, seed=5), undisturbed.path)


def test_workers_load_no_jax() -> None:
    code = "import sys, element_rl.acting.rollout_workers; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_explorers_look_farther_ahead_than_the_paper_s_and_deliver_sooner() -> None:
    ours, paper = OnPolicyConfig("Rooms-v0").a3c, A3CConfig()
    assert (ours.discount, ours.local_steps) == (0.99, 50)
    assert (paper.discount, paper.local_steps) == (0.9, 300)
    assert dataclasses.replace(ours, discount=0.9, local_steps=300) == paper
