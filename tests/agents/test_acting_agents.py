"""What holds for every agent that learns while it acts: probe environments, stored policies, and
what fine-tuning asks for."""

import dataclasses
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import policy_action, policy_widths
from element_rl.agents import dqn, sac, td3
from element_rl.agents.contract import Agent, Anchor, Batch
from element_rl.agents.making import AGENTS, CHOOSING, make_agent
from element_rl.agents.networks import squashed_gaussian

RATES = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "target_rate": 0.05}
PROBE: dict[str, Any] = {  # small, fast learners; SAC nearly without a bonus for entropy
    "sac": sac.SACConfig(
        (32, 32), discount=0.5, temperature_learning_rate=0.0, initial_temperature=1e-6, **RATES
    ),
    "td3": td3.TD3Config((32, 32), discount=0.5, policy_delay=1, **RATES),
    "dqn": dqn.DQNConfig((32, 32), discount=0.5, learning_rate=3e-3, target_rate=0.05),
}
UPDATES, BATCH = 1_500, 64
GRID = jnp.linspace(-0.9, 0.9, 7)
everybody = pytest.mark.parametrize("name", list(AGENTS))
actors = pytest.mark.parametrize("name", [name for name in AGENTS if name not in CHOOSING])


def test_every_agent_that_acts_is_tested_here() -> None:
    assert PROBE.keys() == AGENTS.keys()


@lru_cache
def probe_agent(name: str) -> tuple[Agent, Any]:
    """The agent and its program: one compilation serves all probes."""
    agent = make_agent(name, PROBE[name], 1, 2 if name in CHOOSING else 1)
    trained = jax.jit(
        lambda state, xs: jax.lax.scan(lambda carry, x: agent.update(carry, *x), state, xs)[0]
    )
    return agent, trained


def learned(name: str, batches: Batch, state: Any = None) -> Any:
    agent, trained = probe_agent(name)
    state = agent.create(jax.random.key(0)) if state is None else state
    return trained(state, (batches, jax.random.split(jax.random.key(1), UPDATES)))


def one_step_batches(name: str, seed: int = 0) -> Batch:
    """Random observations and actions in (-1, 1), or one of two, reward 1, and the end."""
    rng = np.random.default_rng(seed)
    observation, action, next_observation = (
        jnp.asarray(rng.uniform(-1, 1, size=(UPDATES, BATCH, 1)), jnp.float32) for _ in range(3)
    )
    if name in CHOOSING:
        action = jnp.concatenate([action < 0, action >= 0], axis=-1).astype(jnp.float32)
    ones = jnp.ones((UPDATES, BATCH))
    return Batch(observation, action, ones, next_observation, ones)


def two_step_batches(name: str) -> Batch:
    """Observation 0 leads to observation 1 without reward; from there the episode ends with reward
    1."""
    batches = one_step_batches(name)
    second = jnp.asarray(
        np.random.default_rng(1).integers(0, 2, size=(UPDATES, BATCH)), jnp.float32
    )
    return batches._replace(
        observation=second[..., None],
        reward=second,
        next_observation=jnp.ones_like(batches.next_observation),
        terminated=second,
    )


def q_values(name: str, state: Any, observation: jax.Array, action: jax.Array) -> np.ndarray:
    """Of two critics, or of two choices whatever the action."""
    if name in CHOOSING:
        return np.asarray(dqn.action_values(state.values, observation[:, None], PROBE[name])).T
    return np.asarray(state.critics(observation[:, None], action[:, None]))


@everybody
def test_value_of_a_reward_that_is_the_observation_is_the_observation(name: str) -> None:
    batches = one_step_batches(name)
    state = learned(name, batches._replace(reward=batches.observation[..., 0]))
    np.testing.assert_allclose(
        q_values(name, state, GRID, -GRID), np.stack([GRID, GRID]), atol=0.05
    )


@everybody
def test_discount_shows_in_the_first_of_two_steps(name: str) -> None:
    state = learned(name, two_step_batches(name))
    np.testing.assert_allclose(q_values(name, state, jnp.zeros(7), GRID), 0.5, atol=0.02)
    np.testing.assert_allclose(q_values(name, state, jnp.ones(7), GRID), 1.0, atol=0.02)


def test_with_sac_the_first_of_two_steps_is_also_worth_the_entropy_of_the_second() -> None:
    """Q(first) = γ (1 + α H[π(·|second)]), and with nothing to gain by acting H nears log 2, that
    of the uniform."""
    state = probe_agent("sac")[0].create(jax.random.key(0))
    state = dataclasses.replace(state, log_temperature=jnp.log(jnp.asarray(0.5)))
    state = learned("sac", two_step_batches("sac"), state)
    noise = jax.random.normal(jax.random.key(2), (20_000, 1))
    mean, log_std = (jnp.broadcast_to(x, noise.shape) for x in state.actor(jnp.ones((1, 1))))
    entropy = -float(jnp.mean(squashed_gaussian(mean, log_std, noise)[1]))
    assert entropy == pytest.approx(np.log(2), abs=0.1)
    np.testing.assert_allclose(
        q_values("sac", state, jnp.zeros(7), GRID), 0.5 * (1 + 0.5 * entropy), atol=0.03
    )


@everybody
@pytest.mark.parametrize(("terminated", "value"), [(0.0, 2.0), (1.0, 1.0)])
def test_truncation_bootstraps_and_termination_does_not(
    name: str, terminated: float, value: float
) -> None:
    """Reward 1 for ever is worth 1 / (1 - γ) = 2; a transition cut by a time limit is not
    terminated."""
    batches = one_step_batches(name)
    state = learned(name, batches._replace(terminated=jnp.full((UPDATES, BATCH), terminated)))
    np.testing.assert_allclose(q_values(name, state, GRID, -GRID), value, atol=0.04)


@actors
def test_the_stored_policy_finds_the_best_action(name: str) -> None:
    batches = one_step_batches(name)
    state = learned(name, batches._replace(reward=-((batches.action[..., 0] - 0.5) ** 2)))
    parameters = jax.device_get(probe_agent(name)[0].policy(state))
    observations = np.asarray(GRID)[:, None]
    actions = [policy_action(parameters, seen, np.zeros(1, np.float32)) for seen in observations]
    np.testing.assert_allclose(actions, 0.5, atol=0.1)


@everybody
def test_a_stored_policy_says_its_widths_and_comes_back(name: str) -> None:
    agent = make_agent(name, dataclasses.replace(PROBE[name], hidden_sizes=(8, 4)), 3, 2)
    assert agent.with_policy is not None
    first, second = (
        jax.vmap(agent.create)(jax.vmap(jax.random.key)(jnp.array(seeds, jnp.uint32)))
        for seeds in ([0, 1], [2, 3])
    )
    stored = jax.device_get(agent.policy(first))
    assert policy_widths(stored) == (3, 8, 4, 2)
    given = agent.policy(agent.with_policy(second, stored))
    for array, expected in zip(jax.tree.leaves(given), jax.tree.leaves(stored), strict=True):
        np.testing.assert_array_equal(array, expected)


@actors
def test_an_actor_that_does_not_learn_stays(name: str) -> None:
    agent, _ = probe_agent(name)
    state, batch = (
        agent.create(jax.random.key(0)),
        jax.tree.map(lambda x: x[0], one_step_batches(name)),
    )
    held, _ = agent.update(state, batch, jax.random.key(1), actor_learns=jnp.asarray(False))
    for new, old in zip(jax.tree.leaves(held.actor), jax.tree.leaves(state.actor), strict=True):
        np.testing.assert_array_equal(new, old)
    assert any(
        np.any(np.asarray(new) != np.asarray(old))
        for new, old in zip(
            jax.tree.leaves(held.critics), jax.tree.leaves(state.critics), strict=True
        )
    )


@actors
def test_an_anchor_costs_what_lies_between_the_policies(name: str) -> None:
    agent, _ = probe_agent(name)
    state, other = (agent.create(jax.random.key(seed)) for seed in (0, 1))
    batch, key = jax.tree.map(lambda x: x[0], one_step_batches(name)), jax.random.key(1)

    def loss(anchor: Anchor | None) -> float:
        return float(agent.update(state, batch, key, anchor=anchor)[1]["actor_loss"])

    one, two = (Anchor(other.actor, jnp.asarray(weight)) for weight in (1.0, 2.0))
    assert loss(Anchor(state.actor, jnp.asarray(1.0))) == pytest.approx(loss(None), abs=1e-5)
    assert loss(two) - loss(None) == pytest.approx(2 * (loss(one) - loss(None)), rel=1e-4)
    assert loss(one) > loss(None)
