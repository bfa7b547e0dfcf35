"""Datasets out of runs: what is in them can be lived through again, and no interruption shows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from safetensors.numpy import load_file

from element_rl.agents.host_policy import squashed_gaussian_action
from element_rl.collect import CollectConfig, collect
from element_rl.collect import parts as collect_parts
from element_rl.collect.command import main
from element_rl.collect.parts import divide, mean_action
from element_rl.collect.source import shares_of, source_of
from element_rl.config import ExploreConfig
from element_rl.datasets.minari_files import Dataset, known_datasets, read_dataset
from element_rl.envs.actors import episode_seed
from element_rl.envs.robots import describe, make_env, position_of
from element_rl.evaluate import _entropy_measure
from element_rl.explore import Interrupted, explore
from element_rl.files import locked
from element_rl.launch import create_run
from element_rl.runs import RunFolder

CHECKPOINTS = (100, 250, 700)
SEEDS = (4, 5)
CODE = "import sys; from element_rl.collect.command import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of two agents with three checkpoints of invented policies."""
    options = ("max_episode_steps=60",)
    every = {"checkpoint_every": 50, "chunk_steps": 10}
    config = ExploreConfig("Hopper-v5", seed=SEEDS[0], seeds=2, env_options=options, steps=1000, **every)
    run = create_run(config, tmp_path_factory.mktemp("runs") / "hopper")
    for checkpoint in CHECKPOINTS:
        run.save_checkpoint(checkpoint, invented_policy(checkpoint, 11, 3), None, {"nothing": np.zeros(1)}, {})
    return run


def invented_policy(seed: int, observation_dim: int, action_dim: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    sizes = (observation_dim, 8, 2 * action_dim)
    shapes = {f"weight_{i}": (2, *sizes[i : i + 2]) for i in range(2)} | {
        f"bias_{i}": (2, sizes[i + 1]) for i in range(2)
    }
    return {name: generator.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()}


def collected(run: RunFolder, out: Path, **changes: Any) -> Dataset:
    settings: dict[str, Any] = {"steps": 250, "dataset": "hopper/test-v0", "workers": 0, "out": out} | changes
    return read_dataset(collect(CollectConfig(run.path, **settings)))


def command_line(run: RunFolder, root: Path, workers: int) -> list[str]:
    """The arguments that make the dataset `undisturbed`."""
    settings = {"--steps": "250", "--dataset": "hopper/test-v0", "--out": str(root), "--workers": str(workers)}
    return [str(run.path), *(text for pair in settings.items() for text in pair)]


@pytest.fixture(scope="module")
def undisturbed(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(run, tmp_path_factory.mktemp("undisturbed"))


def assert_same(ours: Dataset, theirs: Dataset) -> None:
    for name in ("observation", "action", "reward", "terminated", "truncated", "position", "lengths"):
        np.testing.assert_array_equal(getattr(ours.episodes, name), getattr(theirs.episodes, name), err_msg=name)
    assert ours.episodes.metadata == theirs.episodes.metadata


def each_episode(dataset: Dataset) -> Iterator[tuple[Any, Any]]:
    for number in range(len(dataset.episodes.lengths)):
        one = dataset.episodes.chosen([number])
        yield one, one.metadata[0]


def relived(dataset: Dataset, one: Any, seed: int) -> None:
    """Resets an environment with the episode's seed and takes its actions: everything must come out again."""
    assert dataset.env is not None
    env = make_env(dataset.env, **dataset.env_options)
    spec = spec_of(dataset)
    observation, info = env.reset(seed=seed)
    for step in range(int(one.lengths[0])):
        np.testing.assert_array_equal(observation.astype(np.float32), one.observation[step])
        np.testing.assert_array_equal(position_of(spec, observation, info, env), one.position[step])
        observation, reward, terminated, truncated, info = env.step(one.action[step])
        assert (np.float32(reward), terminated) == (one.reward[step], one.terminated[step])
        assert one.truncated[step] == truncated or step == one.lengths[0] - 1
    np.testing.assert_array_equal(observation.astype(np.float32), one.observation[-1])
    np.testing.assert_array_equal(position_of(spec, observation, info, env), one.position[-1])


def spec_of(dataset: Dataset) -> Any:
    return describe(str(dataset.env), **dataset.env_options)


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
    assert taken == {(agent, policy): 84 if policy == 700 else 83 for agent in (0, 1) for policy in CHECKPOINTS}


def test_the_means_of_the_policies(run: RunFolder, tmp_path: Path, undisturbed: Dataset) -> None:
    dataset = collected(run, tmp_path, deterministic=True, checkpoints=(700, 100), steps=60)
    for one, entry in each_episode(dataset):
        assert entry["policy"] in (100, 700)
        parameters = {name: array[entry["agent"]] for name, array in run.load_policy(entry["policy"]).items()}
        for row in range(int(one.lengths[0])):
            mean = mean_action(parameters, one.observation[row], np.ones(3, np.float32))
            np.testing.assert_allclose(one.action[row], mean, atol=1e-6)
            np.testing.assert_array_equal(
                mean, squashed_gaussian_action(parameters, one.observation[row], np.zeros(3, np.float32))
            )


def test_the_entropy_is_that_of_the_evaluation(run: RunFolder, undisturbed: Dataset) -> None:
    spec = spec_of(undisturbed)
    measures = [_entropy_measure(seed, spec) for seed in SEEDS]
    for one, entry in list(each_episode(undisturbed))[:6]:
        assert entry["entropy"] == pytest.approx(
            measures[entry["agent"]](one.observation[1:], one.position[1:]), abs=1e-4
        )


def test_minari_and_its_environment(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ours = collected(run, tmp_path, steps=90)
    dataset = minari.load_dataset("hopper/test-v0")
    assert dataset.total_steps == 180
    assert dataset.recover_environment().spec.max_episode_steps == 60
    assert all(dataset.observation_space.contains(row) for episode in dataset for row in episode.observations)
    assert all(dataset.action_space.contains(row) for episode in dataset for row in episode.actions)
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "element"
    assert metadata["element_rl"]["collect"]["checkpoints"] == list(CHECKPOINTS)
    assert metadata["element_rl"]["run"]["settings"]["seeds"] == 2
    assert str(run.path) not in json.dumps({name: str(value) for name, value in metadata.items()})
    assert len(list(dataset.iterate_episodes())) == len(ours.episodes.lengths)


@pytest.mark.parametrize("steps_per_part", [1, 30])
def test_stopped_and_continued(
    run: RunFolder, undisturbed: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_per_part: int
) -> None:
    """Parts so small that episodes run through many; stopped again and again. Only the order of the episodes may change."""
    monkeypatch.setattr(collect_parts, "PART_STEPS", steps_per_part)
    monkeypatch.setattr(collect_parts, "LONGEST_CHUNK", 20)
    whole = collected(run, tmp_path / "whole")
    config = CollectConfig(run.path, "hopper/test-v0", steps=250, workers=0, out=tmp_path / "stopped")
    reached: list[int] = []
    while True:
        chunks: list[Any] = []
        try:
            stopped = read_dataset(collect(config, chunks.append, lambda: len(chunks) == 3))  # noqa: B023
            break
        except Interrupted as interrupted:
            reached.append(interrupted.step)
            left = known_datasets(tmp_path / "stopped")
    assert len(reached) > 3
    assert reached == sorted(reached)
    assert left == []
    assert_same(whole, stopped)
    for one, entry in each_episode(whole):
        relived(whole, one, entry["seed"])


def test_killed_at_any_moment(run: RunFolder, undisturbed: Dataset, tmp_path: Path) -> None:
    arguments = command_line(run, tmp_path, workers=1)
    generator = np.random.default_rng()
    begun = time.monotonic()
    process = start(arguments)
    parts = tmp_path / "hopper" / ".test-v0.parts"
    while not list(parts.glob("part_*")):  # as far as its first part
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(generator.uniform(0, 0.3))
    process.kill()
    process.communicate()
    assert time.monotonic() - begun < 60
    if known_datasets(tmp_path) == []:
        assert main(arguments) == 0
    assert_same(undisturbed, read_dataset("hopper/test-v0", tmp_path))
    assert not parts.exists()


def start(arguments: list[str]) -> subprocess.Popen:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_told_to_stop(run: RunFolder, tmp_path: Path) -> None:
    arguments = [
        str(run.path),
        "--steps",
        "500000",
        "--dataset",
        "hopper/long-v0",
        "--out",
        str(tmp_path),
        "--no-entropy",
    ]
    process = start(arguments)
    while not list(tmp_path.glob("hopper/.long-v0.parts/settings.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    written = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "Continue with: element collect" in written
    assert known_datasets(tmp_path) == []


def test_sentences(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**changes: Any) -> str:
        with pytest.raises(ValueError, match=r"\.$") as raised:
            collected(run, tmp_path, **changes)
        return str(raised.value)

    assert "is no Minari id" in said(dataset="no version")
    assert "has no checkpoint of step 3" in said(checkpoints=(3,))
    assert "at least 1 for each of the 3 checkpoints" in said(steps=2)
    assert "Say with --steps" in said(steps=None)
    assert "at least 1" in said(steps=0)
    assert "keeps no replay" in said(from_replay=True)
    assert "cannot be used with --from-replay" in said(from_replay=True, deterministic=True)
    wider = ("exclude_current_positions_from_observation=false",)
    assert "observe 11 and act with 3 numbers" in said(env_options=wider)
    assert not list(tmp_path.glob("hopper/*"))
    assert not list(tmp_path.glob("hopper/.*"))

    chunks: list[Any] = []
    config = CollectConfig(run.path, "hopper/test-v0", steps=250, workers=0, out=tmp_path)
    with pytest.raises(Interrupted):
        collect(config, chunks.append, lambda: len(chunks) == 2)
    assert "has other settings (steps was 250 and is 240" in said(steps=240)
    with locked(tmp_path / "hopper" / ".test-v0.parts" / "lock"):
        assert "Another process is collecting" in said()
    collected(run, tmp_path)
    assert "exists already" in said()
    monkeypatch.setitem(sys.modules, "minari", None)
    assert "pip install 'element-rl[datasets]'" in said(dataset="hopper/other-v0")


def test_falling(run: RunFolder) -> None:
    """Explorers train without its ending an episode, which is not passed on to a dataset unless asked for."""
    assert "terminate_when_unhealthy=false" in run.config["settings"]["env_options"]
    assert dict(source_of(run, (), of_the_task=True).env_options) == {"max_episode_steps": 60}
    asked = source_of(run, ("terminate_when_unhealthy=false",), of_the_task=True)
    assert asked.env_options["terminate_when_unhealthy"] is False
    assert source_of(run, (), of_the_task=False).env_options["terminate_when_unhealthy"] is False


@pytest.mark.parametrize("export", ["npz", "safetensors"])
def test_plain_export(run: RunFolder, undisturbed: Dataset, tmp_path: Path, export: str, capsys: Any) -> None:
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


def test_a_random_run_acts_at_random(tmp_path: Path) -> None:
    run = create_run(ExploreConfig("PointMaze", reward="random", steps=100, seeds=2), tmp_path / "run")
    run.save_checkpoint(100, invented_policy(0, 2, 2), None, {"nothing": np.zeros(1)}, {})
    dataset = collected(run, tmp_path, dataset="maze/random-v0", steps=600)
    actions = dataset.episodes.action[dataset.episodes.transitions]
    assert np.abs(actions.mean()) < 0.05
    assert np.abs(actions.std() - 1 / np.sqrt(3)) < 0.03


def test_the_replay_of_a_run(tmp_path: Path) -> None:
    """A ring that has come round twice: the newest complete episodes, each of which can be relived."""
    options = ("max_episode_steps=40", "terminate_when_unhealthy=true")
    config = ExploreConfig(
        "Hopper-v5", reward="random", steps=600, seeds=2, seed=3, random_seeds=0, workers=0, env_options=options
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
    assert 80 < few.episodes.lengths[[entry["agent"] == 1 for entry in few.episodes.metadata]].sum() <= 100


def test_division() -> None:
    """The chunks of a share are one step longer than it: the observation after its last step has to come from somewhere."""
    for steps in (1, 2, 199, 200, 201, 1_000, 4_999):
        division = divide(steps, 2, 16)
        chunks = steps // division.chunk_steps + 1
        assert chunks * division.chunk_steps > steps
        assert division.chunk_steps <= collect_parts.LONGEST_CHUNK
        assert division.part_chunks * division.chunk_steps <= collect_parts.PART_STEPS
    assert divide(10_000, 100, 400).part_chunks == 1


def test_a_checkpoint_that_a_stop_has_left_is_not_acted_with(run: RunFolder, tmp_path: Path) -> None:
    """So that a run which was stopped and continued gives the dataset of the undisturbed one."""
    copy = shutil.copytree(run.path, tmp_path / "copy")
    planned = run.checkpoint_steps()
    shutil.copytree(
        copy / "checkpoints" / f"step_{planned[0]:09d}", copy / "checkpoints" / f"step_{planned[0] + 37:09d}"
    )
    source = source_of(RunFolder.open(copy), (), of_the_task=True)
    assert len(source.run.checkpoint_steps()) == len(planned) + 1
    assert [share.checkpoint for share in shares_of(source, 100, ())] == planned
    assert [share.checkpoint for share in shares_of(source, 100, (planned[0] + 37,))] == [planned[0] + 37]
