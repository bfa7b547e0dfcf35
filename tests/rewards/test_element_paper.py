"""The printed form: the graph's own answers, at every sample, and nothing else than is printed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import KEY, init, observe, padded_episode, reward_of, transitions, update

from element_rl.memory import exact, graph
from element_rl.memory.graph import GraphConfig
from element_rl.rewards import RewardSpec, make_bonus, make_replay_reward, make_reward
from element_rl.rewards.element_paper import PrintedElementReward, PrintedState
from element_rl.rewards.interface import entropy_kernel, remembering

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=40, total_steps=400
)
EARLY: dict[str, Any] = {"update_interval": 40, "update_steps": 40}
searched = jax.jit(PrintedElementReward.searched, static_argnums=0)
terms_of = jax.jit(PrintedElementReward.reward_terms, static_argnums=0)


def walk(seed: int, length: int = 40) -> np.ndarray:
    steps = np.random.default_rng(seed).normal(size=(length, 2))
    return np.cumsum(steps, axis=0).astype(np.float32)


def lived(reward: PrintedElementReward, episodes: int) -> tuple[PrintedState, list[Any]]:
    """A state after episodes of 40 steps; those from step 40 on are remembered, but for t mod U =
    0."""
    state, notes = init(reward, KEY, SPEC), []
    for number in range(episodes):
        episode = padded_episode(40, 40, state=walk(number))
        state, new = observe(reward, state, episode._replace(step=episode.step + 40 * number))
        notes.append(new)
    return state, notes


def test_settings_are_the_papers() -> None:
    tables = {
        "Hopper-v5": ("kde", 20, 20),
        "Walker2d-v5": ("knn", 10, 5),
        "Ant-v5": ("renyi", 20, 10),
        "Humanoid-v4": ("renyi", 20, 10),
    }
    for env, (estimator, steps, restarts) in tables.items():
        for total_steps in (1_000, None):
            config = make_replay_reward("element-paper", env=env, total_steps=total_steps).config
            assert config.estimator == estimator
            assert (config.graph.search_steps, config.graph.restarts) == (steps, restarts)
            assert (config.update_interval, config.update_steps) == (500_000, 50_000)
            assert config.first_interval is None
            assert (config.lifelong_weight, config.bandwidth, config.num_neighbours) == (0.5, 1, 3)
            assert (config.renyi_order, config.estimator_neighbours) == (3, 5)
            assert (config.credit, config.normalisation, config.memory) == (
                *("episode", "batch"),
                "graph",
            )


def test_other_forms_are_refused() -> None:
    for option in ({"credit": "state"}, {"memory": "exact"}, {"normalisation": "running"}):
        (name,) = option
        with pytest.raises(ValueError, match=f"element-paper has {name}=.*, as printed"):
            make_reward("element-paper", **option)
    with pytest.raises(ValueError, match="recent_scale is for other rewards than element-paper"):
        make_replay_reward("element-paper", recent_scale=True)


def test_every_state_of_an_episode_is_noted_its_entropy_and_nothing_of_the_memory() -> None:
    reward, plain = make_reward("element-paper", **EARLY), make_reward("element", **EARLY)
    state, notes = lived(reward, 2)
    assert reward.note_shapes() == {"episode_entropy": ()}
    for number, note in enumerate(notes):
        entropy = plain.episode_entropy(padded_episode(40, 40, state=walk(number)))
        np.testing.assert_allclose(note["episode_entropy"], np.full(40, entropy), rtol=1e-5)
    assert int(state.memory.size) == 39
    np.testing.assert_array_equal(state.memory.states[:39], walk(1)[1:])
    assert remembering(reward) is reward
    assert entropy_kernel(reward) == entropy_kernel(plain)


def test_the_search_is_algorithm_1_from_nodes_drawn_anew_at_every_update() -> None:
    reward = make_reward("element-paper", **EARLY, graph=GraphConfig(search_steps=4, restarts=2))
    state, _ = lived(reward, 4)
    asked = walk(9, 16)
    batch = transitions(16, state=asked, notes={"episode_entropy": np.arange(16)})
    answers = []
    for updates in range(3):
        key = jax.random.fold_in(jax.random.key(state.seed), updates)
        expected = []
        for row, row_key in zip(asked, jax.random.split(key, 16), strict=True):
            starts = graph.random_starts(row_key, state.memory.size, 2)
            expected.append(graph.search(state.memory, jnp.asarray(row), 3, starts, 4)[0])
        answers.append(np.asarray(searched(reward, state, batch.state)))
        np.testing.assert_allclose(answers[-1], np.stack(expected), rtol=1e-6)
        np.testing.assert_array_equal(searched(reward, state, batch.state), answers[-1])
        state, _ = update(reward, state, batch, KEY)
    assert not np.array_equal(answers[0], answers[1])
    assert not np.array_equal(answers[1], answers[2])


def test_r_l_is_the_graphs_answer_and_not_the_exact_one() -> None:
    """Walks over a graph of threads miss neighbours; what is paid is what they found."""
    reward = make_reward("element-paper", **EARLY, graph=GraphConfig(search_steps=4, restarts=2))
    state, _ = lived(reward, 8)
    asked = jnp.asarray(walk(9, 32))
    found = np.asarray(searched(reward, state, asked))
    remembered = exact.create(512, 2)._replace(size=state.memory.size)
    rows = int(state.memory.size)
    states = remembered.states.at[:rows].set(state.memory.states[:rows])
    nearest = np.asarray(exact.query(remembered._replace(states=states), asked, 3)[0])
    assert (found >= nearest - 1e-5).all()
    assert (found > nearest + 1e-3).any(axis=1).mean() > 0.2
    batch = transitions(32, state=asked, notes={"episode_entropy": np.arange(32)})
    raw = np.log1p(np.sqrt((found.astype(float) ** 2).sum(axis=1)))
    expected = (raw - raw.min()) / (raw.max() - raw.min())
    terms = terms_of(reward, state, batch)
    np.testing.assert_allclose(terms["reward_lifelong"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms["reward_episodic"], np.arange(32) / 31, rtol=1e-5)
    np.testing.assert_allclose(
        reward_of(reward, state, batch), np.arange(32) / 31 + 0.5 * expected, rtol=1e-4, atol=1e-5
    )


def test_a_node_finds_itself_as_nothing_printed_forbids_it() -> None:
    reward = make_reward("element-paper", **EARLY, graph=GraphConfig(search_steps=40, restarts=40))
    state, _ = lived(reward, 2)
    found = np.asarray(searched(reward, state, state.memory.states[:39]))
    assert (found[:, 0] == 0).mean() > 0.5


def test_an_empty_graph_pays_nothing() -> None:
    reward = make_reward("element-paper")
    state, _ = lived(reward, 3)
    assert int(state.memory.size) == 0
    batch = transitions(4, state=walk(0, 4), notes={"episode_entropy": [1, 2, 3, 4]})
    assert terms_of(reward, state, batch)["reward_lifelong"].tolist() == [0, 0, 0, 0]
    assert reward.why_empty(400_000) == "its first window opens at step 500,000"


def test_agents_search_from_nodes_of_their_own() -> None:
    reward = make_reward("element-paper", **EARLY)
    states = [init(reward, jax.random.key(seed), SPEC) for seed in (0, 1)]
    assert int(states[0].seed) != int(states[1].seed)


def test_on_rollouts_one_graph_answers_for_both_terms() -> None:
    sizes = {"state_dim": 2, "actions": 2, "max_episode_steps": 40, "total_steps": 400}
    bonus = make_bonus("element-paper", options=EARLY, **sizes)
    assert bonus.name == "element-paper"
    config = bonus.config
    assert (config.episodic_nodes, config.normalisation, config.element.memory) == (
        *("window", "batch"),
        "graph",
    )
