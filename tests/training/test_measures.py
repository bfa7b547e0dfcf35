"""What is measured while a population trains: the best episode, by hand."""

import dataclasses

import numpy as np

from element_rl.acting.collector import Chunk
from element_rl.acting.rollout import Rollout
from element_rl.envs.cells import DifferentPictures
from element_rl.envs.make import describe
from element_rl.envs.spec import EnvSpec
from element_rl.replay.ledger import Ledger
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


def placed(*places: tuple[float, float]) -> Chunk:
    """A chunk of one agent that was in these places."""
    made = chunk([0.0] * len(places))
    return dataclasses.replace(made, position=np.array([places], np.float32))


def test_a_map_without_bounds_counts_wherever_the_agent_is() -> None:
    spec = EnvSpec(
        "x",
        (3,),
        20,
        (-1.0,),
        (1.0,),
        position_dim=2,
        coverage_cell_size=(0.5, 1.0),
        position=(0, 1),
    )
    tracker = ChunkMeasures(spec, 1)
    # cells (0, 0), (0, 0), (−1, 0), (2000000, −3)
    tracker.see_chunk(placed((0.1, 0.1), (0.4, 0.9), (-0.1, 0.0), (1e6, -2.5)), [])
    assert tracker.counts.totals()["coverage"] == [3]
    stored = tracker.counts.visits
    assert sorted(stored["cell"].tolist()) == [[-1, 0], [0, 0], [2_000_000, -3]]
    restored = ChunkMeasures(spec, 1)
    restored.restore(tracker.to_arrays())
    restored.see_chunk(placed((0.2, 0.2), (5.0, 5.0)), [])
    assert restored.counts.totals()["coverage"] == [4]
    cells = dict(zip(map(tuple, restored.counts.visits["cell"].tolist()),
                     restored.counts.visits["visits"].tolist(), strict=True))  # fmt: skip
    assert cells[0, 0] == 3


def test_without_a_position_states_are_counted() -> None:
    """Observations are all zero: one cell, however long it acts; nothing is mapped."""
    tracker = seen([[0.0, 0.0, None, 0.0]])
    assert tracker.counts.totals()["coverage"] == [1]
    assert tracker.spec.coverage_of == "state cells"


def test_pictures_are_counted_on_screens() -> None:
    spec = EnvSpec("x", (84, 84), 9, position_dim=2, other_cells=DifferentPictures())
    measures = RolloutMeasures(spec, 1, 4)
    frames = np.zeros((4, 84, 84), np.uint8)
    frames[2], frames[3] = 100, 200
    rollout = Rollout(
        frames=frames,
        actions=np.zeros(3, np.int32),
        rewards=np.zeros(3, np.float32),
        positions=np.zeros((4, 2), np.float32),
        begins=True,
        terminated=False,
        truncated=False,
        lstm=np.zeros((2, 1), np.float32),
        lstm_after=np.zeros((2, 1), np.float32),
        episode_seed=0,
    )
    measures.see_rollout(0, rollout)
    assert measures.totals()["coverage"] == [3]
    assert measures.totals()["furthest"] == [None]


def test_the_same_on_screens() -> None:
    arrays = RolloutMeasures(describe("Rooms-v0"), 1, 4).to_arrays()
    older = RolloutMeasures(describe("Rooms-v0"), 1, 4)
    older.restore({name: array for name, array in arrays.items() if not name.startswith("best_")})
    assert best(older) == ([None], [None])
