"""The device side on real chunks: notes stay exact, the bonus reaches the critic's target, populations do not leak."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl import replay as ring
from element_rl.agents import sac
from element_rl.agents.sac import Batch, SACConfig
from element_rl.envs.collector import Chunk, Collector
from element_rl.learner import Learner
from element_rl.memory.graph import GraphConfig
from element_rl.rewards import make_reward
from element_rl.rewards.element import in_update_window

SMALL = SACConfig(hidden_sizes=(16, 16), batch_size=16, learn_start=100)
ENV = "Hopper-v5"  # short episodes, so that many end
CHUNK = 50


def copied(chunk: Chunk) -> Chunk:
    return Chunk(**{f.name: np.array(getattr(chunk, f.name)) for f in dataclasses.fields(Chunk)})


@pytest.fixture(scope="module")
def chunks() -> tuple[list[Chunk], object]:
    """Twelve chunks of two agents acting at random."""
    with Collector(ENV, [3, 4], CHUNK, None, {}, env_options={"max_episode_steps": 60}, num_workers=0) as collector:
        collected = []
        for index in range(12):
            collector.start(index, None)
            collected.append(copied(collector.wait()))
        return collected, collector.spec


def make_learner(spec, seeds=(3, 4), capacity: int = 2_000, reward=None, **options) -> Learner:
    settings = {"memory": "exact", "update_interval": 100, "update_steps": 40, "estimator": "renyi"} | options
    reward = make_reward("element", **settings) if reward is None else reward
    return Learner(spec, reward, SMALL, list(seeds), capacity, CHUNK, total_steps=2_000)


def agent_chunk(chunk: Chunk, agent: int) -> Chunk:
    return Chunk(**{f.name: getattr(chunk, f.name)[agent : agent + 1] for f in dataclasses.fields(Chunk)})


@pytest.mark.parametrize(("memory", "capacity"), [("exact", 2_000), ("hnsw", 2_000), ("exact", 300)])
def test_notes_equal_a_fresh_query_after_any_number_of_chunks(chunks, memory: str, capacity: int) -> None:
    """Every sampleable transition's note is the three nearest of all states that entered, its own node left out —
    also after the ring has come round."""
    collected, spec = chunks
    learner = make_learner(spec, memory=memory, capacity=capacity)
    steps = np.zeros(2, int)
    entered: list[list[np.ndarray]] = [[], []]
    own_of: list[dict[bytes, int]] = [{}, {}]
    for chunk in collected:
        for episode in learner.ingest(chunk):
            states = learner.state.replay.state[episode.agent]
            for t in range(episode.length):
                if in_update_window(episode.step + t, learner.reward.config):
                    state = np.asarray(states[(episode.start + t + 1) % capacity])
                    own_of[episode.agent][state.tobytes()] = len(entered[episode.agent])
                    entered[episode.agent].append(state)
            steps[episode.agent] += episode.length
    for agent in range(2):
        assert len(entered[agent]) > 50
        memory_states = np.array(entered[agent], np.float64)
        replay = jax.tree.map(lambda leaf, agent=agent: leaf[agent], learner.state.replay)
        tail, count = int(learner.ledger.sample_tail[agent]), int(learner.ledger.sample_count[agent])
        assert count > 0.25 * capacity if capacity < 1000 else count > 400
        slots = np.asarray(replay.sampleable)[(tail + np.arange(count)) % capacity]
        states = np.asarray(replay.state)[(slots + 1) % capacity]
        distances = np.linalg.norm(states[:, None].astype(np.float64) - memory_states[None], axis=-1)
        for row, state in enumerate(states):
            own = own_of[agent].get(state.tobytes())
            if own is not None:
                distances[row, own] = np.inf
        expected = np.sort(distances, axis=1)[:, :3]
        np.testing.assert_allclose(
            np.asarray(replay.notes["neighbour_distances"])[slots], expected, rtol=1e-4, atol=1e-5
        )


def test_entropy_notes_are_those_of_the_own_episode(chunks) -> None:
    collected, spec = chunks
    learner = make_learner(spec)
    finished = [episode for chunk in collected for episode in learner.ingest(chunk)]
    for episode in finished:
        slots = episode.start + np.arange(episode.length)
        states = learner.state.replay.state[episode.agent, slots + 1]
        noted = np.asarray(learner.state.replay.notes["episode_entropy"][episode.agent, slots])
        kernel = np.exp(-np.square(np.asarray(states)[:, None] - np.asarray(states)[None]).sum(-1) / 2.0)
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
    ours = jax.tree.map(lambda leaf: leaf[1], both.state)
    theirs = jax.tree.map(lambda leaf: leaf[0], alone.state)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def test_the_bonus_and_nothing_else_reaches_the_critic_target(chunks) -> None:
    """Doubling β changes the target by exactly β·r_l; a constant reward changes it by a constant."""
    collected, spec = chunks
    learner = make_learner(spec)
    for chunk in collected:
        learner.ingest(chunk)
    agent = jax.tree.map(lambda leaf: leaf[0], learner.state.agents)
    state = jax.tree.map(lambda leaf: leaf[0], learner.state.rewards)
    replay = jax.tree.map(lambda leaf: leaf[0], learner.state.replay)
    tail, count = learner.ledger.sample_tail[0], learner.ledger.sample_count[0]
    batch = ring.sample(replay, jax.random.key(0), 64, jnp.asarray(tail), jnp.asarray(count))
    noise = jnp.zeros(batch.action.shape)

    def target(rewards: jax.Array) -> jax.Array:
        learned = Batch(batch.observation, batch.action, rewards, batch.next_observation, batch.terminated)
        return sac.critic_target(agent, learned, noise, 0.99)

    plain = learner.reward.reward(state, batch)
    doubled = learner.reward.reward(state._replace(lifelong_weight=2 * state.lifelong_weight), batch)
    lifelong = learner.reward.reward_terms(state, batch)["reward_lifelong"]
    assert float(lifelong.max()) == 1.0
    np.testing.assert_allclose(target(doubled) - target(plain), 0.5 * lifelong, atol=1e-4)
    np.testing.assert_allclose(target(plain + 3.0) - target(plain), 3.0, atol=1e-4)
    np.testing.assert_allclose(target(plain) - plain, target(jnp.zeros_like(plain)), atol=1e-4)


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


def test_nothing_is_traced_again(chunks) -> None:
    collected, spec = chunks
    learner = make_learner(spec)
    for chunk in collected[:6]:
        learner.ingest(chunk)
        learner.update()
    before = [f._cache_size() for f in (learner._ingest, learner._finish, learner._update)]
    for chunk in collected[6:]:
        learner.ingest(chunk)
        learner.update()
    assert [f._cache_size() for f in (learner._ingest, learner._finish, learner._update)] == before


def test_shannon_entropies_of_the_latest_episodes(chunks) -> None:
    collected, spec = chunks
    learner = make_learner(spec)
    last = {}
    for chunk in collected:
        for episode in learner.ingest(chunk):
            last[episode.agent] = episode
    start, length = (np.array([getattr(last[a], name) for a in range(2)]) for name in ("start", "length"))
    values = np.asarray(learner.shannon_entropies(start, length))
    for agent in range(2):
        states = np.asarray(learner.state.replay.state[agent, start[agent] + 1 + np.arange(length[agent])], np.float64)
        kernel = np.exp(-np.square(states[:, None] - states[None]).sum(-1) / 2.0)
        eigenvalues = np.clip(np.linalg.eigvalsh(kernel / len(states)), 0, None)
        expected = np.log2((eigenvalues**1.001).sum()) / (1 - 1.001)
        assert values[agent] == pytest.approx(expected, rel=2e-3)
