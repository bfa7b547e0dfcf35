"""Probe environments: problems so small that the right answer is known, learned by `sac.update`
from synthetic batches."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.agents import sac
from element_rl.agents.networks import squashed_gaussian

# One configuration for all probes, so that one compilation serves them all; α stays at its initial
# value.
CONFIG = sac.SACConfig(
    hidden_sizes=(32, 32),
    actor_learning_rate=3e-3,
    critic_learning_rate=3e-3,
    temperature_learning_rate=0.0,
    initial_temperature=1e-6,
    discount=0.5,
    target_rate=0.05,
)
UPDATES, BATCH = 1500, 64
GRID = jnp.linspace(-0.9, 0.9, 7)


@partial(jax.jit, donate_argnums=0)
def train(state: sac.SACState, batches: sac.Batch, keys: jax.Array) -> sac.SACState:
    return jax.lax.scan(lambda carry, x: sac.update(carry, *x, CONFIG), state, (batches, keys))[0]


def learn(batches: sac.Batch, temperature: float = 1e-6) -> sac.SACState:
    state = sac.create(jax.random.key(0), 1, 1, CONFIG)
    state = eqx.tree_at(lambda tree: tree.log_temperature, state, jnp.log(jnp.asarray(temperature)))
    return train(state, batches, jax.random.split(jax.random.key(1), UPDATES))


def one_step_batches(seed: int = 0) -> sac.Batch:
    """Random observations and actions in (-1, 1), reward 1, and the end."""
    rng = np.random.default_rng(seed)
    observation, action, next_observation = (
        jnp.asarray(rng.uniform(-1, 1, size=(UPDATES, BATCH, 1)), jnp.float32) for _ in range(3)
    )
    ones = jnp.ones((UPDATES, BATCH))
    return sac.Batch(
        observation, action, reward=ones, next_observation=next_observation, terminated=ones
    )


def two_step_batches() -> sac.Batch:
    """Observation 0 leads to observation 1 without reward; from there the episode ends with reward
    1."""
    batches = one_step_batches()
    second = jnp.asarray(
        np.random.default_rng(1).integers(0, 2, size=(UPDATES, BATCH)), jnp.float32
    )
    return batches._replace(
        observation=second[..., None],
        reward=second,
        next_observation=jnp.ones_like(batches.next_observation),
        terminated=second,
    )


def q_values(state: sac.SACState, observation: jax.Array, action: jax.Array) -> np.ndarray:
    return np.asarray(state.critics(observation[:, None], action[:, None]))


def test_value_of_a_constant_reward_is_the_reward() -> None:
    state = learn(one_step_batches())
    np.testing.assert_allclose(q_values(state, GRID, -GRID), 1.0, atol=0.02)


def test_value_of_a_reward_that_is_the_observation_is_the_observation() -> None:
    batches = one_step_batches()
    state = learn(batches._replace(reward=batches.observation[..., 0]))
    np.testing.assert_allclose(q_values(state, GRID, -GRID), np.stack([GRID, GRID]), atol=0.05)


def test_discount_shows_in_the_first_of_two_steps() -> None:
    state = learn(two_step_batches())
    np.testing.assert_allclose(q_values(state, jnp.zeros(7), GRID), 0.5, atol=0.02)
    np.testing.assert_allclose(q_values(state, jnp.ones(7), GRID), 1.0, atol=0.02)


def test_first_of_two_steps_is_also_worth_the_entropy_of_the_second() -> None:
    """Q(first) = γ (1 + α H[π(·|second)]), and with nothing to gain by acting H nears log 2, that
    of the uniform."""
    state = learn(two_step_batches(), temperature=0.5)
    noise = jax.random.normal(jax.random.key(2), (20_000, 1))
    mean, log_std = (jnp.broadcast_to(x, noise.shape) for x in state.actor(jnp.ones((1, 1))))
    entropy = -float(jnp.mean(squashed_gaussian(mean, log_std, noise)[1]))
    assert entropy == pytest.approx(np.log(2), abs=0.1)
    np.testing.assert_allclose(
        q_values(state, jnp.zeros(7), GRID), 0.5 * (1 + 0.5 * entropy), atol=0.03
    )


@pytest.mark.parametrize(("terminated", "value"), [(0.0, 2.0), (1.0, 1.0)])
def test_truncation_bootstraps_and_termination_does_not(terminated: float, value: float) -> None:
    """Reward 1 for ever is worth 1 / (1 - γ) = 2; a transition cut by a time limit arrives with
    terminated = 0."""
    batches = one_step_batches()
    state = learn(batches._replace(terminated=jnp.full_like(batches.terminated, terminated)))
    np.testing.assert_allclose(q_values(state, GRID, -GRID), value, atol=0.04)


def test_policy_finds_the_best_action() -> None:
    batches = one_step_batches()
    state = learn(batches._replace(reward=-((batches.action[..., 0] - 0.5) ** 2)), temperature=1e-3)
    act = jax.jit(
        jax.vmap(
            lambda observation: sac.act(state, observation, jax.random.key(0), deterministic=True)
        )
    )
    actions = act(GRID[:, None])
    np.testing.assert_allclose(actions, 0.5, atol=0.1)
    assert np.mean(actions) == pytest.approx(0.5, abs=0.03)
