"""RE3 and RISE among all states: notes against brute force over everything visited, in NumPy."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import KEY, init, observe, padded_episode, reward_of, transitions, update

from element_rl.acting.collector import Chunk, ProcessCollector
from element_rl.agents import sac
from element_rl.agents.sac import SACConfig
from element_rl.envs.make import describe
from element_rl.integrations import IntrinsicReward
from element_rl.rewards import Reward, RewardSpec, make_bonus, make_replay_reward, make_reward
from element_rl.rewards.interface import comparing, remembering
from element_rl.training.off_policy.learner import Learner

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
STEPS, SEEDS = 12, [4, 7]
AGENT = sac.agent(SACConfig(hidden_sizes=(16,), batch_size=8), 2, 2)


@pytest.fixture(scope="module")
def chunks() -> list[Chunk]:
    """A hundred random steps of two agents, one step a chunk."""
    collected = []
    with ProcessCollector(
        "PointMaze", SEEDS, 1, None, {}, env_options={"max_episode_steps": STEPS}, num_workers=0
    ) as collector:
        for index in range(100):
            collector.start(index, None)
            chunk = collector.wait()
            fields = (np.array(getattr(chunk, f.name)) for f in dataclasses.fields(Chunk))
            collected.append(Chunk(*fields))
    return collected


def filled(reward: Reward, chunks: list[Chunk], capacity: int) -> Learner:
    spec = describe("PointMaze", max_episode_steps=STEPS)
    learner = Learner(spec, reward, AGENT, SEEDS, capacity, 1, total_steps=100)
    for chunk in chunks:
        learner.ingest(chunk)
    return learner


def visited(learner: Learner, chunks: list[Chunk], agent: int, encoded: bool) -> np.ndarray:
    """What every transition of an ended episode led to, in order: states, or RE3's encodings."""
    wide = filled(learner.reward, chunks, capacity=400)  # drops nothing
    tail, count = wide.ledger.sampleable()[agent, :, 0]
    slot = np.asarray(wide.state.replay.sampleable[agent])[tail : tail + count] + 1
    if not encoded:
        return np.asarray(wide.state.replay.state[agent])[slot]
    state = jax.tree.map(lambda leaf: leaf[agent], wide.state.rewards.inner)
    seen = np.asarray(wide.state.replay.observation[agent])[slot]
    batch = transitions(len(slot), next_observation=seen)
    return np.asarray(learner.reward.inner.vectors(state, batch))


def nearest(asked: np.ndarray, rows: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """The k smallest distances of vectors to all the others; `rows` are their own."""
    distances = np.linalg.norm(asked[:, None].astype(float) - vectors[None], axis=-1)
    distances[np.arange(len(rows)), rows] = np.inf
    return np.sort(distances, axis=1)[:, :k]


@pytest.mark.parametrize("capacity", [400, 60])
@pytest.mark.parametrize("space", ["state", "observation"])
def test_notes_are_the_distances_to_all_others(
    capacity: int, space: str, chunks: list[Chunk]
) -> None:
    """Also where the ring has come round: what it has dropped still counts."""
    reward = make_reward("re3", pool="whole", space=space, feature_dim=6)
    learner = filled(reward, chunks, capacity)
    for agent in range(2):
        vectors = visited(learner, chunks, agent, encoded=space == "observation")
        assert learner.memory_sizes()[agent] == len(vectors) == 96
        tail, count = learner.ledger.sampleable()[agent, :, 0]
        assert count == (96 if capacity == 400 else 48)
        position = (tail + np.arange(count)) % capacity
        slots = np.asarray(learner.state.replay.sampleable[agent])[position]
        notes = np.asarray(learner.state.replay.notes["neighbour_distances"][agent])[slots]
        rows = np.arange(len(vectors) - count, len(vectors))
        expected = nearest(vectors[rows], rows, vectors, 3)
        np.testing.assert_allclose(notes, expected, rtol=1e-4, atol=1e-6)


def test_a_scaled_reward_still_remembers(chunks: list[Chunk]) -> None:
    whole = make_replay_reward("rise", options={"pool": "whole"})
    scaled = make_replay_reward("rise", options={"pool": "whole"}, recent_scale=True)
    assert remembering(whole) is whole
    assert remembering(scaled) is scaled
    assert remembering(make_replay_reward("rise", recent_scale=True)) is None
    assert comparing(whole) is None
    one, other = (filled(reward, chunks, 400) for reward in (whole, scaled))
    np.testing.assert_array_equal(
        one.state.replay.notes["neighbour_distances"],
        other.state.replay.notes["neighbour_distances"],
    )
    np.testing.assert_array_equal(one.memory_sizes(), other.memory_sizes())
    first = jax.tree.map(lambda leaf: leaf[0], other.state.rewards)
    assert remembering(scaled).with_room(first, 100_000).inner.memory.states.shape[0] >= 100_000


def line(reward: Reward, state: Any, notes: Any, places: list[float], kept: int) -> Any:
    """An episode through these places on a line, stored in rows from `kept` on, and all notes."""
    states = np.zeros((8, 2))
    states[: len(places), 0] = places
    episode = padded_episode(8, len(places), state=states)
    before = state
    state, new = observe(reward, state, episode)
    memory = remembering(reward)
    rows = np.arange(kept, kept + len(places))
    notes["neighbour_distances"][rows] = np.asarray(new["neighbour_distances"])[: len(places)]
    notes["state"][rows] = states[: len(places)]
    slots = np.full(8, 16, np.int32)
    slots[: len(places)] = rows
    merged = memory.refresh(
        before,
        state,
        episode,
        jnp.asarray(slots),
        {"neighbour_distances": jnp.asarray(notes["neighbour_distances"])},
        jnp.asarray(notes["state"]),
        jnp.asarray(16),
    )
    notes["neighbour_distances"] = np.array(merged["neighbour_distances"])
    return state


def noted(values: np.ndarray, rows: list[int]) -> Any:
    return transitions(len(rows), notes={"neighbour_distances": values[rows]})


@pytest.mark.parametrize(
    ("name", "options", "worth"),
    [
        ("re3", {}, lambda d: np.log1p(d)),
        ("rise", {"num_neighbours": 3, "order": 0.5}, np.sqrt),
    ],
)
def test_by_hand(name: str, options: dict, worth: Any) -> None:
    """On a line 0, 1, 3, then 7: with fewer than three others the farthest counts, then the third
    neighbours are 7, 6, 4 and 7 away. A second 0 is a neighbour at distance 0."""
    reward = make_reward(name, pool="whole", **options)
    state = init(reward, KEY, SPEC)
    notes = {
        "neighbour_distances": np.zeros((16, 3), np.float32),
        "state": np.zeros((16, 2), np.float32),
    }
    state = line(reward, state, notes, [0, 1, 3], kept=0)
    few = noted(notes["neighbour_distances"], [0, 1, 2])
    np.testing.assert_allclose(reward_of(reward, state, few), worth(np.array([3, 2, 3])), rtol=1e-6)
    state = line(reward, state, notes, [7], kept=3)
    batch = noted(notes["neighbour_distances"], [0, 1, 2, 3, 0])
    expected = worth(np.array([7, 6, 4, 7, 7]))
    np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-6)
    state = line(reward, state, notes, [0], kept=4)
    np.testing.assert_allclose(
        notes["neighbour_distances"][[0, 4]], [[0, 1, 3], [0, 1, 3]], rtol=1e-6
    )
    assert int(state.memory.size) == 5


def test_the_codes_deviation_is_of_the_distances_sampled() -> None:
    reward = make_reward("re3", pool="whole", form="code")
    state, so_far = init(reward, KEY, SPEC), []
    for seed in range(3):
        distances = np.sort(np.random.default_rng(seed).uniform(size=(6, 3)), axis=1)
        batch = transitions(6, notes={"neighbour_distances": distances})
        so_far += distances[:, 2].tolist()
        state, _ = update(reward, state, batch, KEY)
        np.testing.assert_allclose(
            reward_of(reward, state, batch), distances[:, 2] / np.std(so_far), rtol=1e-5
        )


def test_beside_somebody_elses_replay(tmp_path: Any) -> None:
    """The same numbers from `IntrinsicReward`, and after it was saved in the middle."""
    spaces = gymnasium.spaces
    box, action = spaces.Box(-9, 9, (2,), np.float32), spaces.Box(-1, 1, (1,), np.float32)
    sizes = {"capacity": 64, "max_episode_steps": 10, "total_steps": 200}
    bonus = IntrinsicReward("re3", box, action, options={"pool": "whole"}, position=[0, 1], **sizes)
    rng = np.random.default_rng(0)
    places = rng.normal(size=(31, 2)).astype(np.float32)
    for t in range(30):
        ends = t % 10 == 9
        step = (places[t][None], np.zeros((1, 1)), places[t + 1][None], [False], [ends])
        bonus.observe(*step)
        if t == 14:
            bonus.save(tmp_path)
            bonus = IntrinsicReward.load(tmp_path)
    ids = np.arange(30)
    values = bonus.reward(ids, places[:-1], np.zeros((30, 1)), places[1:])
    states = np.asarray(bonus.noted.state[:30])
    expected = np.log1p(nearest(states, ids, states, 3)[:, 2])
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"RiseConfig\.pool is 'whole'; choose sample with"):
        make_reward("rise", pool="whole", space="observation")
    sizes = {"state_dim": 4, "actions": 2, "max_episode_steps": 8, "total_steps": 100}
    with pytest.raises(ValueError, match="re3 with pool=whole is for learners from a replay"):
        make_bonus("re3", options={"pool": "whole"}, **sizes)
