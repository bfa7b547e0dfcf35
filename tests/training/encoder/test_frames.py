"""Frames on disk survive what kills a run, episodes do not depend on the processes that made them,
and splits keep them whole."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from element_rl.envs.make import make_env
from element_rl.storage.files import FileError
from element_rl.training.encoder.collecting import random_episode, random_episodes
from element_rl.training.encoder.frames import (
    NOT_KEPT,
    FrameStore,
    StoredEpisode,
    batches,
    frame_entropy,
    frame_indices,
    pair_indices,
    split_episodes,
)

SHORT = {"max_episode_steps": 30}


def numbered(count: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Frames and positions that say which they are."""
    numbers = np.arange(first, first + count)
    frames = np.broadcast_to(numbers[:, None, None], (count, 4, 4)).astype(np.uint8)
    return frames, np.stack([numbers, -numbers], axis=1).astype(np.float32)


def test_entropy_of_an_episode_by_hand() -> None:
    """Four frames: one thing twice, two others once. 1.5 bits of 2."""
    shades = np.array([0, 0, 100, 200], np.uint8)
    assert frame_entropy(
        np.broadcast_to(shades[:, None, None], (4, 84, 84)).copy()
    ) == pytest.approx(0.75)
    assert frame_entropy(np.zeros((50, 84, 84), np.uint8)) == 0
    assert frame_entropy(np.zeros((1, 84, 84), np.uint8)) == 0
    stripes = np.zeros((16, 84, 84), np.uint8)
    # they move by less than a block: some look the same
    stripes[np.arange(16), :, np.arange(16) * 5] = 255
    assert 0.8 < frame_entropy(stripes) < 1
    flicker = np.full((16, 84, 84), 128, np.uint8)
    flicker[::2, 40, 40] += 20  # one pixel of one block
    assert frame_entropy(flicker) == 0


def test_what_is_stored_is_there_again(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, (4, 4))
    assert (store.steps, store.frames().shape, store.positions().shape) == (0, (0, 4, 4), (0, 2))
    for first, keep in ((0, True), (10, False), (20, True)):
        frames, positions = numbered(5, first)
        store.add(frames, positions, 0.5, 1.0, keep)
    for each in (store, FrameStore(tmp_path, (4, 4))):
        assert [episode.start for episode in each.episodes] == [0, NOT_KEPT, 5]
        assert (each.steps, each.kept_frames) == (12, 10)
        np.testing.assert_array_equal(each.frames()[:, 0, 0], [0, 1, 2, 3, 4, 20, 21, 22, 23, 24])
        np.testing.assert_array_equal(
            each.positions()[:, 1], -each.frames()[:, 3, 3].astype(np.float32)
        )


def test_a_kill_costs_the_episode_that_was_being_written(tmp_path: Path) -> None:
    store = FrameStore(tmp_path, (4, 4))
    store.add(*numbered(5), 0.5, 1.0, True)
    complete = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    store.add(*numbered(6, 50), 0.5, 1.0, True)
    listed = (tmp_path / "episodes.jsonl").read_bytes()
    for cut in (
        listed[:-1],
        listed[: len(complete["episodes.jsonl"])],
    ):  # half a line, and no line at all
        (tmp_path / "episodes.jsonl").write_bytes(cut)
        again = FrameStore(tmp_path, (4, 4))
        assert len(again.episodes) == 1
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == complete
        again.add(*numbered(6, 50), 0.5, 1.0, True)
        assert (tmp_path / "episodes.jsonl").read_bytes() == listed
        np.testing.assert_array_equal(again.frames()[5:, 0, 0], np.arange(50, 56))


def test_frames_that_are_missing_are_said(tmp_path: Path) -> None:
    FrameStore(tmp_path, (4, 4)).add(*numbered(5), 0.5, 1.0, True)
    (tmp_path / "frames.bin").write_bytes(b"x" * 79)
    with pytest.raises(FileError, match="79 bytes where 80 are listed: remove the folder"):
        FrameStore(tmp_path, (4, 4))
    (tmp_path / "episodes.jsonl").write_text("nonsense\n")
    with pytest.raises(FileError, match="damaged"):
        FrameStore(tmp_path, (4, 4))


def test_an_episode_is_the_same_whoever_runs_it() -> None:
    collected = []
    for workers in (0, 2):
        with random_episodes("Rooms-v0", SHORT, 7, 3, 1, workers) as episodes:
            collected.append([next(episodes) for _ in range(5)])
    for here, there in zip(*collected, strict=True):
        np.testing.assert_array_equal(here.frames, there.frames)
        np.testing.assert_array_equal(here.positions, there.positions)
        assert (here.task_return, here.entropy) == (there.task_return, there.entropy)
    assert collected[0][0].frames.shape == (31, 84, 84)
    env = make_env("Rooms-v0", **SHORT)
    np.testing.assert_array_equal(random_episode(env, 7, 5).frames, collected[0][2].frames)
    assert not np.array_equal(random_episode(env, 8, 5).positions, collected[0][2].positions)
    env.close()


def test_a_held_action_goes_further() -> None:
    env = make_env("Rooms-v0", max_episode_steps=200)
    reach = [
        np.mean(
            [
                np.ptp(random_episode(env, 0, number, hold).positions, axis=0).sum()
                for number in range(10)
            ]
        )
        for hold in (1, 6)
    ]
    env.close()
    assert reach[1] > reach[0]


def test_processes_that_collect_load_no_jax() -> None:
    code = "import sys, element_rl.training.encoder.collecting; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def recorded(lengths: list[int]) -> list[StoredEpisode]:
    starts = np.cumsum([0] + [steps + 1 for steps in lengths])
    return [StoredEpisode(n, steps, 0.8, 0.0, int(starts[n])) for n, steps in enumerate(lengths)]


def test_episodes_are_split_whole() -> None:
    episodes = recorded([20] * 30)
    splits = split_episodes(episodes, seed=0, batch_size=8, threshold=0.6)
    parts = [splits.training, splits.validation, splits.held_out]
    assert [len(part) for part in parts] == [21, 3, 6]
    assert sorted(episode.number for part in parts for episode in part) == list(range(30))
    frames = [set(frame_indices(part, 10_000, 0).tolist()) for part in parts]
    assert sum(len(part) for part in frames) == len(set().union(*frames)) == 30 * 21
    assert splits == split_episodes(episodes, seed=0, batch_size=8, threshold=0.6)
    assert splits != split_episodes(episodes, seed=1, batch_size=8, threshold=0.6)
    assert len(frame_indices(splits.training, 50, 0)) == 50


def test_pairs_are_consecutive_frames_of_one_episode() -> None:
    frames, _ = numbered(12)
    pairs = pair_indices(recorded([4, 1, 4]))
    np.testing.assert_array_equal(pairs, [0, 1, 2, 3, 5, 7, 8, 9, 10])
    seen = []
    for first, second in batches(frames, pairs, 4, 10, (0, 1)):
        np.testing.assert_array_equal(first + 1, second)
        seen += first[:, 0, 0].tolist()
    assert len(seen) == len(set(seen)) == 8  # two full batches; each pair once
    assert len(list(batches(frames, pairs, 4, 1, (0, 1)))) == 1
    another_epoch = [first[:, 0, 0].tolist() for first, _ in batches(frames, pairs, 4, 10, (0, 2))]
    assert another_epoch != [seen[:4], seen[4:]]


def test_too_few_episodes_are_said() -> None:
    episodes = [StoredEpisode(n, 20, 0.31, 0.0, NOT_KEPT) for n in range(4)]
    with pytest.raises(
        ValueError,
        match=r"0 of 4 episodes vary enough .*highest entropy is 0.31, .*lower the threshold",
    ):
        split_episodes(episodes, 0, 8, 0.6)
    with pytest.raises(
        ValueError, match="20 pairs of frames in the validation episodes and a batch needs 64"
    ):
        split_episodes(recorded([20] * 10), 0, 64, 0.6)


def test_a_process_that_dies_is_said_and_none_remains() -> None:
    with random_episodes("Rooms-v0", SHORT, 0, 0, 1, 2) as episodes:
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(
            ValueError,
            match=r"could not collect episode 0 \(it died.*what was collected before is kept",
        ):
            next(episodes)
    assert not multiprocessing.active_children()


def test_stopping_with_episodes_under_way_waits_for_nobody() -> None:
    """The pipes are full of frames that nobody will read."""
    began = time.monotonic()
    with random_episodes("Rooms-v0", {}, 0, 0, 1, 2) as episodes:
        next(episodes)
        time.sleep(0.3)
    assert time.monotonic() - began < 30
    assert not multiprocessing.active_children()
