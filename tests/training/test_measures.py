"""What is measured while a population trains: the best episode, by hand."""

import numpy as np

from element_rl.acting.collector import Chunk
from element_rl.envs.make import describe
from element_rl.replay.ring import Ledger
from element_rl.training.off_policy.measures import ChunkMeasures
from element_rl.training.on_policy.measures import RolloutMeasures


def chunk(rewards: list[float | None]) -> Chunk:
    """One agent's records; None stands for the last observation of an episode."""
    rows = len(rewards)
    return Chunk(
        observation=np.zeros((1, rows, 3), np.float32),
        action=np.zeros((1, rows, 1), np.float32),
        extrinsic_reward=np.array([[reward or 0.0 for reward in rewards]], np.float32),
        terminated=np.zeros((1, rows), bool),
        truncated=np.zeros((1, rows), bool),
        final=np.array([[reward is None for reward in rewards]]),
        position=np.zeros((1, rows, 0), np.float32),
        count=np.array([rows], np.int32),
        episode_index=np.zeros(1, np.int64),
    )


def seen(chunks: list[list[float | None]], tracker: ChunkMeasures | None = None) -> ChunkMeasures:
    tracker = tracker or ChunkMeasures(describe("Pendulum-v1"), 1)
    ledger = Ledger(1, 100, longest_episode=20, chunk_records=20)
    for rewards in chunks:
        made = chunk(rewards)
        _, finished = ledger.place(made.final, made.count)
        tracker.see_chunk(made, finished)
    return tracker


def best(tracker: ChunkMeasures | RolloutMeasures) -> tuple[list, list]:
    found = tracker.counts.totals()
    return found["best_return"], found["best_length"]


def test_the_best_episode_goes_over_chunks() -> None:
    """Returns 3 in three steps, 7 in four (begun in the first chunk, ended in the second), 5 in
    one."""
    tracker = seen([[1.0, 1.0, 1.0, None, 1.0, 1.0], [1.0, 4.0, None, 5.0, None, 100.0]])
    assert best(tracker) == ([7.0], [4])


def test_of_equal_returns_the_shortest_counts() -> None:
    assert best(seen([[0.0, 0.0, 1.0, None, 0.0, 1.0, None, 0.0, 0.0, 0.0, 1.0, None]])) == (
        [1.0],
        [2],
    )


def test_who_has_finished_none_has_no_best() -> None:
    assert best(seen([[1.0, 1.0]])) == ([None], [None])


def test_checkpoints_keep_it_and_older_ones_can_be_read() -> None:
    arrays = seen([[3.0, 4.0, None]]).to_arrays()
    restored = ChunkMeasures(describe("Pendulum-v1"), 1)
    restored.restore(arrays)
    assert best(restored) == ([7.0], [2])
    older = ChunkMeasures(describe("Pendulum-v1"), 1)
    older.restore({name: array for name, array in arrays.items() if not name.startswith("best_")})
    assert older.counts.episodes.tolist() == [1]
    assert best(seen([[2.0, None]], older)) == ([2.0], [1])


def test_the_same_on_screens() -> None:
    arrays = RolloutMeasures(describe("Rooms-v0"), 1, 4).to_arrays()
    older = RolloutMeasures(describe("Rooms-v0"), 1, 4)
    older.restore({name: array for name, array in arrays.items() if not name.startswith("best_")})
    assert best(older) == ([None], [None])
