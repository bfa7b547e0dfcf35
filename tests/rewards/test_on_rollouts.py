"""Every reward on rollouts: it reaches the advantages, asks without changing, learns, and judges
parts as it judges the whole."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_rewards import SMALL_REWARDS

from benchmarks import bench_bonus
from element_rl.agents.a3c import generalised_advantages
from element_rl.rewards import NAMES, make_bonus
from element_rl.rewards.on_rollouts import (
    Bonus,
    EpisodeSoFar,
    LearningConfig,
    Part,
    minibatches,
)
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

OWN = Path(__file__).parents[2] / "examples" / "own_reward.py"
DIM, ACTIONS = 8, 4
SMALL = SMALL_REWARDS | {"element": {"update_interval": 20, "update_steps": 15}}
SUM = "element + 0.5*rnd*apt"


def bonus_of(name: str, **options: Any) -> Bonus:
    given = {each: {**SMALL[each], **options} for each in ("element", "rnd", "apt")}
    given = (
        given
        if name == SUM
        else {
            **SMALL.get(name, {}),
            **({} if name in ("element", "element-paper") else {"minibatch_size": 10}),
            **options,
        }
    )
    return make_bonus(
        name, state_dim=DIM, actions=ACTIONS, max_episode_steps=60, total_steps=400, options=given
    )


def walk(seed: int, length: int, terminated: bool = False) -> EpisodeSoFar:
    rng = np.random.default_rng(seed)
    states = np.cumsum((1 + seed) * 0.3 * rng.normal(size=(length + 1, DIM)), axis=0).astype(
        np.float32
    )
    actions = rng.integers(0, ACTIONS, length).astype(np.int32)
    return EpisodeSoFar(states, actions, rng.normal(size=length).astype(np.float32), terminated)


def part(episode: EpisodeSoFar, length: int) -> EpisodeSoFar:
    return EpisodeSoFar(
        episode.states[: length + 1], episode.actions[:length], episode.rewards[:length], False
    )


def trained(bonus: Bonus) -> Any:
    """A state after three episodes, each in rollouts of 20."""
    state, step = bonus.init(jax.random.key(0)), 0
    for seed in range(3):
        episode = walk(seed, 40, terminated=True)
        for length in (20, 40):
            state, _ = bonus.learn(state, [Part(part(episode, length), 20)], jax.random.key(length))
        step += 40
        state, _ = bonus.observe(state, episode, step)
    return state


@pytest.fixture(scope="module", params=[*NAMES, SUM])
def named(request: pytest.FixtureRequest) -> tuple[Bonus, Any]:
    bonus = bonus_of(request.param)
    return bonus, trained(bonus)


def test_interface_and_metrics(named: tuple[Bonus, Any]) -> None:
    bonus, state = named
    assert isinstance(bonus, Bonus)
    values, terms = bonus.rewards(state, [Part(walk(5, 33), 13)])
    assert values.shape == (13,)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert set(terms) <= {"reward_episodic", "reward_lifelong", *bonus.metric_names}
    assert all(term.shape == (13,) and np.isfinite(term).all() for term in terms.values())
    learned, metrics = bonus.learn(state, [Part(walk(5, 33), 13)], jax.random.key(1))
    _, observed = bonus.observe(learned, walk(5, 33, terminated=True), 153)
    assert set(metrics) | set(observed) == set(bonus.metric_names) - set(terms)
    assert all(
        isinstance(value, float) and np.isfinite(value) for value in (metrics | observed).values()
    )


def test_reaches_the_learner(named: tuple[Bonus, Any]) -> None:
    """Advantages change with the bonus, and by what it is worth: the reward enters before they are
    taken."""
    bonus, state = named
    episode = walk(6, 40)
    values, _ = bonus.rewards(state, [Part(episode, 20)])
    critic = jnp.asarray(np.random.default_rng(0).normal(size=21), jnp.float32)

    def advantages(rewards: np.ndarray) -> np.ndarray:
        return np.asarray(
            generalised_advantages(
                jnp.asarray(rewards), critic, jnp.asarray(20), jnp.asarray(False), 0.9, 1.0
            )
        )

    without, with_bonus = advantages(np.zeros(20, np.float32)), advantages(values)
    assert np.abs(with_bonus - without).max() > 1e-4
    discounts = 0.9 ** np.arange(20)
    returns = [np.sum(discounts[: 20 - t] * values[t:]) for t in range(20)]
    np.testing.assert_allclose(with_bonus - without, returns, rtol=1e-3, atol=1e-5)


def test_asking_changes_nothing(named: tuple[Bonus, Any]) -> None:
    bonus, state = named
    before = {name: array.copy() for name, array in tree_to_arrays(state).items()}
    first, _ = bonus.rewards(state, [Part(walk(7, 40), 20)])
    bonus.rewards(state, [Part(walk(8, 38), 5)])
    again, _ = bonus.rewards(state, [Part(walk(7, 40), 20)])
    np.testing.assert_array_equal(first, again)
    for name, array in tree_to_arrays(state).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_restored_state_goes_on_the_same(named: tuple[Bonus, Any]) -> None:
    bonus, state = named
    stored = {name: array.copy() for name, array in tree_to_arrays(state, "bonus").items()}
    restored = arrays_to_tree(bonus_of(bonus.name).init(jax.random.key(9)), stored, "bonus")
    given = []
    for mine in (state, restored):
        mine, _ = bonus.learn(mine, [Part(walk(9, 40), 20)], jax.random.key(3))
        mine, _ = bonus.observe(mine, walk(9, 40), 160)
        given.append(bonus.rewards(mine, [Part(walk(4, 40), 20)])[0])
    np.testing.assert_array_equal(given[0], given[1])


@pytest.mark.parametrize("name", ["ngu", "e3b", "ride", "noveld", "etd"])
def test_notes_of_a_part_are_those_of_the_whole(name: str) -> None:
    """The rewards of an episode's rollouts, each seen with what came before it, are the rewards of
    the whole episode."""
    bonus = bonus_of(name)
    state = trained(bonus)
    episode = walk(3, 45)
    whole, _ = bonus.rewards(state, [Part(episode, 45)])
    parts = [
        bonus.rewards(state, [Part(part(episode, length), new)])[0]
        for length, new in ((20, 20), (40, 20), (45, 5))
    ]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4)
    alone, _ = bonus.rewards(state, [Part(walk(3, 45), 5)])
    np.testing.assert_allclose(alone, whole[-5:], rtol=1e-5)


@pytest.mark.parametrize("name", ["rnd", "icm"])
def test_what_was_learned_pays_less(name: str) -> None:
    bonus = bonus_of(name, learning_rate=1e-2, passes=30)
    state, episode = trained(bonus), walk(5, 40)
    before, _ = bonus.rewards(state, [Part(episode, 40)])
    state, metrics = bonus.learn(state, [Part(episode, 40)], jax.random.key(0))
    after, _ = bonus.rewards(state, [Part(episode, 40)])
    assert after.mean() < 0.7 * before.mean()
    assert set(metrics) == set(bonus.metric_names)


@pytest.mark.parametrize("name", ["re3", "rise", "apt"])
def test_standing_still_is_not_new(name: str) -> None:
    """The rollout's own states are neighbours: one that stays in a new place earns nothing, one
    that moves there does."""
    bonus = bonus_of(name)
    state = trained(bonus)
    still = walk(5, 30)
    still = dataclasses.replace(still, states=np.full_like(still.states, 500.0))
    values, _ = bonus.rewards(state, [Part(still, 30)])
    moved, _ = bonus.rewards(state, [Part(walk(5, 30), 30)])
    assert values.max() < 1e-3 < 0.1 < moved.mean()
    still = dataclasses.replace(still, actions=np.zeros_like(still.actions))  # with one action, too
    assert bonus.rewards(state, [Part(still, 30)])[0].max() < 1e-3


def test_extrinsic_reward_is_the_environments_own() -> None:
    bonus = bonus_of("extrinsic", scale=0.5)
    episode = walk(2, 40, terminated=True)
    values, terms = bonus.rewards(bonus.init(jax.random.key(0)), [Part(episode, 7)])
    np.testing.assert_allclose(values, 0.5 * episode.rewards[-7:])
    assert terms == {}


def test_a_reward_of_ones_own() -> None:
    """From a file; it may look at its notes when it learns."""
    bonus = bonus_of(f"{OWN}:make", cells=4)
    state, metrics = bonus.learn(trained(bonus), [Part(walk(3, 40), 20)], jax.random.key(0))
    values, _ = bonus.rewards(state, [Part(walk(3, 40), 20)])
    assert np.isfinite(values).all()
    assert set(metrics) == set(bonus.metric_names)


def test_minibatches() -> None:
    """Each transition at least once per pass, and none more than once more often than another."""
    rows = minibatches(jax.random.key(0), 25, LearningConfig(minibatch_size=10, passes=2))
    assert rows.shape == (6, 10)
    counts = np.bincount(rows[:3].ravel(), minlength=25)
    assert set(counts) == {1, 2}
    few = minibatches(jax.random.key(0), 3, LearningConfig(minibatch_size=10))
    assert sorted(np.bincount(few.ravel())) == [3, 3, 4]
    again = minibatches(jax.random.key(0), 25, LearningConfig(minibatch_size=10, passes=2))
    np.testing.assert_array_equal(rows, again)


def test_few_programs_are_compiled() -> None:
    bonus: Any = bonus_of("e3b")
    state = bonus.init(jax.random.key(0))
    for length in range(30, 60):
        bonus.rewards(state, [Part(walk(0, length), min(length, 20))])
        bonus.learn(state, [Part(walk(0, length), 20 - length % 3)], jax.random.key(0))
    assert bonus._evaluate._cache_size() <= 5
    assert bonus._learn._cache_size() == 1


def test_windows_are_a_tenth_of_a_short_run() -> None:
    def windows(total_steps: int, **options: Any) -> tuple[int, int]:
        bonus: Any = make_bonus(
            "element",
            state_dim=2,
            actions=2,
            max_episode_steps=10,
            total_steps=total_steps,
            options=options,
        )
        return bonus.config.element.update_interval, bonus.config.element.update_steps

    assert windows(10_000_000) == (500_000, 50_000)
    assert windows(100_000) == (10_000, 1_000)
    assert windows(100_000, update_interval=50) == (50, 5)
    assert windows(100_000, update_steps=7) == (10_000, 7)


def test_element_takes_the_papers_settings() -> None:
    bonus: Any = make_bonus(
        "element", state_dim=2, actions=2, max_episode_steps=10, total_steps=100
    )
    settings = bonus.config.element
    assert (settings.lifelong_weight, settings.num_neighbours) == (0.5, 3)
    assert (settings.estimator, settings.renyi_order, settings.bandwidth) == ("renyi", 3.0, 1.0)


def test_condition_of_proposition_2_is_reported() -> None:
    bonus = bonus_of("element", lifelong_estimator="kde")
    _, metrics = bonus.learn(trained(bonus), [Part(walk(3, 20), 20)], jax.random.key(0))
    assert 0 <= metrics["lifelong_condition"] <= 1


def test_costs_are_measured() -> None:
    row = bench_bonus.measure("extrinsic", 0, rounds=1)
    assert row["rewards"] > 0
    row = {
        "reward": "element",
        "nodes": 100_000,
        "rewards": 60.0,
        "learn": 0.5,
        "observe": 14.5,
        "restart": 5.25,
    }
    assert (
        bench_bonus.render([row]).splitlines()[2]
        == "| element | 100,000 | 60 | 0.5 | 14.5 | 75 | 4,000 | 5.25 |"
    )


def test_mistakes_get_one_sentence() -> None:
    with pytest.raises(ValueError, match="no reward called 'curiosity'; choose one of"):
        bonus_of("curiosity")
    with pytest.raises(ValueError, match="rnd does not take these options"):
        bonus_of("rnd", colour=1)
    with pytest.raises(
        ValueError,
        match=r"element does not take these options: colour; it takes .*update_interval",
    ):
        bonus_of("element", colour=1)
    with pytest.raises(ValueError, match="minibatch_size must be at least 1, got 0"):
        bonus_of("rnd", minibatch_size=0)
    bonus = bonus_of("extrinsic")
    with pytest.raises(
        ValueError, match="The last 9 transitions were asked of an episode that has 5"
    ):
        bonus.rewards((), [Part(walk(0, 5), 9)])
