"""Runs whose agents are told a latent: it reaches policy, critics and reward, and nothing else."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.cli import main
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer, explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved

METRA = ExploreConfig(
    "PointMaze-v0",
    "metra",
    ("encoder_sizes=[16]", "warm_up=40"),
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
    td3=TD3Config(hidden_sizes=(16,), batch_size=16, learn_start=80),
)


def explored(config: ExploreConfig) -> Explorer:
    explorer = Explorer(*resolved(config), None)
    with explorer:
        explorer.train(lambda progress: None, lambda: False)
    return explorer


def test_the_reward_says_what_the_environment_tells() -> None:
    config, spec, _ = resolved(METRA)
    assert config.env_options == ("max_episode_steps=40", "latent=sphere:2")
    assert (spec.observation_dim, spec.latent_dim) == (4, 2)
    assert resolved(config).config == config
    skills = ("latent_kind=choice", "latent_dim=4")
    assert resolved(dataclasses.replace(METRA, reward_options=skills)).spec.observation_dim == 6
    assert (
        resolved(dataclasses.replace(METRA, reward="rnd", reward_options=())).spec.latent_dim == 0
    )


@pytest.mark.parametrize("inputs", ["own", "state"])
def test_who_sees_it(inputs) -> None:
    """The policy is as wide as the task's observation and z, and so is what the reward reads z
    from; states are those of a run without."""
    config = dataclasses.replace(METRA, steps=120, inputs=inputs)
    learner = explored(config).learner
    replay, metra = learner.state.replay, learner.state.rewards
    assert learner.parameters()["weight_0"].shape[1] == 4
    assert metra.encoder.weights[0].shape[1] == (2 if inputs == "own" else 7)
    latent = np.asarray(replay.observation)[
        :, :123, 2:
    ]  # three episodes, each with its last record
    np.testing.assert_allclose(np.linalg.norm(latent, axis=-1), 1.0, rtol=1e-6)
    assert len(np.unique(latent.reshape(-1, 2), axis=0)) == 6
    # random actions, before anybody has learned: the first two episodes
    plain = explored(dataclasses.replace(config, steps=80, reward="rise", reward_options=()))
    states = (run.state.replay.state[:, :82] for run in (learner, plain.learner))
    np.testing.assert_array_equal(*states)


def test_a_run_is_resumed(tmp_path: Path) -> None:
    """Bit for bit, in the middle of episodes, with all that may stand beside a latent."""
    config = dataclasses.replace(
        METRA,
        state_units="calibrated",
        env_options=("max_episode_steps=33",),
        envs_per_agent=2,
        tell_position="both",
        falls="reset",
        inputs="state",
        agent="td3",
    )
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    explore(config, whole)
    explore(dataclasses.replace(config, steps=160), parts)
    explore(config, reopen_run(config, parts.path), resume=True)
    assert_same(outcome(whole), outcome(parts))


def test_mistakes_get_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (("PointMaze", "--reward", "rle", "--env-options", "latent=sphere:2"), "which is sphere:8"),
        (("PointMaze", "--reward", "rnd", "--env-options", "latent=ball"), "such as sphere:2"),
    ):
        assert main(["explore", *arguments]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["on-policy", "Rooms-v0", "--reward", "metra", "--steps", "100"]) == 2
    assert "frames cannot carry one: it is for vectors" in capsys.readouterr().err
