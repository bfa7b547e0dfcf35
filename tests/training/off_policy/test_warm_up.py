"""Runs with calibrated states: their warm-up is stored with them, and old runs stay raw."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.acting.episode import Episode
from element_rl.agents.sac import SACConfig
from element_rl.encoders.state import make_state_encoder
from element_rl.evaluate.entropies import entropy_measure, entropy_of
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_json, write_json
from element_rl.training.off_policy.collecting import usual_collector
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved
from element_rl.training.off_policy.warm_up import WARM_UP, act_at_random, stored_warm_up

CAR = ExploreConfig(
    "MountainCarContinuous-v0",
    steps=400,
    seeds=2,
    replay_size=1_000,
    chunk_steps=40,
    log_every=100,
    checkpoint_every=200,
    random_seeds=0,
    workers=0,
    env_options=("max_episode_steps=50",),
    sac=SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=100),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(CAR, tmp_path_factory.mktemp("calibrated") / "run")
    explore(CAR, run)
    return run


@pytest.mark.parametrize(
    ("env", "units"),
    [
        ("Hopper-v5", "raw"),
        ("Walker2d-v4", "raw"),
        ("Ant", "raw"),
        ("PointMaze", "raw"),
        ("Humanoid-v5", "calibrated"),
        ("Humanoid-v4", "calibrated"),
        ("HalfCheetah-v5", "calibrated"),
        ("Pendulum-v1", "calibrated"),
    ],
)
def test_where_states_are_calibrated_unless_said(env: str, units: str) -> None:
    assert resolved(ExploreConfig(env)).config.state_units == units
    for asked in ("raw", "calibrated"):
        assert resolved(ExploreConfig(env, state_units=asked)).config.state_units == asked


def test_the_warm_up_is_stored_and_every_state_is_in_its_units(finished: RunFolder) -> None:
    assert read_json(finished.path / "config.json")["settings"]["state_units"] == "calibrated"
    warm_up = stored_warm_up(finished)
    assert warm_up is not None
    assert warm_up.observation.shape[1] == 2
    assert 1_000 <= len(warm_up.observation) < 1_100
    settings = resolved(CAR)
    fresh = act_at_random(settings.config, settings.spec, usual_collector)
    for stored, again in zip(warm_up, fresh, strict=True):
        np.testing.assert_array_equal(stored, again)
    with Explorer(*settings, reopen_run(CAR, finished.path)) as explorer:
        explorer.restore()
        replay = explorer.learner.state.replay
    for agent, seed in enumerate((0, 1)):
        encoder = make_state_encoder(seed, 2, warm_up=warm_up)
        observations = jnp.asarray(replay.observation[agent, :100])
        expected = jax.vmap(encoder)(observations, observations)  # two numbers are a position
        np.testing.assert_allclose(replay.state[agent, :100], expected, rtol=1e-5, atol=1e-5)


def test_interrupted_and_resumed(finished: RunFolder, tmp_path: Path) -> None:
    run = create_run(CAR, tmp_path / "run")
    asked = iter([False] * 3 + [True] * 100)
    with pytest.raises(Interrupted):
        explore(CAR, run, stop=lambda: next(asked))
    explore(CAR, reopen_run(CAR, run.path), resume=True)
    assert_same(outcome(finished), outcome(run))


def test_the_units_are_the_stored_ones(finished: RunFolder, tmp_path: Path) -> None:
    """What is evaluated is measured as the run's agents see it, also where acting at random would
    now lead elsewhere."""
    other = dataclasses.replace(CAR, state_units="raw")
    raw = create_run(other, tmp_path / "raw")
    explore(other, raw)
    assert not (raw.path / WARM_UP).exists()
    spec = resolved(CAR).spec
    episode = Episode(
        np.random.default_rng(0).normal(size=(40, 2)), np.zeros((40, 0)), np.zeros(0), 0.0
    )
    for run in (finished, raw):
        encoder = make_state_encoder(1, 2, warm_up=stored_warm_up(run))
        expected = entropy_of(encoder, episode, spec.max_episode_steps)
        assert entropy_measure(run, spec, seed=0)(1, episode) == expected
    raw_entropy, entropy = (entropy_measure(run, spec, 0)(1, episode) for run in (raw, finished))
    assert entropy != raw_entropy


def test_a_run_from_before_stays_raw(tmp_path: Path) -> None:
    """Its settings say nothing of units."""
    raw = dataclasses.replace(CAR, state_units="raw")
    whole, old = create_run(raw, tmp_path / "whole"), create_run(raw, tmp_path / "old")
    explore(raw, whole)
    asked = iter([False] * 3 + [True] * 100)
    with pytest.raises(Interrupted):
        explore(raw, old, stop=lambda: next(asked))
    config = read_json(old.path / "config.json")
    del config["settings"]["state_units"]
    write_json(old.path / "config.json", config)
    explore(CAR, reopen_run(CAR, old.path), resume=True)
    assert not (old.path / WARM_UP).exists()
    assert_same(outcome(whole), outcome(old))
