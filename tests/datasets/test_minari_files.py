"""Minari datasets: those that Minari makes are read, what is written Minari reads, and what cannot
be used is said."""

import json
import resource
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

from element_rl.datasets.minari_files import (
    DatasetError,
    EpisodeRecord,
    known_datasets,
    read_dataset,
    read_recording,
    write_dataset,
)
from element_rl.envs.make import make_env

BOX = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def episode(length: int, seed: int = 0, **metadata: Any) -> EpisodeRecord:
    generator = np.random.default_rng(seed)
    return EpisodeRecord(
        generator.standard_normal((length + 1, 3), dtype=np.float32),
        generator.uniform([-2, 0], [2, 1], (length, 2)).astype(np.float32),
        generator.standard_normal(length, dtype=np.float32),
        np.arange(length) == (length - 1 if seed % 2 else -1),
        np.arange(length) == (-1 if seed % 2 else length - 1),
        {"position": generator.standard_normal((length + 1, 2), dtype=np.float32)},
        {"policy": 1000, "agent": seed, "seed": 2**60 + seed, "entropy": 1.25, **metadata},
    )


def written(name: str = "ours/vectors-v0", **changes: Any) -> list[EpisodeRecord]:
    episodes = [episode(length, seed) for seed, length in enumerate((4, 1, 7))]
    write_dataset(
        name, iter(episodes), changes.get("observations", BOX), changes.get("actions", ACTIONS)
    )
    return episodes


def collected(env: str, name: str, steps: int = 60) -> Any:
    """A dataset made by Minari's own collector, and all it saw."""
    collector = minari.DataCollector(gymnasium.make(env))
    seen: list[tuple[list[Any], list[Any], list[Any]]] = []
    collector.action_space.seed(0)
    for seed in range(3):
        seen.append(([collector.reset(seed=seed)[0]], [], []))
        for _ in range(steps):
            action = collector.action_space.sample()
            observation, reward, terminated, truncated, _ = collector.step(action)
            for kept, value in zip(seen[-1], (observation, action, reward), strict=True):
                kept.append(value)
            if terminated or truncated:
                break
    about = dict.fromkeys(
        ("algorithm_name", "author", "author_email", "code_permalink", "description"), "test"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari's own
        collector.create_dataset(dataset_id=name, eval_env=env, **about)
    collector.close()
    collector._tmp_dir.cleanup()  # Minari forgets it
    return seen


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_dataset_of_minari_is_read(env: str) -> None:
    seen = collected(env, "foreign/random-v3")
    dataset = read_dataset("foreign/random-v3")
    episodes = dataset.episodes
    assert (dataset.name, dataset.env, dataset.env_options) == ("foreign/random-v3", env, {})
    assert episodes.position is None
    assert episodes.lengths.tolist() == [len(rewards) for _, _, rewards in seen]
    np.testing.assert_array_equal(
        episodes.observation, np.concatenate([observations for observations, _, _ in seen])
    )
    actions = np.concatenate([actions for _, actions, _ in seen])
    scaled = actions / 2 if env == "Pendulum-v1" else actions
    np.testing.assert_array_equal(
        episodes.action[episodes.transitions], scaled.astype(episodes.action.dtype)
    )
    assert episodes.action.dtype == (np.float32 if env == "Pendulum-v1" else np.int32)
    np.testing.assert_allclose(
        episodes.returns, [np.sum(rewards) for _, _, rewards in seen], rtol=1e-5
    )
    ends = np.cumsum(episodes.lengths + 1) - 2
    # one stopped by the recorder is truncated
    assert (episodes.terminated[ends] ^ episodes.truncated[ends]).all()
    assert (episodes.terminated | episodes.truncated).sum() == len(ends)


def test_what_is_written_minari_reads() -> None:
    episodes = written()
    dataset = minari.load_dataset("ours/vectors-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 12)
    assert list(minari.list_local_datasets()) == ["ours/vectors-v0"]
    assert minari.namespace.list_local_namespaces() == ["ours"]
    for ours, theirs in zip(episodes, dataset.iterate_episodes(), strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype
        np.testing.assert_array_equal(theirs.infos["position"], ours.infos["position"])
        assert all(dataset.observation_space.contains(row) for row in theirs.observations)
    assert len(list(dataset.sample_episodes(2))) == 2
    terminated = dataset.filter_episodes(lambda one: bool(one.terminations[-1]))
    assert (terminated.total_episodes, terminated.total_steps) == (1, 1)
    metadata = next(iter(dataset.storage.get_episode_metadata([1])))
    assert (metadata["policy"], metadata["seed"], metadata["entropy"], metadata["agent"]) == (
        1000,
        2**60 + 1,
        1.25,
        1,
    )


def test_what_is_written_we_read() -> None:
    episodes = written()
    read = read_dataset("ours/vectors-v0").episodes
    np.testing.assert_array_equal(
        read.observation, np.concatenate([one.observations for one in episodes])
    )
    actions = np.concatenate([one.actions for one in episodes])
    np.testing.assert_allclose(
        read.action[read.transitions] * [2.0, 0.5] + [0.0, 0.5], actions, atol=1e-6
    )
    assert np.abs(read.action).max() <= 1.0
    assert read.position is not None
    np.testing.assert_array_equal(
        read.position, np.concatenate([one.infos["position"] for one in episodes])
    )
    assert [entry["agent"] for entry in read.metadata] == [0, 1, 2]
    recording = read_recording("ours/vectors-v0").episodes
    np.testing.assert_array_equal(recording.action[read.transitions], actions)


def test_the_environment_comes_back(root: Path) -> None:
    """With its options, and with Gymnasium's default where ours differs from it."""
    for env, name in (
        (make_env("Ant-v5", max_episode_steps=50), "ant/ours-v0"),
        (gymnasium.make("Ant-v5"), "ant/v-v0"),
    ):
        space = env.observation_space
        rows = np.zeros((2, *space.shape), np.float32)
        one = EpisodeRecord(
            rows,
            np.zeros((1, 8), np.float32),
            np.zeros(1, np.float32),
            np.ones(1, bool),
            np.zeros(1, bool),
        )
        write_dataset(name, [one], space, env.action_space, env.spec)
        dataset = read_dataset(root / name)
        assert dataset.env == "Ant-v5"
        again = make_env(dataset.env, **dataset.env_options)
        recovered = minari.load_dataset(name).recover_environment()
        assert again.observation_space == recovered.observation_space == space
        assert again.spec is not None
        assert (
            again.spec.max_episode_steps
            == recovered.spec.max_episode_steps
            == env.spec.max_episode_steps
        )  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(40, 40, 3), (8, 8)])
def test_images_come_back_bit_for_bit(shape: tuple[int, ...]) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(np.uint8)
    flags = np.zeros(5, bool)
    one = EpisodeRecord(frames, np.array([0, 1, 2, 2, 1]), np.ones(5, np.float32), flags, flags)
    write_dataset(
        "ours/frames-v0",
        [one],
        gymnasium.spaces.Box(0, 255, shape, np.uint8),
        gymnasium.spaces.Discrete(3),
    )
    (theirs,) = minari.load_dataset("ours/frames-v0").iterate_episodes()
    np.testing.assert_array_equal(theirs.observations, frames)
    read = read_dataset("ours/frames-v0").episodes
    assert read.observation.dtype == np.uint8
    np.testing.assert_array_equal(read.observation, frames)
    np.testing.assert_array_equal(read.action[:5], [0, 1, 2, 2, 1])


def test_jpegs_of_minari_are_read() -> None:
    frames = np.full((4, 40, 40, 3), 77, np.uint8)
    buffer = EpisodeBuffer(
        observations=frames,
        actions=np.array([4, 5, 4]),
        rewards=[1.0] * 3,
        terminations=[False] * 3,
        truncations=[False] * 3,
    )
    spaces = {"observation_space": gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8)}
    spaces["action_space"] = gymnasium.spaces.Discrete(2, start=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari's own
        minari.create_dataset_from_buffers("foreign/jpeg-v0", [buffer], **spaces)
    read = read_dataset("foreign/jpeg-v0").episodes
    np.testing.assert_allclose(read.observation, 77, atol=2)
    np.testing.assert_array_equal(read.action, [0, 1, 0, 0])
    assert read.truncated.tolist() == [False, False, True, False]  # the recording stopped


def broken() -> Iterator[Any]:
    """Ways to break a good dataset, with what is said of them."""

    def truncate(data: Path) -> None:
        content = (data / "main_data.hdf5").read_bytes()
        (data / "main_data.hdf5").write_bytes(content[: len(content) // 2])

    def change(**values: Any) -> Any:
        def apply(data: Path) -> None:
            metadata = json.loads((data / "metadata.json").read_text())
            (data / "metadata.json").write_text(json.dumps(metadata | values))

        return apply

    def edit(name: str, value: Any) -> Any:
        def apply(data: Path) -> None:
            with h5py.File(data / "main_data.hdf5", "a") as file:
                if value is None:
                    del file[name]
                elif isinstance(value, np.ndarray):
                    del file[name]
                    file[name] = value
                else:
                    file[name][1] = value

        return apply

    space = minari.serialization.serialize_space
    nested = gymnasium.spaces.Dict({"image": BOX})
    yield pytest.param(truncate, "damaged.*truncated file", id="truncated")
    yield pytest.param(
        lambda data: (data / "main_data.hdf5").write_bytes(b"hello"), "damaged", id="no hdf5"
    )
    yield pytest.param(
        lambda data: (data / "main_data.hdf5").unlink(), "damaged.*No data found", id="no data"
    )
    yield pytest.param(
        lambda data: (data / "metadata.json").unlink(), "not a Minari dataset", id="no metadata"
    )
    yield pytest.param(
        lambda data: (data / "metadata.json").write_text("{"), "damaged", id="half metadata"
    )
    yield pytest.param(change(total_episodes=4), "damaged.*episode_3", id="an episode too few")
    yield pytest.param(change(total_episodes=0), "holds no episode", id="no episode")
    yield pytest.param(change(observation_space=space(nested)), "observes Dict.*a Box", id="dict")
    yield pytest.param(change(observation_space='{"type": "Odd"}'), "damaged", id="unknown space")
    yield pytest.param(
        change(action_space=space(gymnasium.spaces.MultiBinary(2))), "acts in Multi", id="binary"
    )
    yield pytest.param(change(action_space=space(BOX)), "bounds are not finite", id="unbounded")
    yield pytest.param(
        change(action_space=space(gymnasium.spaces.Discrete(2))), "shape", id="wrong actions"
    )
    yield pytest.param(change(data_format="clay"), "damaged", id="format")
    yield pytest.param(
        edit("episode_2/observations", np.nan), "Episode 2 .* observation that is not", id="nan"
    )
    yield pytest.param(
        edit("episode_2/rewards", np.inf), "Episode 2 .* reward that is not", id="infinite"
    )
    yield pytest.param(edit("episode_0/actions", None), "damaged.*no actions", id="missing")
    yield pytest.param(
        edit("episode_0/observations", np.zeros((4, 3))), "observations of shape", id="unfinished"
    )


@pytest.mark.parametrize(("damage", "sentence"), list(broken()))
def test_one_sentence_for_what_cannot_be_used(root: Path, damage: Any, sentence: str) -> None:
    written()
    damage(root / "ours" / "vectors-v0" / "data")
    with pytest.raises(ValueError, match=sentence) as raised:
        read_dataset("ours/vectors-v0")
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_one_sentence_for_what_is_not_there(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="it holds none"):
        read_dataset("ours/none-v0")
    written()
    with pytest.raises(
        DatasetError, match=r"There is no dataset 'ours/vectors-v1'.*it holds ours/vectors-v0\."
    ):
        read_dataset("ours/vectors-v1")
    with pytest.raises(DatasetError, match="There is no dataset in"):
        read_dataset(tmp_path / "nothing")
    with pytest.raises(DatasetError, match="is not a Minari dataset"):
        read_dataset(tmp_path)
    assert known_datasets(root) == ["ours/vectors-v0"]
    shutil.copytree(root / "ours" / "vectors-v0", tmp_path / "copy")
    assert (
        read_dataset(tmp_path / "copy").name
        == read_dataset(str(tmp_path / "copy" / "data")).name
        == "ours/vectors-v0"
    )


def test_a_write_that_fails_leaves_nothing(root: Path) -> None:
    def failing() -> Iterator[EpisodeRecord]:
        yield episode(5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset("ours/half-v0", failing(), BOX, ACTIONS)
    assert not any((root / "ours").iterdir())
    with pytest.raises(DatasetError, match="no finished episode"):
        write_dataset("ours/none-v0", [], BOX, ACTIONS)
    for name in ("no version", "ours/none", "a/none-v0", "/none-v0", "../none-v0"):
        with pytest.raises(DatasetError, match="is no Minari id"):
            write_dataset(name, [episode(1)], BOX, ACTIONS)
    written()
    with pytest.raises(DatasetError, match="exists already"):
        written()
    assert known_datasets(root) == ["ours/vectors-v0"]


def test_a_full_disk_is_one_sentence(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """HDF5 alone would complain of every object in the file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(ValueError, match=r"could not be written .File too large") as raised:
            write_dataset("ours/large-v0", (episode(30, seed) for seed in range(300)), BOX, ACTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(raised.value)
    assert not any((root / "ours").iterdir())
    assert capfd.readouterr().err == ""
