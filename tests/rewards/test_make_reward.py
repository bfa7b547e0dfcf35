"""Rewards by name and by file."""

from pathlib import Path

import jax
import numpy as np
import pytest
from support.by_hand import init, observe, padded_episode, reward_of, transitions, update
from support.small_rewards import SMALL_REWARDS

from element_rl.cli import main
from element_rl.replay.ring import Transitions
from element_rl.rewards import (
    NAMES,
    Reward,
    RewardSpec,
    make_replay_reward,
    make_reward,
)
from element_rl.rewards.making import said

OWN = Path(__file__).parents[2] / "examples" / "own_reward.py"
SMALL = SMALL_REWARDS | {"element": {"memory": "exact"}}
SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=7, max_episode_steps=6, total_steps=100
)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_a_reward_that_keeps_the_interface(name: str) -> None:
    reward = make_reward(name, **SMALL.get(name, {}))
    assert isinstance(reward, Reward)
    assert reward.name == name
    state = init(reward, jax.random.key(0), SPEC)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    numbers = np.random.default_rng(0).normal(size=(6, 12))
    episode = padded_episode(
        6,
        4,
        observation=numbers[:, :3],
        action=np.tanh(numbers[:, 3:5]),
        next_observation=numbers[:, 5:8],
        extrinsic_reward=numbers[:, 8],
        state=numbers[:, 5:],
    )
    state, notes = observe(reward, state, episode)
    assert {key: value.shape for key, value in notes.items()} == {
        key: (6, *shape) for key, shape in reward.note_shapes().items()
    }
    batch = Transitions(*episode[:6], notes)
    state, metrics = update(reward, state, batch, jax.random.key(1))
    assert set(metrics) == set(reward.metric_names)
    given = reward_of(reward, state, batch)
    assert given.shape == (6,)
    assert np.isfinite(np.asarray(given)).all()
    assert set(jax.eval_shape(reward.reward_terms, state, batch)) <= {
        "reward_episodic",
        "reward_lifelong",
    }


def test_every_reward_has_settings_for_tests() -> None:
    assert {*SMALL_REWARDS, "element", "extrinsic"} == {*NAMES}


def test_a_reward_for_a_replay_fits_its_run() -> None:
    """Windows of a tenth of the run, the memory that suits it, and the paper's settings for a
    robot."""
    hopper = make_replay_reward("element", env="Hopper-v5", total_steps=10_000).config
    assert (hopper.estimator, hopper.bandwidth, hopper.credit) == ("kde", 0.1, "state")
    assert (hopper.update_interval, hopper.update_steps, hopper.memory) == (1_000, 100, "exact")
    growing = make_replay_reward("element", options={"memory": "graph"}).config
    assert (growing.first_interval, growing.memory) == (1_000, "graph")
    assert make_replay_reward("rnd", recent_scale=True).inner == make_reward("rnd")
    with pytest.raises(ValueError, match="recent_scale is for other rewards than element"):
        make_replay_reward("element", recent_scale=True)


def test_what_older_folders_do_not_say_is_as_it_was() -> None:
    """A new one writes its choice down; one that was read without it has the form of before."""
    new = said("ngu", {"learning_rate": 1e-3})
    recent = {"error_statistics": "recent", "observation_clip": 5.0}
    assert new == recent | {"learning_rate": 1e-3}
    assert said("ngu", new, older=True) == new
    before = {"error_statistics": "all", "observation_clip": None}
    assert said("ngu", None, older=True) == before
    assert said("rnd", None) == said("rnd", {}, older=True) == {}
    config = make_reward("ngu").config
    assert {name: getattr(config, name) for name in recent} == recent


def test_own_reward_by_hand() -> None:
    reward = make_reward(f"{OWN}:make", cells=2)
    state = reward.init(jax.random.key(0), SPEC)
    places = np.zeros((6, 7), np.float32)
    places[:, 5:7] = [(1, 1), (2, 2), (1, 9), (4, 4), (9, 9), (9, 9)]  # the last two are padding
    state, _ = observe(reward, state, padded_episode(6, 4, state=places))
    batch = transitions(6, state=places)
    expected = [3**-0.5, 3**-0.5, 1, 3**-0.5, 1, 1]
    assert np.asarray(reward_of(reward, state, batch)) == pytest.approx(expected)


def test_training_with_an_own_reward(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--steps",
        "1280",
        "--log-every",
        "640",
        "--random-seeds",
        "0",
        "--no-figures",
        "--workers",
        "0",
    ]
    options += [
        "--sac.learn-start",
        "64",
        "--sac.batch-size",
        "16",
        "--sac.hidden-sizes",
        "16",
        "--out",
        str(out),
    ]
    assert (
        main(
            [
                "explore",
                "PointMaze",
                "--reward",
                f"{OWN}:make",
                "--reward-options",
                "cells=10",
                *options,
            ]
        )
        == 0
    )
    assert (out / "summary.json").exists()


def test_mistakes_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"no file nowhere\.py"):
        make_reward("nowhere.py:make")
    broken = tmp_path / "broken.py"
    broken.write_text("def make():\n    return 3\n\ndef fails():\n    raise KeyError('colour')\n")
    with pytest.raises(
        ValueError, match="returned is no reward: it has no init, metric_names, name"
    ):
        make_reward(f"{broken}:make")
    with pytest.raises(ValueError, match="could not be made: KeyError: 'colour'"):
        make_reward(f"{broken}:fails")
    with pytest.raises(ValueError, match="could not be made: AttributeError"):
        make_reward(f"{broken}:absent")
    with pytest.raises(ValueError, match="rnd does not take these options: colour"):
        make_reward("rnd", colour="red")
    assert main(["explore", "PointMaze", "--reward", "curiosity"]) == 2
    assert (
        "no reward called 'curiosity'; choose one of element, element-paper"
        in capsys.readouterr().err
    )
    assert main(["explore", "PointMaze", "--reward", "rnd", "--reward-options", "colour"]) == 2
    assert "--reward-options takes NAME=VALUE pairs" in capsys.readouterr().err
    assert main(["explore", "PointMaze", "--reward-options", "a=1"]) == 2
    assert main(["explore", "PointMaze", "--recent-scale"]) == 2
    assert "--recent-scale is for other rewards than element" in capsys.readouterr().err
