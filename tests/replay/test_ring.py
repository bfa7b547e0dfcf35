"""The ring against a plain list: what may be sampled, in which slot, and that an overwritten
episode is gone as a whole."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from element_rl.replay import ring
from element_rl.replay.ledger import Ledger
from element_rl.replay.ring import Records
from element_rl.replay.stored import stored_episodes


def chunk_of(lengths: list[int], rows: int, first: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Records of one agent: `lengths` are transitions until each final record, the last number
    those still running."""
    final, values = [], []
    for index, length in enumerate(lengths):
        final += [False] * length
        if index < len(lengths) - 1:
            final.append(True)
    values = list(range(first, first + len(final)))
    padded = np.zeros(rows, bool)
    padded[: len(final)] = final
    return padded, np.array(values, np.float32), len(final)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=12))
def test_ledger_against_a_list(chunks: list[list[int]]) -> None:
    """Every sampleable transition is (o, next o) of one episode; each stored episode is there whole
    or not at all."""
    capacity, rows = 60, 32
    ledger = Ledger(1, capacity, longest_episode=13, chunk_records=rows)
    slots = np.full(capacity, -1.0)
    sampleable = np.zeros(capacity, np.int64)
    stream: list[float] = []
    episodes: list[list[float]] = []
    running: list[float] = []
    for lengths in chunks:
        if len(running) + lengths[0] > 13:
            lengths = [0, *lengths]  # keep episodes within the longest
        final, values, count = chunk_of(lengths, rows, len(stream))
        placed, finished = ledger.place(final[None], np.array([count], np.int32))
        assert (placed[0, count:] == capacity).all()
        slots[placed[0, :count]] = values
        stream += values.tolist()
        for row in range(count):
            running.append(values[row])
            if final[row]:
                episodes.append(running)
                running = []
        for episode in finished:
            where = (episode.start + np.arange(episode.length)) % capacity
            sampleable[(episode.sample_head + np.arange(episode.length)) % capacity] = where
    assert ledger.running_length[0] == len(running)
    assert slots[ledger.running_slots(0)].tolist() == running
    tail, number = int(ledger.sample_tail[0]), int(ledger.sample_count[0])
    drawn = [slots[sampleable[(tail + i) % capacity]] for i in range(number)]
    following = [slots[(sampleable[(tail + i) % capacity] + 1) % capacity] for i in range(number)]
    expected = [pair for episode in episodes for pair in itertools.pairwise(episode)]
    assert list(zip(drawn, following, strict=True)) == expected[len(expected) - number :]
    kept_lengths = np.cumsum([len(e) - 1 for e in reversed(episodes)])
    assert number == 0 or number in kept_lengths, "whole episodes only"
    assert number >= min(sum(len(e) - 1 for e in episodes), 60 - 14 - 32), (
        "not dropped before room is needed"
    )


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_running_episodes_against_a_list(chunks: list[list[int]], every: int) -> None:
    """What may be drawn is every transition of the stored episodes, and of the running one those up
    to the last look at it, each with its next observation; also after a checkpoint."""
    capacity, rows, longest = 60, 32, 13
    ledger = Ledger(1, capacity, longest, chunk_records=rows)
    slots = np.full(capacity, -1.0)
    sampleable = np.zeros(capacity, np.int64)
    episodes: list[list[float]] = [[]]
    written = looked = 0
    for lengths in chunks:
        if len(episodes[-1]) + lengths[0] > longest:
            lengths = [0, *lengths]
        final, values, count = chunk_of(lengths, rows, written)
        written += count
        placed, finished = ledger.place(final[None], np.array([count], np.int32))
        slots[placed[0, :count]] = values
        for row in range(count):
            episodes[-1].append(values[row])
            if final[row]:
                episodes.append([])
                looked = 0
        released = ledger.release_running(every)
        whole = max(len(episodes[-1]) - 1, 0)
        if whole // every > looked // every:
            ((episode, before),) = released
            assert (episode.length, before) == (whole, looked)
            assert slots[episode.start] == episodes[-1][0]
            rest = episode.rest(before, capacity, 1)
            assert (rest.length, slots[rest.start]) == (whole - looked, episodes[-1][looked])
            assert rest.sample_head == (episode.sample_head + before) % capacity
            looked = whole
        else:
            assert released == []
        for episode in [*finished, *(episode for episode, _ in released)]:
            where = (episode.start + np.arange(episode.length)) % capacity
            sampleable[(episode.sample_head + np.arange(episode.length)) % capacity] = where
        other = Ledger(1, capacity, longest, chunk_records=rows)
        other.restore(ledger.to_arrays())
        ledger = other
    tail, number = int(ledger.sample_tail[0]), int(ledger.sample_count[0])
    entries = [sampleable[(tail + i) % capacity] for i in range(number)]
    drawn = [(slots[entry], slots[(entry + 1) % capacity]) for entry in entries]
    ended = [pair for episode in episodes[:-1] for pair in itertools.pairwise(episode)]
    expected = [*ended, *itertools.islice(itertools.pairwise(episodes[-1]), looked)]
    assert drawn == expected[len(expected) - number :]
    assert number >= looked
    later = [len(episode) - 1 for episode in episodes[1:-1]]
    assert ledger.usual_length(0) == (sum(later) // len(later) if later else longest)


def test_steps_and_starts_of_finished_episodes() -> None:
    ledger = Ledger(2, 100, longest_episode=20, chunk_records=10)
    final = np.zeros((2, 10), bool)
    final[0, [3, 7]] = True
    slots, finished = ledger.place(final, np.array([9, 5], np.int32))
    assert slots[0].tolist() == [*range(9), 100]
    assert slots[1].tolist() == [*range(5), *[100] * 5]
    assert [tuple(e) for e in finished] == [(0, 0, 3, 0, 0), (0, 4, 3, 3, 3)]
    final[:] = False
    final[1, 2] = True
    _, finished = ledger.place(final, np.array([1, 4], np.int32))
    assert [tuple(e) for e in finished] == [(1, 0, 7, 0, 0)]
    assert ledger.running_length.tolist() == [2, 1]
    assert ledger.steps.tolist() == [6, 7]


def test_ledger_survives_a_checkpoint() -> None:
    ledger = Ledger(1, 60, longest_episode=13, chunk_records=10)
    final = np.zeros((1, 10), bool)
    final[0, 4] = True
    for _ in range(20):
        ledger.place(final, np.array([8], np.int32))
    other = Ledger(1, 60, longest_episode=13, chunk_records=10)
    other.restore(ledger.to_arrays())
    for _ in range(5):
        for ours, theirs in zip(
            ledger.place(final, np.array([8])), other.place(final, np.array([8])), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_older_checkpoints_say_nothing_of_running_episodes() -> None:
    ledger = Ledger(1, 60, longest_episode=13, chunk_records=10)
    final = np.zeros((1, 10), bool)
    final[0, 4] = True
    ledger.place(final, np.array([8], np.int32))
    newer = ("released", "later_steps", "later_episodes")
    older = {name: array for name, array in ledger.to_arrays().items() if name not in newer}
    other = Ledger(1, 60, longest_episode=13, chunk_records=10)
    other.restore(older)
    assert other.sample_count.tolist() == [4]
    ((episode, before),) = other.release_running(1)
    assert (episode.length, before) == (2, 0)
    assert other.all_drawable()


def test_a_replay_too_small_for_an_episode_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"A replay of 50 transitions is too small.*needs at least 2130"
    ):
        Ledger(1, 50, longest_episode=1000, chunk_records=128)


def make_replay() -> ring.Replay:
    """Two agents; agent 1 has an episode of three transitions in slots 0 to 3, then a running
    one."""
    replay = ring.create(
        2, 8, observation_dim=1, action_dim=1, state_dim=1, note_shapes={"n": (), "v": (2,)}
    )
    observation = jnp.arange(10.0).reshape(2, 5, 1)
    slot = jnp.array([[8, 8, 8, 8, 8], [0, 1, 2, 3, 4]])  # agent 0: padding only
    flat = observation[..., 0]
    return ring.add(
        replay, Records(observation, -observation, flat * 10, flat == 7, observation + 100, slot)
    )


def test_records_are_written_where_they_belong() -> None:
    replay = make_replay()
    assert not replay.observation[0].any()
    assert replay.observation[1, :5, 0].tolist() == [5, 6, 7, 8, 9]
    assert replay.terminated[1].tolist() == [False, False, True, *[False] * 5]


def test_an_episode_is_read_with_the_states_of_its_next_observations() -> None:
    one = jnp.asarray
    episode = ring.read_episode(make_replay(), one(1), one(0), one(3), one(50), rows=4)
    assert episode.observation[:3, 0].tolist() == [5, 6, 7]
    assert episode.next_observation[:3, 0].tolist() == [6, 7, 8]
    assert episode.state[:3, 0].tolist() == [106, 107, 108]
    assert episode.mask.tolist() == [True, True, True, False]
    assert episode.step.tolist() == [50, 51, 52, 53]


def test_released_transitions_are_sampled_with_their_notes() -> None:
    one = jnp.asarray
    notes = {"n": jnp.array([1.0, 2.0, 3.0, 99.0]), "v": jnp.ones((4, 2))}
    replay = ring.release_episode(make_replay(), one(1), one(0), one(3), one(6), notes, rows=4)
    assert replay.sampleable[1].tolist() == [2, 0, 0, 0, 0, 0, 0, 1]  # ring positions 6, 7, 0
    agent = jax.tree.map(lambda leaf: leaf[1], replay)
    batch = ring.sample(agent, jax.random.key(0), 300, one(6)[None], one(3)[None])
    assert sorted(set(batch.observation[:, 0].tolist())) == [5, 6, 7]
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 1)
    np.testing.assert_array_equal(batch.notes["n"], batch.observation[:, 0] - 4)
    np.testing.assert_array_equal(batch.state, batch.next_observation + 100)
    np.testing.assert_array_equal(batch.terminated, batch.observation[:, 0] == 7)
    counts = np.bincount(batch.observation[:, 0].astype(int))[5:]
    assert counts.min() > 70, "uniform over the three"
    assert not replay.notes["n"][0].any(), "the other agent's notes are untouched"


def test_environments_of_an_agent_share_its_ring_and_take_turns() -> None:
    """Two agents with two environments each: rows 0 and 1 are the first agent's."""
    ledger = Ledger(2, 40, longest_episode=5, chunk_records=6, num_envs=2)
    final = np.zeros((4, 6), bool)
    final[1, 2] = final[3, 3] = True
    slots, finished = ledger.place(final, np.array([4, 5, 0, 4], np.int32))
    assert slots.tolist() == [
        [0, 2, 4, 6, 40, 40],
        [1, 3, 5, 7, 9, 40],
        [40] * 6,
        [1, 3, 5, 7, 40, 40],
    ]
    # agent, slot, length, step of the agent, place among those that may be drawn
    assert [tuple(e) for e in finished] == [(0, 1, 2, 1, 1), (1, 1, 3, 1, 1)]
    assert ledger.sampleable().tolist() == [[[0, 1], [0, 2]], [[0, 1], [0, 3]]]
    assert ledger.filled(0) == 10
    assert ledger.filled(1) == 8
    assert ledger.running_slots(1).tolist() == [7, 9]
    final[:] = False
    final[1, 1] = True
    _, finished = ledger.place(final, np.array([1, 2, 0, 1], np.int32))
    # its first step was the third of environment 1
    assert [tuple(e) for e in finished] == [(0, 7, 3, 5, 5)]


def test_draws_fall_to_all_environments_of_an_agent() -> None:
    """Environment 0 may draw slots 2 and 4, environment 1 slot 3; the next observation is two slots
    on."""
    replay = ring.create(1, 8, observation_dim=1, action_dim=1, state_dim=1, note_shapes={})
    replay = replay._replace(
        observation=jnp.arange(8.0).reshape(1, 8, 1),
        sampleable=jnp.array([[0, 3, 0, 0, 2, 0, 4, 0]], jnp.int32),  # tails at 4 and 1
    )
    agent = jax.tree.map(lambda leaf: leaf[0], replay)
    batch = ring.sample(agent, jax.random.key(0), 600, jnp.array([4, 1]), jnp.array([2, 1]))
    drawn, times = np.unique(np.asarray(batch.observation[:, 0]), return_counts=True)
    assert drawn.tolist() == [2, 3, 4]
    assert times.min() > 150  # uniform: 200 each
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 2)


def test_stored_episodes_are_those_that_finished() -> None:
    ledger = Ledger(1, 40, longest_episode=5, chunk_records=6, num_envs=2)
    final = np.zeros((2, 6), bool)
    final[0, [1, 4]] = final[1, 3] = True
    expected = [
        (episode.start, episode.length)
        for episode in ledger.place(final, np.array([6, 5], np.int32))[1]
    ]
    arrays = ledger.to_arrays()
    lengths = [arrays[f"lengths_{row}"] for row in range(2)]
    assert stored_episodes(arrays["running_start"], lengths, 0, 2) == expected
    newest = stored_episodes(arrays["running_start"], lengths, 0, 2, steps=4)
    assert newest == [expected[1]]  # two steps of each environment
