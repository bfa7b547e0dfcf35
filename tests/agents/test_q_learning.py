"""Q-learning by hand, on probe worlds, and its choice of actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.agents.q_learning import QLearningConfig, act, create, update, update_known

CONFIG = QLearningConfig(learning_rate=0.5, discount=0.8, initial_value=0.0)


def test_one_update_by_hand() -> None:
    values = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    after = update(values, jnp.asarray(0), jnp.asarray(1), jnp.asarray(2.0), jnp.asarray(1), CONFIG)
    # target 2 + 0.8 · 5 = 6, and half of the way from 2 to it is 4
    assert np.asarray(after) == pytest.approx(np.array([[1.0, 4.0], [3.0, 5.0]]))


def test_known_pairs_are_updated_from_the_same_table() -> None:
    values = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    known = jnp.array([[True, False], [True, True]])
    next_states = jnp.array([[0, 0], [1, 0]])
    rewards = jnp.array([[1.0, 9.0], [0.0, -2.0]])
    after = update_known(values, known, rewards, next_states, CONFIG)
    # (0,0): 1 + 0.8·2 = 2.6 → 1.8; (1,0): 0.8·5 = 4 → 3.5; (1,1): −2 + 0.8·2 = −0.4 → 2.3; (0,1)
    # was never tried
    assert np.asarray(after) == pytest.approx(np.array([[1.8, 2.0], [3.5, 2.3]]))


def test_many_updates_find_the_values() -> None:
    """A chain 0 → 1 → 2 with 1 for staying in 2: V(2) = 1 / (1 − γ), and γ less for each step
    before."""
    next_states, rewards = (
        jnp.array([[0, 1], [0, 2], [1, 2]]),
        jnp.array([[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    )
    values = create(3, 2, CONFIG)
    for _ in range(200):
        values = update_known(values, jnp.ones((3, 2), bool), rewards, next_states, CONFIG)
    assert np.asarray(values[:, 1]) == pytest.approx([4.0, 5.0, 5.0], abs=1e-4)


def test_actions() -> None:
    keys = jax.random.split(jax.random.key(0), 4_000)
    values = jnp.array([[1.0, 3.0, 3.0, 0.0]])

    def shares(epsilon: float) -> np.ndarray:
        chosen = jax.vmap(lambda key: act(values, jnp.asarray(0), key, jnp.asarray(epsilon)))(keys)
        return np.bincount(chosen, minlength=4) / len(keys)

    assert shares(0.0) == pytest.approx([0.0, 0.5, 0.5, 0.0], abs=0.03)
    assert shares(0.4) == pytest.approx([0.1, 0.4, 0.4, 0.1], abs=0.03)
    assert shares(1.0) == pytest.approx([0.25] * 4, abs=0.03)


def test_settings_out_of_range() -> None:
    assert create(2, 3, QLearningConfig(initial_value=7.0)).tolist() == [[7.0] * 3] * 2
    with pytest.raises(ValueError, match="discount must be at least 0 and below 1, got 1"):
        QLearningConfig(discount=1.0)
    with pytest.raises(ValueError, match="learning_rate must be above 0 and at most 1, got 0"):
        QLearningConfig(learning_rate=0.0)
