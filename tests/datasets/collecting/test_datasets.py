"""Datasets out of runs: what is in them can be lived through again, whoever acted."""

import json
import sys
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pandas
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file
from support.collecting import (
    CHECKPOINTS,
    SEEDS,
    collected,
    command_line,
    each_episode,
    invented_policy,
    relived,
    spec_of,
)

from element_rl.acting.actors import episode_seed
from element_rl.acting.episode import Episode
from element_rl.acting.host_policy import mean_action, policy_action
from element_rl.commands.collect import main
from element_rl.datasets import exports
from element_rl.datasets.collecting.agents import agents_of
from element_rl.datasets.minari_files import Dataset, read_recording
from element_rl.encoders.state import make_state_encoder
from element_rl.envs.make import make_env
from element_rl.evaluate.entropies import entropy_of
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run


def test_every_episode_can_be_relived(undisturbed: Dataset) -> None:
    """Hoppers fall: the run explored without that, its dataset is of the task."""
    assert undisturbed.env_options == {"max_episode_steps": 60}
    assert undisturbed.episodes.terminated.sum() > 3
    for one, entry in each_episode(undisturbed):
        relived(undisturbed, one, entry["seed"])
        assert entry["return"] == pytest.approx(one.reward.sum())
        last = int(one.lengths[0]) - 1
        assert one.terminated[last] ^ one.truncated[last]


def test_every_seed_takes_its_steps_with_every_policy(run: RunFolder, undisturbed: Dataset) -> None:
    taken = {(agent, policy): 0 for agent in (0, 1) for policy in CHECKPOINTS}
    for one, entry in each_episode(undisturbed):
        taken[entry["agent"], entry["policy"]] += int(one.lengths[0])
        assert entry["agent_seed"] == SEEDS[entry["agent"]]
    assert taken == {
        (agent, policy): 84 if policy == 700 else 83 for agent in (0, 1) for policy in CHECKPOINTS
    }


def test_the_means_of_the_policies(run: RunFolder, tmp_path: Path, undisturbed: Dataset) -> None:
    dataset = collected(run, tmp_path, deterministic=True, checkpoints=(700, 100), steps=60)
    for one, entry in each_episode(dataset):
        assert entry["policy"] in (100, 700)
        parameters = {
            name: array[entry["agent"]] for name, array in run.load_policy(entry["policy"]).items()
        }
        for row in range(int(one.lengths[0])):
            mean = mean_action(parameters, one.observation[row], np.ones(3, np.float32))
            np.testing.assert_allclose(one.action[row], mean, atol=1e-6)
            np.testing.assert_array_equal(
                mean, policy_action(parameters, one.observation[row], np.zeros(3, np.float32))
            )


def test_the_entropy_is_that_of_the_evaluation(run: RunFolder, undisturbed: Dataset) -> None:
    spec = spec_of(undisturbed)
    encoders = [
        make_state_encoder(seed, spec.observation_dim, spec.orientation_slice) for seed in SEEDS
    ]
    for one, entry in list(each_episode(undisturbed))[:6]:
        episode = Episode(one.observation, one.position, one.action, 0.0)
        expected = entropy_of(encoders[entry["agent"]], episode, spec.max_episode_steps)
        assert entry["entropy"] == pytest.approx(expected, abs=1e-4)


def test_minari_and_its_environment(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ours = collected(run, tmp_path, steps=90)
    dataset = minari.load_dataset("hopper/test-v0")
    assert dataset.total_steps == 180
    assert dataset.recover_environment().spec.max_episode_steps == 60
    assert all(
        dataset.observation_space.contains(row)
        for episode in dataset
        for row in episode.observations
    )
    assert all(dataset.action_space.contains(row) for episode in dataset for row in episode.actions)
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "element"
    assert metadata["element_rl"]["collect"]["checkpoints"] == list(CHECKPOINTS)
    assert metadata["element_rl"]["run"]["settings"]["seeds"] == 2
    assert str(run.path) not in json.dumps({name: str(value) for name, value in metadata.items()})
    assert len(list(dataset.iterate_episodes())) == len(ours.episodes.lengths)


@pytest.mark.parametrize("export", ["npz", "safetensors"])
def test_plain_export(
    run: RunFolder, undisturbed: Dataset, tmp_path: Path, export: str, capsys: Any
) -> None:
    arguments = command_line(run, tmp_path, workers=0)
    assert main([*arguments, "--export", export]) == 0
    path = tmp_path / "hopper" / f"test-v0.{export}"
    assert f"Export: {path}" in capsys.readouterr().out
    arrays = dict(np.load(path, allow_pickle=False)) if export == "npz" else load_file(path)
    episodes, steps = undisturbed.episodes, undisturbed.episodes.transitions
    assert episodes.position is not None
    for name, expected in {
        "observations": episodes.observation[steps],
        "next_observations": episodes.observation[steps + 1],
        "actions": episodes.action[steps],
        "rewards": episodes.reward[steps],
        "terminals": episodes.terminated[steps],
        "timeouts": episodes.truncated[steps],
        "positions": episodes.position[steps],
        "next_positions": episodes.position[steps + 1],
        "episode": np.repeat(np.arange(len(episodes.lengths)), episodes.lengths),
    }.items():
        np.testing.assert_array_equal(arrays[name], expected)
    if export == "npz":
        assert len(json.loads(str(arrays["metadata"]))["episodes"]) == len(episodes.lengths)


@pytest.mark.parametrize("values_at_once", [1 << 24, 100])
def test_pandas_reads_parquet(
    run: RunFolder,
    undisturbed: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values_at_once: int,
) -> None:
    """One row per step; numbers keep their types, and vectors are lists of numbers. In one group of
    rows, and in many."""
    monkeypatch.setattr(exports, "VALUES_AT_ONCE", values_at_once)
    arguments = command_line(run, tmp_path, workers=0)
    assert main([*arguments, "--export", "parquet"]) == 0
    path = tmp_path / "hopper" / "test-v0.parquet"
    table = pandas.read_parquet(path)
    arrays = exports.flat_arrays(read_recording(tmp_path / "hopper" / "test-v0").episodes)
    assert list(table.columns) == list(arrays)
    assert len(table) == len(undisturbed.episodes.transitions)
    for name, expected in arrays.items():
        rows = np.stack(table[name].to_list()) if expected.ndim > 1 else table[name].to_numpy()
        assert rows.dtype == expected.dtype
        np.testing.assert_array_equal(rows, expected)
    assert table.groupby("episode").size().tolist() == undisturbed.episodes.lengths.tolist()
    told = pyarrow.parquet.read_schema(path).metadata
    assert json.loads(told[b"shapes"])["observations"] == [11]
    assert len(json.loads(told[b"metadata"])["episodes"]) == len(undisturbed.episodes.lengths)


def test_parquet_without_pyarrow_is_refused_before_anything_acts(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"need pyarrow: pip install 'element-rl\[parquet\]'"):
        collected(run, tmp_path, export="parquet")
    assert not list(tmp_path.iterdir())


def test_images_and_choices_in_parquet(tmp_path: Path) -> None:
    """An image is one list, whose shape is told beside it; a choice is a number."""
    arrays = {
        "observations": np.arange(24, dtype=np.uint8).reshape(3, 4, 2),
        "actions": np.array([2, 0, 1]),
    }
    exports._write_parquet(
        tmp_path / "a.parquet", arrays | {"episode": np.zeros(3, np.int64)}, "{}"
    )
    table = pandas.read_parquet(tmp_path / "a.parquet")
    np.testing.assert_array_equal(
        np.stack(table["observations"].to_list()).reshape(3, 4, 2), arrays["observations"]
    )
    assert table["observations"][0].dtype == np.uint8
    assert table["actions"].tolist() == [2, 0, 1]


def test_falling(run: RunFolder) -> None:
    """Explorers train without its ending an episode, which is not passed on to a dataset unless
    asked for."""
    assert "terminate_when_unhealthy=false" in run.config["settings"]["env_options"]
    assert dict(agents_of(run, (), of_the_task=True).env_options) == {"max_episode_steps": 60}
    asked = agents_of(run, ("terminate_when_unhealthy=false",), of_the_task=True)
    assert asked.env_options["terminate_when_unhealthy"] is False
    assert agents_of(run, (), of_the_task=False).env_options["terminate_when_unhealthy"] is False


def test_a_random_run_acts_at_random(tmp_path: Path) -> None:
    run = create_run(
        ExploreConfig("PointMaze", reward="random", steps=100, seeds=2), tmp_path / "run"
    )
    run.save_checkpoint(100, invented_policy(0, 2, 2), None, {"nothing": np.zeros(1)}, {})
    dataset = collected(run, tmp_path, dataset="maze/random-v0", steps=600)
    actions = dataset.episodes.action[dataset.episodes.transitions]
    assert np.abs(actions.mean()) < 0.05
    assert np.abs(actions.std() - 1 / np.sqrt(3)) < 0.03


def test_policies_of_td3_fit_too(run: RunFolder) -> None:
    """Their last layer gives actions alone, without deviations."""
    policy = run.load_policy(run.checkpoint_steps()[0])
    last = len(policy) // 2 - 1
    narrow = {name: policy[name][..., :3] for name in (f"weight_{last}", f"bias_{last}")}
    noise = {"exploration_noise": np.full(len(SEEDS), 0.1, np.float32)}
    agents = agents_of(run, (), of_the_task=True)
    agents.refuse_policy(policy | narrow | noise)
    with pytest.raises(ValueError, match="act with 1, but Hopper-v5"):
        agents.refuse_policy(policy | narrow)


def test_the_replay_of_a_run(tmp_path: Path) -> None:
    """A ring that has come round twice: the newest complete episodes; each can be relived."""
    options = ("max_episode_steps=40", "terminate_when_unhealthy=true")
    config = ExploreConfig(
        "Hopper-v5",
        reward="random",
        steps=600,
        seeds=2,
        seed=3,
        random_seeds=0,
        workers=0,
        env_options=options,
    )
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    dataset = collected(run, tmp_path, from_replay=True, steps=None)
    stored = run.load_resume()[0]
    lengths = [stored[f"ledger/lengths_{agent}"].tolist() for agent in (0, 1)]
    assert dataset.episodes.lengths.tolist() == lengths[0] + lengths[1]
    assert dataset.env_options == {"max_episode_steps": 40, "terminate_when_unhealthy": True}
    for agent in (0, 1):
        last = int(stored["counters/episode_index"][agent])  # the one that was running
        mine = [e for e, entry in enumerate(dataset.episodes.metadata) if entry["agent"] == agent]
        for back, number in enumerate(reversed(mine), start=1):
            one = dataset.episodes.chosen([number])
            relived(dataset, one, episode_seed(3 + agent, last - back))
            assert "policy" not in one.metadata[0]
    few = collected(run, tmp_path, from_replay=True, steps=100, dataset="hopper/few-v0")
    assert (
        80
        < few.episodes.lengths[[entry["agent"] == 1 for entry in few.episodes.metadata]].sum()
        <= 100
    )


def test_positions_of_calibrated_states_are_the_environments(tmp_path: Path) -> None:
    """The replay has them in the units of the states; a dataset in metres."""
    config = ExploreConfig(
        "HalfCheetah-v5",
        reward="random",
        steps=200,
        seed=3,
        random_seeds=0,
        workers=0,
        env_options=("max_episode_steps=50",),
        state_units="calibrated",
    )
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    dataset = collected(run, tmp_path, from_replay=True, steps=None)
    one = dataset.episodes.chosen([0])
    running = int(run.load_resume()[0]["counters/episode_index"][0])
    env = make_env("HalfCheetah-v5", max_episode_steps=50)
    env.reset(seed=episode_seed(3, running - len(dataset.episodes.lengths)))
    found = [env.step(one.action[step])[-1]["x_position"] for step in range(50)]
    np.testing.assert_allclose(one.position[1:, 0], found, rtol=1e-5)


def test_policies_that_are_told_their_place_act_with_it(tmp_path: Path) -> None:
    """A dataset has the environment's own observations all the same."""
    config = ExploreConfig("Hopper-v5", seeds=2, steps=1_000, tell_position="both")
    run = create_run(config, tmp_path / "run")
    place = {"place_centre": np.zeros((2, 2)), "place_unit": np.array([[25.0, 1.25]] * 2)}
    policy = invented_policy(0, 13, 3) | {
        name: array.astype(np.float32) for name, array in place.items()
    }
    run.save_checkpoint(1_000, policy, None, {"nothing": np.zeros(1)}, {})
    dataset = collected(run, tmp_path, steps=60, deterministic=True, checkpoints=(1_000,))
    for one, entry in each_episode(dataset):
        parameters = {name: array[entry["agent"]] for name, array in policy.items()}
        assert one.observation.shape[1] == 11
        for row in range(int(one.lengths[0])):
            seen = np.append(one.observation[row], one.position[row] / (25.0, 1.25))
            mean = mean_action(parameters, seen, np.ones(3, np.float32))
            np.testing.assert_allclose(one.action[row], mean, atol=1e-6)
