"""The framework-free form for rollouts: the rewards of the library's own on-policy form, for
several environments at once."""

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from support.walks import ACTIONS, OBSERVATIONS, SMALL, Walk, walk

from element_rl import RolloutReward
from element_rl.encoders.state import make_state_encoder
from element_rl.rewards import make_bonus
from element_rl.rewards.on_rollouts import EpisodeSoFar, Part


def bonus_of(name: str = "element", num_envs: int = 1, **settings: Any) -> RolloutReward:
    own = {} if name == "element" else {"minibatch_size": 10}
    given = {
        "max_episode_steps": 60,
        "total_steps": 400,
        "options": {**SMALL.get(name, {}), **own},
    } | settings
    return RolloutReward(name, OBSERVATIONS, ACTIONS, num_envs=num_envs, **given)


def part(world: Walk, begin: int, end: int) -> Walk:
    return Walk(*(rows[begin:end] for rows in world))


def without_end(world: Walk) -> Walk:
    never = np.zeros_like(world.terminated)
    return world._replace(terminated=never, truncated=never)


@pytest.mark.parametrize("name", ["element", "rnd", "ngu", "re3", "ride"])
def test_one_environment_is_judged_as_by_the_on_policy_loop(name: str) -> None:
    """An episode of 40 steps in rollouts of 20, then two more; states, observations and actions
    made by hand."""
    bonus = bonus_of(name)
    own = make_bonus(
        name,
        state_dim=5,
        actions=2,
        max_episode_steps=60,
        total_steps=400,
        options=bonus.options,
        observation_dim=4,
    )
    state = own.init(jax.random.fold_in(jax.random.key(0), 1))
    encoder = jax.vmap(make_state_encoder(0, 4))
    for number in range(3):
        world = without_end(walk(40, 1, seed=number, dying=0.0, limit=1000))
        world.truncated[-1] = True
        after = world.after[:, 0].astype(np.float32)
        seen = np.concatenate([world.before[:1, 0].astype(np.float32), after])
        states = np.concatenate([np.zeros((1, 5)), encoder(after, np.zeros((40, 0)))]).astype(
            np.float32
        )
        for rollout, end in enumerate((20, 40)):
            actions = world.action[:end, 0].astype(np.float32)
            so_far = EpisodeSoFar(
                states[: end + 1], actions, np.zeros(end, np.float32), False, seen[: end + 1]
            )
            wanted, terms = own.rewards(state, [Part(so_far, 20)])
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 2), 2 * number + rollout)
            state, _ = own.learn(state, [Part(so_far, 20)], key)
            given = bonus.rollout(*part(world, end - 20, end))
            assert given[:, 0] == pytest.approx(wanted, abs=1e-6)
            assert {
                term: values[:, 0].sum() for term, values in bonus.last_terms.items()
            } == pytest.approx({term: values.sum() for term, values in terms.items()}, rel=1e-5)
        state, _ = own.observe(state, so_far, 40 * (number + 1))
    assert np.any(given)


@pytest.mark.parametrize("name", ["element", "rnd"])
def test_rewards_of_several_environments_stand_where_they_belong(name: str) -> None:
    """What a transition earns does not depend on which environment had it, nor on where episodes
    are cut into rollouts."""
    first, second = walk(30, 3), walk(25, 3, seed=1)
    bonus = bonus_of(name, 3)
    bonus.rollout(*first)
    swapped = pickle.loads(pickle.dumps(bonus))
    order = [2, 0, 1]
    assert bonus.observed == swapped.observed == 90
    bonus.end_episodes()
    swapped.end_episodes()
    values = bonus.rollout(*second)
    turned = swapped.rollout(*(rows[:, order] for rows in second))
    assert turned == pytest.approx(values[:, order], abs=1e-6)
    assert values.shape == (25, 3)
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", ["element", "ngu"])
def test_stored_it_goes_on_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    bonus = bonus_of(name, 3)
    bonus.rollout(*walk(30, 3))
    bonus.save(tmp_path)
    loaded = RolloutReward.load(tmp_path)
    later = walk(25, 3, seed=1)
    for _ in range(2):
        assert np.array_equal(bonus.rollout(*later), loaded.rollout(*later))
    assert bonus.last_metrics == loaded.last_metrics


def test_long_episodes_are_taken_for_several_and_images_are_encoded() -> None:
    images = spaces.Box(0, 255, (40, 40), np.uint8)
    bonus = RolloutReward(
        "element", images, spaces.Discrete(3), num_envs=2, max_episode_steps=8, total_steps=200
    )
    frames = np.random.default_rng(0).integers(0, 255, (20, 2, 40, 40), np.uint8)
    never = np.zeros((20, 2), bool)
    for _ in range(2):
        values = bonus.rollout(
            frames, np.ones((20, 2), int), np.roll(frames, -1, axis=0), never, never
        )
    assert int(bonus.state.episodic.size) == 80  # in ten pieces
    assert values.max() > 0


def test_mistakes_are_answered_by_one_sentence() -> None:
    world = walk(5, 2)
    with pytest.raises(
        ValueError, match=r"Arrays \[T, 3, ...\] were expected, got terminated of shape \(5, 2\)"
    ):
        bonus_of(num_envs=3).rollout(*world)
    with pytest.raises(ValueError, match=r"Rollout 0 has observations that are not finite"):
        bonus_of(num_envs=2).rollout(np.full_like(world.before, np.inf), *world[1:])
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        bonus_of(num_envs=0)
    with pytest.raises(ValueError, match="no intrinsic reward"):
        bonus_of("extrinsic")


def test_a_run_whose_length_nobody_said_is_remembered_from_early_on() -> None:
    bonus = bonus_of("element", num_envs=3, total_steps=None, options=None)
    bonus.rollout(*walk(50, 3))
    with pytest.warns(
        UserWarning, match=r"empty after 150 steps, .*: its first window opens at step 1,000\."
    ):
        bonus.warn_if_memory_is_empty()
    bonus.rollout(*walk(350, 3))
    assert 80 < bonus.memory_size < 120
