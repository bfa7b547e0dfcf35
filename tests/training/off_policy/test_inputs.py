"""`--inputs state`, `--pool` and `element-paper` reach the reward of a run; older runs stay what
they were."""

import dataclasses
import itertools
from pathlib import Path

import jax
import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome
from support.small_rewards import SMALL_REWARDS

from element_rl.agents.sac import SACConfig
from element_rl.cli import main
from element_rl.rewards.element_paper import PrintedElementReward
from element_rl.rewards.whole_replay import WholeReplay
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_json, write_json
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer, explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved

SMALL = ExploreConfig(
    "PointMaze-v0",
    "rnd",
    ("feature_dim=8", "target_sizes=[16]", "predictor_sizes=[16]"),
    steps=320,
    seeds=2,
    replay_size=600,
    chunk_steps=40,
    log_every=80,
    checkpoint_every=160,
    random_seeds=1,
    workers=0,
    env_options=("max_episode_steps=40",),
    sac=SACConfig(hidden_sizes=(16,), batch_size=16, learn_start=80),
)
NGU, E3B = (
    tuple(
        f"{option}={list(value) if isinstance(value, tuple) else value}"
        for option, value in SMALL_REWARDS[name].items()
    )
    for name in ("ngu", "e3b")
)


def explored(config: ExploreConfig) -> Explorer:
    """All of a run, in this process; nothing is written."""
    explorer = Explorer(*resolved(config), None)
    with explorer:
        explorer.train(lambda progress: None, lambda: False)
    return explorer


def test_rnd_sees_the_states_that_the_replay_holds() -> None:
    """Its networks are as wide as a state, and its whitening has the mean of the states that ended
    episodes led to; the agent still sees observations."""
    learner = explored(dataclasses.replace(SMALL, inputs="state")).learner
    replay, rewards = learner.state.replay, learner.state.rewards
    assert replay.state.shape[2] == 7 != replay.observation.shape[2]
    assert rewards.target.weights[0].shape == (2, 7, 16)
    assert learner.parameters()["weight_0"].shape[1] == replay.observation.shape[2]
    for agent in range(2):
        tail, count = learner.ledger.sampleable()[agent, :, 0]
        assert count == 320
        reached = np.asarray(replay.sampleable[agent])[tail : tail + count] + 1
        seen = np.asarray(replay.state[agent])[reached].astype(float)
        mean = np.asarray(rewards.observations.mean[agent])
        np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_e3b_sees_where_the_episode_began() -> None:
    """Its bonus counts the state of the first observation, which no transition led to."""
    config = dataclasses.replace(SMALL, reward="e3b", reward_options=E3B, inputs="state")
    learner = explored(dataclasses.replace(config, steps=80)).learner
    replay, reward = learner.state.replay, learner.reward
    # φ has not learned when the first episode ends: the bonuses are those of the first φ
    fresh = Explorer(*resolved(config), None)
    with fresh:
        model = jax.tree.map(lambda leaf: leaf[0], fresh.learner.state.rewards.inverse_model)
    features = np.asarray(model.features(replay.state[0, :41]), float)
    matrix, bonuses = reward.config.ridge * np.eye(8), []
    for before, after in itertools.pairwise(features):
        matrix += np.outer(before, before)
        bonuses.append(after @ np.linalg.solve(matrix, after))
    np.testing.assert_allclose(replay.notes["elliptical_bonus"][0, :40], bonuses, rtol=1e-3)


def test_rewards_on_states_are_what_they_were() -> None:
    """ELEMENT sees the state either way: bit for bit the same run."""
    config = dataclasses.replace(SMALL, reward="element", reward_options=())
    runs = [explored(dataclasses.replace(config, inputs=inputs)) for inputs in ("own", "state")]
    one, other = (jax.tree.leaves(run.learner.state.agents) for run in runs)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_run_on_states_is_resumed(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, inputs="state")
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    explore(config, whole)
    shorter = dataclasses.replace(config, steps=160)
    explore(shorter, parts)
    explore(config, reopen_run(config, parts.path), resume=True)
    assert_same(outcome(whole), outcome(parts))
    with pytest.raises(ValueError, match='inputs was "state" and is "own"'):
        reopen_run(SMALL, whole.path)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_pool_of_all_states_is_resumed_and_grows(scaled: bool, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, reward="re3", reward_options=(), recent_scale=scaled)
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    assert whole.config["settings"]["pool"] == "whole"
    explore(config, whole)
    explore(dataclasses.replace(config, steps=160), parts)
    explore(config, reopen_run(config, parts.path), resume=True)
    assert_same(outcome(whole), outcome(parts))
    assert whole.read_metrics()["memory_size"].max() == 320


def test_which_pool_a_run_has() -> None:
    def pool(reward: str, *options: str, **settings: object) -> str | None:
        config = ExploreConfig("PointMaze", reward, options, **settings)  # type: ignore[arg-type]
        made = resolved(config)
        assert isinstance(made.reward, WholeReplay) == (made.config.pool == "whole")
        return made.config.pool

    assert [pool("re3"), pool("rise"), pool("rnd")] == ["whole", "whole", None]
    assert pool("re3", pool="sample") == "sample"
    assert pool("re3", "pool_size=64") == "sample"
    assert pool("re3", "space=observation") == "whole"
    assert pool("rise", "space=observation") == "sample"


def test_mistakes_get_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (("--reward", "rnd", "--pool", "whole"), "--pool is of re3 and rise; rnd has none."),
        (("--reward", "random", "--inputs", "state"), "an intrinsic reward sees, and random is"),
        (("--reward", "extrinsic", "--inputs", "state"), "sees, and extrinsic is none: leave it"),
        (("--reward", "re3", "--reward-options", "pool=whole"), "an option of its own: --pool."),
        (("--reward", "element-paper", "--beta", "1"), "--beta is a setting of ELEMENT"),
        (
            ("--reward", "element-paper", "--reward-options", "lifelong_weight=1"),
            "element-paper has lifelong_weight as printed: --reward element takes others.",
        ),
        (
            ("--reward", "element-paper", "--reward-options", 'credit="state"'),
            "element-paper has credit='episode', as printed",
        ),
    ):
        assert main(["explore", "PointMaze", *arguments]) == 2
        assert sentence in capsys.readouterr().err


def test_the_printed_form_of_a_short_run() -> None:
    """Its windows are the paper's, or those asked for; checkpoints come as in other runs."""
    config, _, reward = resolved(ExploreConfig("Hopper-v5", "element-paper", steps=10_000))
    assert isinstance(reward, PrintedElementReward)
    assert (config.update_interval, config.update_steps) == (500_000, 50_000)
    assert (config.checkpoint_every, config.bandwidth, config.beta) == (1_000, 1.0, 0.5)
    assert (reward.config.estimator, reward.config.graph.restarts) == ("kde", 20)
    asked = ExploreConfig("Hopper-v5", "element-paper", steps=10_000, update_interval=2_000)
    windows = resolved(asked)[2].config.windows
    assert windows == [(2_000, 200)]


@pytest.mark.parametrize("reward", ["ngu", "re3"])
def test_a_run_from_before_goes_on_as_it_began(reward: str, tmp_path: Path) -> None:
    """Its settings say nothing of pools and statistics; it had a sample, and all of training."""
    before = {
        "ngu": {"reward_options": (*NGU, "error_statistics=all", "observation_clip=null")},
        "re3": {"reward_options": (), "pool": "sample"},
    }[reward]
    config = dataclasses.replace(SMALL, reward=reward, **before)  # type: ignore[arg-type]
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    explore(config, whole)
    explore(dataclasses.replace(config, steps=160), parts)
    older = read_json(parts.path / "config.json")
    del older["settings"]["pool"], older["settings"]["inputs"]
    older["settings"]["reward_options"] = NGU if reward == "ngu" else ()
    write_json(parts.path / "config.json", older)
    assert main(["explore", "--resume", str(parts.path), "--steps", "320", "--no-figures"]) == 0
    assert_same(outcome(whole), outcome(RunFolder.open(parts.path)))


def test_a_new_run_says_which_statistics_it_has(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, reward="ngu", reward_options=NGU)
    run = create_run(config, tmp_path / "run")
    said = ["error_statistics=recent", "observation_clip=5.0"]
    assert run.config["settings"]["reward_options"] == [*said, *NGU]
    assert reopen_run(config, run.path).path == run.path
