"""On-policy ELEMENT by hand: neighbours, their mean entropy, windows, scaling, and a state that is
restored exactly."""

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.entropy import renyi_entropy
from element_rl.rewards.element_config import ElementConfig
from element_rl.rewards.element_on_policy import (
    OnPolicyElement,
    OnPolicyElementConfig,
)
from element_rl.rewards.episode_nodes import PIECE, NodeStore
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.on_rollouts import EpisodeSoFar, padded_length
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

# states so far apart that the kernel sees no likeness: T of them have an entropy of log2 T bits
FAR = 1000.0


def element(options: dict[str, Any] | None = None, **element_options: Any) -> OnPolicyElement:
    """Windows of steps 11 … 14, 21 … 24 and so on; in them four states enter."""
    windows: dict[str, Any] = {"update_interval": 10, "update_steps": 5, "memory": "exact"}
    config = OnPolicyElementConfig(ElementConfig(**windows | element_options), **(options or {}))
    return OnPolicyElement(config, spec(200, 10))


def spec(total_steps: int, max_episode_steps: int) -> RewardSpec:
    return RewardSpec(2, 1, 2, max_episode_steps, total_steps)


def observe(
    reward: OnPolicyElement, state: Any, states: np.ndarray, step: int
) -> tuple[Any, float]:
    """An episode of these states has ended; also its entropy."""
    reset, actions = np.zeros((1, 2), np.float32), np.zeros(len(states), np.int32)
    rewards = np.zeros(len(states), np.float32)
    episode = EpisodeSoFar(np.concatenate([reset, states]), actions, rewards, False)
    state, metrics = reward.observe(state, episode, step)
    return state, metrics["element_entropy"]


def line(*places: float) -> np.ndarray:
    return np.array([(place, 0.0) for place in places], np.float32)


def test_nothing_is_paid_before_an_episode_has_ended() -> None:
    reward = element()
    state = reward.init()
    np.testing.assert_array_equal(reward.reward(state, line(0, 1, 2)), 0)
    state = reward.count(state, line(0, 1, 2))  # and it leaves no scar
    state, _ = observe(reward, state, line(0, FAR), 2)
    state, _ = observe(reward, state, line(0, FAR, 2 * FAR, 3 * FAR), 6)
    assert np.isfinite(reward.reward(state, line(0, 1, 2 * FAR))).all()


def test_episodic_term_is_the_mean_entropy_of_the_nearest_nodes() -> None:
    """Episodes of two and of four states far apart have 1 and 2 bits."""
    reward = element({"normalisation": "batch"}, num_neighbours=1)
    state = reward.init()
    state, first = observe(reward, state, line(0, FAR), 2)
    state, second = observe(reward, state, line(2 * FAR, 3 * FAR, 4 * FAR, 5 * FAR), 6)
    assert (first, second) == (pytest.approx(1.0), pytest.approx(2.0))
    terms = reward.reward_terms(state, line(1, FAR + 1, 2 * FAR, 5 * FAR))
    np.testing.assert_allclose(terms["reward_episodic"], [0, 0, 1, 1])
    np.testing.assert_array_equal(terms["reward_lifelong"], 0)  # no window yet

    three = element({"normalisation": "batch"}, num_neighbours=3)
    state = three.init()
    for states in (line(0, FAR), line(2 * FAR, 3 * FAR, 4 * FAR, 5 * FAR)):
        state, _ = observe(three, state, states, 2)
    # neighbours of 0: 0, FAR (1 bit each), 2 FAR (2 bits): 4/3. Of 2.1 FAR: 2, 3, 1 FAR: 5/3. Of 4
    # FAR: 2 bits.
    raw = np.array([4 / 3, 5 / 3, 2])
    scaled = (raw - raw.min()) / (raw.max() - raw.min())
    given = three.reward_terms(state, line(0, 2.1 * FAR, 4 * FAR))["reward_episodic"]
    np.testing.assert_allclose(given, scaled, rtol=1e-5)


def test_nodes_can_keep_what_themselves_added() -> None:
    """Two states at one place and one far away have shares of log 3/2, log 3/2 and log 3 (KDE): 0,
    0 and 1 after scaling."""
    reward = element({"normalisation": "batch"}, num_neighbours=1, estimator="kde", credit="state")
    state, entropy = observe(reward, reward.init(), line(0, 0, FAR), 3)
    assert entropy == pytest.approx((2 * np.log(1.5) + np.log(3)) / 3, rel=1e-5)
    np.testing.assert_allclose(
        reward.reward_terms(state, line(1, 2, FAR + 1))["reward_episodic"], [0, 0, 1], atol=1e-6
    )


def test_lifelong_term_by_hand_and_its_windows() -> None:
    """An episode of 8 that ends at step 18 has steps 10 … 17: the states of 11, 12, 13 and 14
    enter, two of them equal."""
    reward = element(
        {"normalisation": "batch"}, num_neighbours=2, episodic_weight=0.0, lifelong_weight=1.0
    )
    state = reward.init()
    state, _ = observe(reward, state, line(*range(90, 98)), 10)  # steps 2 … 9: before U
    assert int(state.lifelong.size) == 0
    state, _ = observe(reward, state, line(70, 0, 1, 5, 5, 71, 72, 73), 18)
    np.testing.assert_array_equal(state.lifelong.states[:4], line(0, 1, 5, 5))
    assert int(state.lifelong.size) == 4
    assert int(state.episodic.size) == 16  # all of both
    # 0 → 0, 1; 2 → 1, 2 away; 5 → twice 0; 10 → 5, 5
    novelty = np.log1p([1.0, math.sqrt(1 + 4), 0.0, 5 * math.sqrt(2)])
    expected = (novelty - novelty.min()) / (novelty.max() - novelty.min())
    np.testing.assert_allclose(reward.reward(state, line(0, 2, 5, 10)), expected, rtol=1e-5)


def test_fewer_nodes_than_neighbours() -> None:
    reward = element({"normalisation": "batch"}, num_neighbours=5)
    state, _ = observe(reward, reward.init(), line(0, FAR), 2)
    state, _ = observe(reward, state, line(3, 4, 5), 14)  # steps 11, 12 and 13
    judged = reward._evaluate(state, line(0, 1))
    assert np.isinf(judged.distances[:, 3:]).all()
    assert np.isfinite(judged.terms).all()
    assert judged.low_high[1, 1] == pytest.approx(math.log1p(math.sqrt(9 + 16 + 25)))


def test_one_windowed_memory_taken_literally() -> None:
    """r_ep is 0 until the first window, and then asks the nodes of the window."""
    literal = element({"episodic_nodes": "window", "normalisation": "batch"}, num_neighbours=1)
    state = literal.init()
    assert state.episodic.states.shape == (0, 2)
    state, _ = observe(literal, state, line(0, FAR), 2)
    np.testing.assert_array_equal(literal.reward(state, line(0, 50)), 0)
    state, _ = observe(literal, state, line(0, FAR), 13)  # steps 11 and 12, 1 bit
    # 21 … 24, 2 bits
    state, _ = observe(literal, state, line(2 * FAR, 3 * FAR, 4 * FAR, 5 * FAR), 25)
    terms = literal.reward_terms(state, line(0, 5 * FAR))
    np.testing.assert_allclose(terms["reward_episodic"], [0, 1])
    # both are remembered: distance 0, a constant
    np.testing.assert_array_equal(terms["reward_lifelong"], 0)


def test_episode_of_one_state_over_and_over() -> None:
    reward = element()
    state, entropy = observe(reward, reward.init(), line(*[3] * 8), 18)
    assert entropy == pytest.approx(0, abs=1e-6)
    values = reward.reward(state, line(*[3] * 8))
    np.testing.assert_array_equal(values, 0)


def test_length_weighted_entropy() -> None:
    """T·H over the mean of T²: lengths 2 then 4 → 2·1/4, then 4·2/10."""
    reward = element(length_weighted=True)
    state, _ = observe(reward, reward.init(), line(0, FAR), 2)
    state, _ = observe(reward, state, line(2 * FAR, 3 * FAR, 4 * FAR, 5 * FAR), 6)
    np.testing.assert_allclose(state.episodic.entropies[:6], [0.5] * 2 + [0.8] * 4, rtol=1e-5)


@pytest.mark.parametrize(
    ("normalisation", "expected"),
    [("batch", [0, 1]), ("recent", [0.5, 0.75]), ("running", [0.25, 0.375])],
)
def test_what_the_terms_are_scaled_by(normalisation: str, expected: list[float]) -> None:
    """Novelties, as logarithms base 2, from 0 to 8, then twice from 0 to 4; a rollout from 2 to 3
    is then scaled by itself, by the last two or by all."""
    reward = element(
        {"normalisation": normalisation, "recent_rollouts": 2},
        num_neighbours=1,
        episodic_weight=0.0,
        lifelong_weight=1.0,
    )
    state, _ = observe(reward, reward.init(), line(0), 12)

    def at(*novelty: float) -> np.ndarray:
        # the only node is at 0: novelty is log(1 + distance)
        return line(*(2.0**bits - 1 for bits in novelty))

    for rollout in (at(0, 8), at(0, 4), at(0, 4)):
        state = reward.count(state, rollout)
    np.testing.assert_allclose(reward.reward(state, at(2, 3)), expected, rtol=1e-5)


def test_scaling_by_one_rollout_loses_how_rollouts_compare() -> None:
    """Episodes of many sizes in a plane: scaled by recent rollouts the mean episodic term of a
    rollout follows that of the unscaled entropies; scaled by itself, hardly."""
    follows = {}
    normalisation: Any
    for normalisation in ("batch", "recent"):
        rng = np.random.default_rng(0)
        reward = OnPolicyElement(
            OnPolicyElementConfig(ElementConfig(memory="hnsw"), normalisation=normalisation),
            spec(12_000, 200),
        )
        state, means = reward.init(), []
        for number in range(40):
            heading = rng.uniform(0, 2 * np.pi) + np.cumsum(0.15 * rng.normal(size=200))
            steps = rng.uniform(0.02, 0.3) * np.stack([np.cos(heading), np.sin(heading)], axis=1)
            states = np.cumsum(steps, axis=0).astype(np.float32)
            for rollout in (states[:100], states[100:]):
                if number >= 20:
                    unscaled = reward._episodic.query(state.episodic, rollout, 3).entropies
                    means.append(
                        (
                            unscaled.mean(),
                            reward.reward_terms(state, rollout)["reward_episodic"].mean(),
                        )
                    )
                state = reward.count(state, rollout)
            state, _ = observe(reward, state, states, 200 * (number + 1))
        follows[normalisation] = np.corrcoef(np.array(means).T)[0, 1]
    assert follows["batch"] < 0.6
    assert follows["recent"] > 0.95


def test_asking_changes_nothing_and_older_states_keep_their_meaning() -> None:
    reward = element()
    older, _ = observe(reward, reward.init(), line(*np.arange(10) ** 2), 20)
    before = reward.reward(older, line(1, 5, 9)), reward.reward_terms(older, line(1, 5, 9))
    newer, _ = observe(reward, older, line(*range(10, 20)), 30)
    other, _ = observe(reward, older, line(*range(40, 50)), 30)  # a second future of the same past
    np.testing.assert_array_equal(newer.episodic.states[10:20], line(*range(10, 20)))
    np.testing.assert_array_equal(other.episodic.states[10:20], line(*range(40, 50)))
    np.testing.assert_array_equal(reward.reward(older, line(1, 5, 9)), before[0])
    assert (
        reward._evaluate(newer, line(15)).low_high[1, 0]
        < reward._evaluate(other, line(15)).low_high[1, 0]
    )


def test_places_that_were_visited_often_count_as_often() -> None:
    """Nodes 0, 0, 0.001, 2 and 5 with entropies 1, 2, 6, 4 and 8: 0 is one place of three visits
    with a mean of 3."""
    store = NodeStore(ElementConfig(memory="exact"), dim=2, capacity=9, merge_distance=0.01)
    nodes = store.append(
        store.create(), line(0, 0, 0.001, 2, 5), np.array([1, 2, 6, 4, 8], np.float32)
    )
    for k, distances, entropy in (
        (2, [1, 1], 3),
        (4, [1, 1, 1, 1], (3 * 3 + 4) / 4),
        (6, [1, 1, 1, 1, 4, np.inf], 21 / 5),
    ):
        found = store.query(nodes, line(1), k)
        np.testing.assert_allclose(found.distances, [distances], rtol=1e-5)
        np.testing.assert_allclose(found.entropies, [entropy], rtol=1e-5)
    apart = NodeStore(ElementConfig(memory="exact"), dim=2, capacity=9)
    nodes = apart.append(apart.create(), line(0, 0, 0.001), np.array([1, 2, 6], np.float32))
    assert apart.query(nodes, line(0.002), 1).entropies == pytest.approx(6)


def test_hnsw_stands_states_that_repeat() -> None:
    """Forty places, each visited five hundred times in a row: what exact search finds, hnsw
    finds."""
    rng = np.random.default_rng(0)
    places = rng.normal(size=(40, 2)).astype(np.float32)
    visited = np.repeat(places, 500, axis=0)
    entropies = rng.uniform(size=len(visited)).astype(np.float32)
    asked = rng.normal(size=(50, 2)).astype(np.float32)
    found = []
    kind: Any
    for kind in ("exact", "hnsw"):
        store = NodeStore(
            ElementConfig(memory=kind), dim=2, capacity=len(visited), merge_distance=0.01
        )
        found.append(store.query(store.append(store.create(), visited, entropies), asked, 3))
    np.testing.assert_allclose(found[0].distances, found[1].distances, rtol=1e-4)
    nearest = np.linalg.norm(asked[:, None] - places[None], axis=2).min(axis=1)
    np.testing.assert_allclose(
        found[1].distances, np.repeat(nearest[:, None], 3, axis=1), rtol=1e-4
    )


def test_what_does_not_fit_is_left_out() -> None:
    store = NodeStore(ElementConfig(), dim=2, capacity=3)
    nodes = store.append(store.create(), line(0, 1), np.ones(2, np.float32))
    nodes = store.append(nodes, line(2, 3), np.ones(2, np.float32))
    assert int(nodes.size) == 3
    assert int(store.append(nodes, line(4), np.ones(1, np.float32)).size) == 3


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_a_state_from_a_file_goes_on_as_if_it_had_not_been_written(
    kind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    episodes = [
        np.cumsum(rng.normal(size=(n, 2)), axis=0).astype(np.float32) for n in (75, 77, 80, 73, 79)
    ]
    reward, again = element(memory=kind), element(memory=kind)
    reward = OnPolicyElement(reward.config, spec(2000, 150))
    again = OnPolicyElement(again.config, spec(2000, 150))

    def lived(
        by: OnPolicyElement, state: Any, some: list[np.ndarray], step: int
    ) -> tuple[Any, list[np.ndarray], int]:
        given = []
        for states in some:
            given.append(by.reward(state, states))
            state, step = by.count(state, states), step + len(states)
            state, _ = observe(by, state, states, step)
        return state, given, step

    state, _, step = lived(reward, reward.init(), episodes[:3], 0)
    write_arrays(tmp_path / "state.safetensors", tree_to_arrays(state, "bonus"))
    restored = arrays_to_tree(again.init(), read_arrays(tmp_path / "state.safetensors")[0], "bonus")
    state, given, _ = lived(reward, state, episodes[3:], step)
    restored, given_again, _ = lived(again, restored, episodes[3:], step)
    for mine, theirs in zip(given, given_again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for name, array in tree_to_arrays(state).items():
        np.testing.assert_array_equal(array, tree_to_arrays(restored)[name], err_msg=name)
    assert int(state.episodic.size) == 384 > PIECE


def test_hnsw_finds_the_entropies_that_exact_finds() -> None:
    rng = np.random.default_rng(1)
    rewards = {kind: element({"normalisation": "batch"}, memory=kind) for kind in ("exact", "hnsw")}
    states = {kind: reward.init() for kind, reward in rewards.items()}
    for step in range(1, 10):
        episode = np.cumsum(step * rng.normal(size=(20, 2)), axis=0).astype(np.float32)
        states = {
            kind: observe(rewards[kind], states[kind], episode, 20 * step)[0] for kind in states
        }
    asked = 5 * rng.normal(size=(30, 2)).astype(np.float32)
    np.testing.assert_allclose(
        rewards["hnsw"].reward(states["hnsw"], asked),
        rewards["exact"].reward(states["exact"], asked),
        rtol=1e-4,
    )


def test_padding_changes_no_entropy() -> None:
    states = np.random.default_rng(0).normal(size=(37, 2)).astype(np.float32)
    _, entropy = observe(element(), element().init(), states, 37)
    assert entropy == pytest.approx(float(renyi_entropy(jnp.asarray(states), 3.0)), rel=1e-5)
    assert [padded_length(rows) for rows in (1, 33, 64, 65, 300, 1000)] == [
        32,
        40,
        64,
        80,
        320,
        1024,
    ]
    assert len({padded_length(rows) for rows in range(1, 301)}) <= 14


def test_mistakes_get_one_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"OnPolicyElementConfig.recent_rollouts is 0; choose at least 1\."
    ):
        OnPolicyElementConfig(recent_rollouts=0)
    with pytest.raises(ValueError, match=r"memory spaced is for learners from a replay; on roll"):
        OnPolicyElementConfig(ElementConfig(memory="spaced"))


def test_everything_can_be_remembered_from_the_first_step_on() -> None:
    reward = element(remember="always", own_episode="out")
    state, _ = observe(reward, reward.init(), line(0, 1, 2), 3)
    assert reward.memory_size(state) == 3
    assert reward.update_window == {}


def test_the_own_episode_never_counts() -> None:
    """A state is judged while its episode runs, and its states are remembered at the end: whatever
    `own_episode` says, the rewards are the same."""
    given = []
    for own_episode in ("in", "out"):
        reward = element(remember="always", own_episode=own_episode)
        state, _ = observe(reward, reward.init(), line(0, 1, 2), 3)
        given.append(reward.reward(state, line(5, 6, 9)))
    np.testing.assert_array_equal(*given)
