"""Datasets out of on-policy runs: frames without loss, episodes that can be lived through again, no
interruption that shows."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from support.collecting import CODE, assert_same, each_episode, wait_for_a_part
from support.small_rooms import trained_rooms

from element_rl.acting.host_a3c import forward
from element_rl.agents.a3c import A3CConfig
from element_rl.commands.collect import main
from element_rl.datasets.collecting import CollectConfig, collect, rollouts
from element_rl.datasets.minari_files import Dataset, known_datasets, read_dataset
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.envs.make import make_env
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import create_run
from element_rl.training.on_policy.measures import episode_entropy
from element_rl.training.on_policy.training import train

OPTIONS = {"goal_distance": 8, "max_episode_steps": 25}
SEEDS = (4, 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two agents with a tiny network, and two checkpoints."""
    return trained_rooms(tmp_path_factory.mktemp("runs") / "rooms", SEEDS[0], 60, OPTIONS)


def collected(run: RunFolder, out: Path, **changes: Any) -> Dataset:
    settings: dict[str, Any] = {
        "steps": 121,
        "dataset": "rooms/test-v0",
        "workers": 0,
        "out": out,
    } | changes
    return read_dataset(collect(CollectConfig(run.path, **settings)))


@pytest.fixture(scope="module")
def undisturbed(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(run, tmp_path_factory.mktemp("undisturbed"))


def relived(env: gymnasium.Env, one: Any, seed: int) -> None:
    """Resets the environment with the episode's seed and takes its actions: everything must come
    out again."""
    frame, info = env.reset(seed=seed)
    last = int(one.lengths[0]) - 1
    for step in range(last + 1):
        np.testing.assert_array_equal(frame, one.observation[step])
        np.testing.assert_array_equal(info["position"], one.position[step])
        frame, reward, terminated, truncated, info = env.step(int(one.action[step]))
        assert (reward, terminated) == (one.reward[step], one.terminated[step])
        assert one.truncated[step] == truncated or step == last  # or the recording stopped
    np.testing.assert_array_equal(frame, one.observation[-1])
    np.testing.assert_array_equal(info["position"], one.position[-1])


def test_every_episode_can_be_relived(undisturbed: Dataset) -> None:
    assert undisturbed.env == "Rooms-v0"
    assert undisturbed.env_options == {"goal_distance": 8, "max_episode_steps": 25}
    assert undisturbed.episodes.observation.dtype == np.uint8
    env = make_env("Rooms-v0", **undisturbed.env_options)
    for one, entry in each_episode(undisturbed):
        relived(env, one, entry["seed"])
        last = int(one.lengths[0]) - 1
        assert one.terminated[last] ^ one.truncated[last]
        assert entry["return"] == one.reward.sum()
    assert len({entry["seed"] for entry in undisturbed.episodes.metadata}) == len(
        undisturbed.episodes.lengths
    )


def test_every_seed_takes_its_steps_with_every_policy(run: RunFolder, undisturbed: Dataset) -> None:
    assert run.checkpoint_steps() == [30, 60]
    taken = {(agent, policy): 0 for agent in (0, 1) for policy in (30, 60)}
    for one, entry in each_episode(undisturbed):
        taken[entry["agent"], entry["policy"]] += int(one.lengths[0])
        assert entry["agent_seed"] == SEEDS[entry["agent"]]
    assert taken == {(0, 30): 60, (1, 30): 60, (0, 60): 61, (1, 60): 61}


def test_the_entropy_is_that_of_the_runs_encoder(run: RunFolder, undisturbed: Dataset) -> None:
    encoder = load_encoder(run.path / "encoder")
    for one, entry in list(each_episode(undisturbed))[:3]:
        assert entry["entropy"] == pytest.approx(
            episode_entropy(encode_all(encoder, one.observation[1:])), abs=1e-4
        )


def test_the_likeliest_actions(run: RunFolder, tmp_path: Path) -> None:
    dataset = collected(
        run, tmp_path, deterministic=True, checkpoints=(60,), steps=30, entropy=False
    )
    for one, entry in each_episode(dataset):
        assert "entropy" not in entry
        parameters = {name: array[entry["agent"]] for name, array in run.load_policy(60).items()}
        lstm = np.zeros((2, 8), np.float32)
        for row in range(int(one.lengths[0])):
            probabilities, _, lstm = forward(parameters, one.observation[row], lstm)
            assert one.action[row] == np.argmax(probabilities)


def test_minari_and_its_environment(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ours = collected(run, tmp_path, steps=40)
    dataset = minari.load_dataset("rooms/test-v0")
    assert dataset.total_steps == 80
    env = dataset.recover_environment()
    assert env.spec.max_episode_steps == 25
    assert env.observation_space == dataset.observation_space
    assert env.action_space == dataset.action_space
    for episode, (one, entry) in zip(dataset.iterate_episodes(), each_episode(ours), strict=True):
        assert all(dataset.observation_space.contains(frame) for frame in episode.observations)
        assert all(dataset.action_space.contains(action) for action in episode.actions)
        np.testing.assert_array_equal(episode.observations, one.observation)
        np.testing.assert_array_equal(episode.infos["position"], one.position)
        relived(env, one, entry["seed"])
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "extrinsic"
    assert metadata["element_rl"]["collect"]["checkpoints"] == [30, 60]
    assert str(run.path) not in json.dumps({name: str(value) for name, value in metadata.items()})


@pytest.mark.parametrize("part_steps", [1, 40])
def test_stopped_and_continued(
    run: RunFolder,
    undisturbed: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part_steps: int,
) -> None:
    """Stopped again and again; parts of any size."""
    monkeypatch.setattr(rollouts, "PART_STEPS", part_steps)
    config = CollectConfig(run.path, "rooms/test-v0", steps=121, workers=0, out=tmp_path)
    reached: list[int] = []
    while True:
        try:
            stopped = read_dataset(collect(config, stop=after(9)))
            break
        except Interrupted as interrupted:
            reached.append(interrupted.step)
            assert known_datasets(tmp_path) == []
    assert len(reached) > 2
    assert reached == sorted(reached)
    assert_same(undisturbed, stopped)


def after(rollouts: int) -> Callable[[], bool]:
    calls: Iterator[int] = iter(range(rollouts))
    return lambda: next(calls, None) is None


def test_killed_and_continued(run: RunFolder, undisturbed: Dataset, tmp_path: Path) -> None:
    """A process per agent this time: the order in which they come must not show."""
    arguments = [
        str(run.path),
        "--steps",
        "121",
        "--dataset",
        "rooms/test-v0",
        "--out",
        str(tmp_path),
    ]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments], env=environment, stderr=subprocess.PIPE
    )
    parts = tmp_path / "rooms" / ".test-v0.parts"
    wait_for_a_part(process, parts)
    process.kill()
    process.communicate()
    if known_datasets(tmp_path) == []:
        assert main(arguments) == 0
    assert_same(undisturbed, read_dataset("rooms/test-v0", tmp_path))
    assert not parts.exists()


def test_a_random_run_acts_at_random(run: RunFolder, tmp_path: Path) -> None:
    tiny = A3CConfig(channels=(2, 2), hidden_size=8)
    config = OnPolicyConfig(
        "Rooms-v0", "random", steps=50, seeds=2, workers=0, random_seeds=0, state_dim=3, a3c=tiny
    )
    random = create_run(config, tmp_path / "run")
    train(config, random)
    dataset = collected(random, tmp_path, steps=1000, entropy=False)
    counts = np.bincount(dataset.episodes.action[dataset.episodes.transitions], minlength=5)
    assert (np.abs(counts - 400) < 80).all()


def test_sentences(run: RunFolder, tmp_path: Path) -> None:
    def said(**changes: Any) -> str:
        with pytest.raises(ValueError, match=r"\.$") as raised:
            collected(run, tmp_path, **changes)
        return str(raised.value)

    assert "is on-policy and keeps no replay: collect without --from-replay" in said(
        from_replay=True
    )
    assert "has no checkpoint of step 3" in said(checkpoints=(3,))
    assert "at least 1 for each of the 2 checkpoints" in said(steps=1)
    assert "Say with --steps" in said(steps=None)
    assert "goal_distance must be from 3" in said(env_options=("goal_distance=1",))
    assert not list(tmp_path.glob("rooms/*"))
    assert not list(tmp_path.glob("rooms/.*"))
