"""The device side on real chunks: notes stay exact, the bonus reaches the critic's target,
populations do not leak."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.collector import Chunk, ProcessCollector
from element_rl.agents import sac
from element_rl.agents.sac import Batch, SACConfig
from element_rl.memory.graph import GraphConfig
from element_rl.replay import ring
from element_rl.replay.ledger import StoredEpisode
from element_rl.rewards import make_reward
from element_rl.rewards.element import in_update_window
from element_rl.training.off_policy.learner import Learner

SMALL = SACConfig(hidden_sizes=(16, 16), batch_size=16, learn_start=100)
ENV = "Hopper-v5"  # short episodes, so that many end
CHUNK = 50


def copied(chunk: Chunk) -> Chunk:
    return Chunk(**{f.name: np.array(getattr(chunk, f.name)) for f in dataclasses.fields(Chunk)})


@pytest.fixture(scope="module")
def chunks() -> tuple[list[Chunk], object]:
    """Twelve chunks of two agents acting at random."""
    return collected_chunks()


def collected_chunks(number: int = 12, num_envs: int = 1) -> tuple[list[Chunk], object]:
    options = {"max_episode_steps": 60}
    with ProcessCollector(
        ENV, [3, 4], CHUNK, None, {}, options, num_workers=0, num_envs=num_envs
    ) as collector:
        collected = []
        for index in range(number):
            collector.start(index, None)
            collected.append(copied(collector.wait()))
        return collected, collector.spec


def make_learner(
    spec, seeds=(3, 4), capacity: int = 2_000, reward=None, num_envs: int = 1, **options
) -> Learner:
    settings = {
        "memory": "exact",
        "update_interval": 100,
        "update_steps": 40,
        "estimator": "renyi",
    } | options
    reward = make_reward("element", **settings) if reward is None else reward
    agent = sac.agent(SMALL, spec.observation_dim, spec.action_dim)
    return Learner(
        spec,
        reward,
        agent,
        list(seeds),
        capacity,
        CHUNK,
        total_steps=2_000,
        num_envs=num_envs,
    )


@pytest.fixture(scope="module")
def filled(chunks) -> tuple[Learner, list[StoredEpisode]]:
    """A learner with all chunks, for tests that change nothing in it, and the episodes that have
    ended."""
    collected, spec = chunks
    learner = make_learner(spec)
    return learner, [episode for chunk in collected for episode in learner.ingest(chunk)]


def one_agent(state: Any, agent: int) -> Any:
    """What one agent of a population has, in NumPy: to take it from the device would be a program
    for every shape."""
    return jax.tree.map(lambda leaf: leaf[agent], jax.device_get(state))


def agent_chunk(chunk: Chunk, agent: int) -> Chunk:
    return Chunk(
        **{f.name: getattr(chunk, f.name)[agent : agent + 1] for f in dataclasses.fields(Chunk)}
    )


@pytest.mark.parametrize(
    ("memory", "capacity", "num_envs"),
    [
        ("exact", 2_000, 1),
        ("hnsw", 2_000, 1),
        ("exact", 300, 1),
        ("exact", 1_000, 5),
        ("hnsw", 2_000, 2),
    ],
)
def test_notes_equal_a_fresh_query_after_any_number_of_chunks(
    chunks, memory: str, capacity: int, num_envs: int
) -> None:
    """Every sampleable transition's note is the three nearest of all states that entered, its own
    node left out — also after the ring has come round, and where an agent has several environments.
    """
    collected, spec = chunks if num_envs == 1 else collected_chunks(24, num_envs)
    learner = make_learner(spec, memory=memory, capacity=capacity, num_envs=num_envs)
    entered: list[list[np.ndarray]] = [[], []]
    own_of: list[dict[bytes, int]] = [{}, {}]
    for chunk in collected:
        for episode in learner.ingest(chunk):
            states = np.asarray(learner.state.replay.state)[episode.agent]
            for t in range(episode.length):
                if in_update_window(episode.step + num_envs * t, learner.reward.config):
                    state = states[(episode.start + num_envs * (t + 1)) % capacity]
                    own_of[episode.agent][state.tobytes()] = len(entered[episode.agent])
                    entered[episode.agent].append(state)
    for agent in range(2):
        assert len(entered[agent]) > 50
        memory_states = np.array(entered[agent], np.float64)
        replay = one_agent(learner.state.replay, agent)
        tails, counts = learner.ledger.sampleable()[agent]
        assert counts.sum() > 0.25 * capacity if capacity < 1000 else counts.sum() > 400
        rings = [
            (tail + num_envs * np.arange(count)) % capacity
            for tail, count in zip(tails, counts, strict=True)
        ]
        slots = replay.sampleable[np.concatenate(rings)]
        states = replay.state[(slots + num_envs) % capacity]
        distances = np.linalg.norm(
            states[:, None].astype(np.float64) - memory_states[None], axis=-1
        )
        for row, state in enumerate(states):
            own = own_of[agent].get(state.tobytes())
            if own is not None:
                distances[row, own] = np.inf
        expected = np.sort(distances, axis=1)[:, :3]
        np.testing.assert_allclose(
            replay.notes["neighbour_distances"][slots], expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("memory", "capacity", "num_envs"),
    [("exact", 2_000, 1), ("hnsw", 2_000, 1), ("exact", 300, 1), ("exact", 1_000, 5)],
)
def test_the_own_episode_can_be_left_out(chunks, memory: str, capacity: int, num_envs: int) -> None:
    """Every sampleable transition's note is then the three nearest of all states of other episodes
    that entered; here all states enter, from the first step on."""
    collected, spec = chunks if num_envs == 1 else collected_chunks(24, num_envs)
    options = {"memory": memory, "own_episode": "out", "remember": "always"}
    learner = make_learner(spec, capacity=capacity, num_envs=num_envs, **options)
    entered: list[list[np.ndarray]] = [[], []]
    slots_of: list[list[np.ndarray]] = [[], []]
    for chunk in collected:
        for episode in learner.ingest(chunk):
            states = np.asarray(learner.state.replay.state)[episode.agent]
            slots = (episode.start + num_envs * np.arange(episode.length)) % capacity
            entered[episode.agent].append(states[(slots + num_envs) % capacity])
            slots_of[episode.agent].append(slots)
    for agent in range(2):
        replay = one_agent(learner.state.replay, agent)
        assert int(learner.memory_sizes()[agent]) == sum(map(len, entered[agent]))
        for number in range(len(entered[agent]) - 4, len(entered[agent])):
            own, slots = entered[agent][number], slots_of[agent][number]
            others = np.concatenate(
                [states for index, states in enumerate(entered[agent]) if index != number]
            )
            distances = np.linalg.norm(own[:, None].astype(np.float64) - others[None], axis=-1)
            np.testing.assert_allclose(
                replay.notes["neighbour_distances"][slots],
                np.sort(distances, axis=1)[:, :3],
                rtol=1e-4,
                atol=1e-5,
            )


@pytest.mark.parametrize(
    ("own_episode", "room", "num_envs"),
    [("out", 4_000, 1), ("out", 40, 1), ("in", 40, 1), ("in", 4_000, 1), ("out", 40, 5)],
)
def test_notes_equal_a_fresh_query_of_a_spaced_memory(
    chunks, own_episode: str, room: int, num_envs: int
) -> None:
    """All kept states but those of places where the transition's episode (or itself) alone has
    been, also after the memory was thinned."""
    collected, spec = chunks if num_envs == 1 else collected_chunks(24, num_envs)
    options = {"own_episode": own_episode, "remember": "always", "memory_capacity": room}
    learner = make_learner(spec, memory="spaced", num_envs=num_envs, **options)
    spacings = set()
    for chunk in collected:
        learner.ingest(chunk)
        spacings.add(float(learner.state.rewards.memory.spacing[0]))
    assert (len(spacings - {0.0}) > 2) == (room == 40), "few places: it must have been thinned"
    for agent in range(2):
        memory, replay = (
            one_agent(part, agent) for part in (learner.state.rewards.memory, learner.state.replay)
        )
        kept, visitors = memory.states[: memory.size], memory.visitors[: memory.size]
        assert int(learner.memory_sizes()[agent]) == len(kept) <= room
        assert len(set(visitors.tolist())) > 1
        tails, counts = learner.ledger.sampleable()[agent]
        rings = [
            (tail + num_envs * np.arange(count)) % 2_000
            for tail, count in zip(tails, counts, strict=True)
        ]
        slots = replay.sampleable[np.concatenate(rings)]
        states = replay.state[(slots + num_envs) % 2_000].astype(np.float64)
        distances = np.linalg.norm(states[:, None] - kept[None], axis=-1)
        distances[replay.notes["visitor"][slots][:, None] == visitors[None]] = np.inf
        np.testing.assert_allclose(
            replay.notes["neighbour_distances"][slots],
            np.sort(distances, axis=1)[:, :3],
            rtol=1e-4,
            atol=1e-5,
        )


def test_entropy_notes_are_those_of_the_own_episode(
    filled: tuple[Learner, list[StoredEpisode]],
) -> None:
    learner, finished = filled
    replay = jax.device_get(learner.state.replay)
    for episode in finished:
        slots = episode.start + np.arange(episode.length)
        states = replay.state[episode.agent, slots + 1]
        noted = replay.notes["episode_entropy"][episode.agent, slots]
        kernel = np.exp(-np.square(states[:, None] - states[None]).sum(-1) / 2.0)
        eigenvalues = np.linalg.eigvalsh(kernel.astype(np.float64) / len(states))
        np.testing.assert_allclose(
            noted, -0.5 * np.log2((np.clip(eigenvalues, 0, None) ** 3).sum()), rtol=1e-3, atol=1e-4
        )


def test_agent_in_a_population_equals_agent_alone(chunks) -> None:
    collected, spec = chunks
    both = make_learner(spec)
    alone = make_learner(spec, seeds=(4,))
    for chunk in collected:
        both.ingest(chunk)
        alone.ingest(agent_chunk(chunk, 1))
    both.update()
    alone.update()
    ours, theirs = one_agent(both.state, 1), one_agent(alone.state, 0)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def test_the_bonus_and_nothing_else_reaches_the_critic_target(
    filled: tuple[Learner, list[StoredEpisode]],
) -> None:
    """Doubling β changes the target by exactly β·r_l; a constant reward changes it by a
    constant."""
    learner, _ = filled
    agent, state, replay = (
        one_agent(part, 0)
        for part in (learner.state.agents, learner.state.rewards, learner.state.replay)
    )
    tail, count = jnp.asarray(learner.ledger.sampleable()[0])
    batch = jax.jit(ring.sample, static_argnums=2)(replay, jax.random.key(0), 64, tail, count)
    noise = jnp.asarray(np.zeros(batch.action.shape, np.float32))

    @jax.jit
    def target(rewards: jax.Array) -> jax.Array:
        learned = Batch(
            batch.observation, batch.action, rewards, batch.next_observation, batch.terminated
        )
        return sac.critic_target(agent, learned, noise, 0.99)

    reward_of, terms_of = jax.jit(learner.reward.reward), jax.jit(learner.reward.reward_terms)
    plain = np.asarray(reward_of(state, batch))
    doubled = np.asarray(
        reward_of(state._replace(lifelong_weight=2 * state.lifelong_weight), batch)
    )
    lifelong = np.asarray(terms_of(state, batch)["reward_lifelong"])
    assert float(lifelong.max()) == 1.0
    np.testing.assert_allclose(target(doubled) - target(plain), 0.5 * lifelong, atol=1e-4)
    np.testing.assert_allclose(target(plain + 3.0) - target(plain), 3.0, atol=1e-4)
    np.testing.assert_allclose(target(plain) - plain, target(np.zeros_like(plain)), atol=1e-4)


def test_graph_memory_and_extrinsic_reward_train(chunks) -> None:
    collected, spec = chunks
    graph = GraphConfig(search_steps=3, restarts=3)
    for reward in (
        make_reward("element", memory="graph", graph=graph, update_interval=100, update_steps=40),
        make_reward("extrinsic"),
    ):
        learner = make_learner(spec, reward=reward)
        for chunk in collected[:6]:
            learner.ingest(chunk)
        metrics, parameters = learner.update()
        for name, value in metrics.items():
            assert np.isfinite(np.asarray(value)).all(), name
        assert parameters["weight_0"].shape == (2, 11, 16)


@pytest.mark.parametrize("memory", ["exact", "spaced"])
def test_nothing_is_traced_again(chunks, memory: str) -> None:
    collected, spec = chunks
    learner = make_learner(spec, memory=memory)
    for chunk in collected[:6]:
        learner.ingest(chunk)
        learner.update()
    before = [f._cache_size() for f in (learner._ingest, learner._finish, learner._update)]
    for chunk in collected[6:]:
        learner.ingest(chunk)
        learner.update()
    assert [f._cache_size() for f in (learner._ingest, learner._finish, learner._update)] == before


def test_evaluation_entropies_of_the_latest_episodes(
    filled: tuple[Learner, list[StoredEpisode]],
) -> None:
    learner, finished = filled
    last = {episode.agent: episode for episode in finished}
    start, length = (
        np.array([getattr(last[a], name) for a in range(2)]) for name in ("start", "length")
    )
    values = np.asarray(learner.evaluation_entropies(start, length))
    for agent in range(2):
        states = np.asarray(learner.state.replay.state, np.float64)[
            agent, start[agent] + 1 + np.arange(length[agent])
        ]
        kernel = np.exp(-np.square(states[:, None] - states[None]).sum(-1) / 2.0)
        eigenvalues = np.clip(np.linalg.eigvalsh(kernel / len(states)), 0, None)
        expected = np.log2((eigenvalues**1.001).sum()) / (1 - 1.001)
        assert values[agent] == pytest.approx(expected, rel=2e-3)
