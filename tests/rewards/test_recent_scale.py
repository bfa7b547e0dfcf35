"""A reward over its recent deviation, against a loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.extrinsic import ExtrinsicConfig, ExtrinsicReward
from element_rl.rewards.recent_scale import RecentlyScaled

SPEC = RewardSpec(observation_dim=1, action_dim=1, state_dim=1, max_episode_steps=4, total_steps=10)


def batch_of(rewards: list[float] | np.ndarray) -> Transitions:
    rows = jnp.zeros((len(rewards), 1))
    return Transitions(
        rows, rows, rows, jnp.asarray(rewards, jnp.float32), rows[:, 0] > 0, rows, {}
    )


def test_numbers_of_several_updates() -> None:
    scaled = RecentlyScaled(ExtrinsicReward(ExtrinsicConfig(scale=2.0)), rate=0.1)
    assert isinstance(scaled, Reward)
    state = scaled.init(jax.random.key(0), SPEC)
    rng = np.random.default_rng(0)
    mean = square = 0.0
    for turn in range(1, 20):
        values = rng.exponential(size=8) * turn
        mean += 0.1 * (np.mean(2 * values) - mean)
        square += 0.1 * (np.mean((2 * values) ** 2) - square)
        state, metrics = scaled.update(state, batch_of(values), jax.random.key(turn))
        weight = 1 - 0.9**turn
        deviation = np.sqrt(square / weight - (mean / weight) ** 2)
        assert float(metrics["reward_deviation"]) == pytest.approx(deviation, rel=1e-4)
        assert np.asarray(scaled.reward(state, batch_of(values))) == pytest.approx(
            2 * values / deviation, rel=1e-4
        )
    assert tuple(metrics) == scaled.metric_names


def test_first_update_scales_by_the_first_batch_and_constants_are_left_alone() -> None:
    scaled = RecentlyScaled(ExtrinsicReward())
    state = scaled.init(jax.random.key(0), SPEC)
    assert np.asarray(scaled.reward(state, batch_of([1.0, 3.0]))) == pytest.approx([1.0, 3.0])
    first, _ = scaled.update(state, batch_of([1.0, 3.0]), jax.random.key(0))
    # their deviation is 1
    assert np.asarray(scaled.reward(first, batch_of([1.0, 3.0]))) == pytest.approx([1.0, 3.0])
    constant, _ = scaled.update(state, batch_of([7.0, 7.0]), jax.random.key(0))
    assert np.asarray(scaled.reward(constant, batch_of([7.0]))) == pytest.approx([7.0])
    tiny, _ = scaled.update(state, batch_of([1e-6, 3e-6]), jax.random.key(0))
    assert np.asarray(scaled.reward(tiny, batch_of([1e-6, 3e-6]))) == pytest.approx(
        [1.0, 3.0], rel=1e-3
    )
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        RecentlyScaled(ExtrinsicReward(), rate=0.0)
