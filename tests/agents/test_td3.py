"""TD3: losses against hand-written NumPy, its delay, its targets, and how its stored policy
acts."""

import dataclasses
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import policy_action
from element_rl.agents import td3
from element_rl.agents.contract import Batch

CONFIG = td3.TD3Config(hidden_sizes=(16, 16))
OBSERVATION_DIM, ACTION_DIM, BATCH = 3, 2, 8
update = jax.jit(td3.update, static_argnames="config")


def fresh_state(seed: int = 0) -> td3.TD3State:
    """An agent whose targets are another's networks, so that the two can be told apart."""
    state, other = (
        td3.create(jax.random.key(s), OBSERVATION_DIM, ACTION_DIM, CONFIG) for s in (seed, seed + 9)
    )
    return dataclasses.replace(state, target_actor=other.actor, target_critics=other.critics)


def random_batch(seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        action=jnp.asarray(rng.uniform(-1, 1, size=(BATCH, ACTION_DIM)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=BATCH), jnp.float32),
        next_observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        terminated=jnp.asarray(np.arange(BATCH) % 4 == 0),
    )


def numpy_mlp(network: Any, inputs: np.ndarray, twin: int | None = None) -> np.ndarray:
    hidden = inputs
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        weight, bias = (
            np.asarray(x if twin is None else x[twin], np.float64) for x in (weight, bias)
        )
        hidden = hidden @ weight + bias
        hidden = np.maximum(hidden, 0) if i < len(network.weights) - 1 else hidden
    return hidden


def numpy_q(critics: Any, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    inputs = np.concatenate([observation, action], axis=1)
    return np.stack([numpy_mlp(critics.networks, inputs, twin)[:, 0] for twin in (0, 1)])


def test_the_target_by_hand() -> None:
    """y = r + γ (1 - d) min Q̄(s', clip(μ̄(s') + clip(0.2 ε, ±0.5), ±1))."""
    state, batch = fresh_state(), random_batch()
    noise = 4 * jax.random.normal(jax.random.key(3), (BATCH, ACTION_DIM))  # some beyond the clip
    seen, eps = np.asarray(batch.next_observation, np.float64), np.asarray(noise, np.float64)
    smoothing = np.clip(0.2 * eps, -0.5, 0.5)
    assert (np.abs(smoothing) == 0.5).any()
    action = np.clip(np.tanh(numpy_mlp(state.target_actor, seen)) + smoothing, -1, 1)
    value = numpy_q(state.target_critics, seen, action).min(axis=0)
    expected = np.asarray(batch.reward) + 0.99 * (1 - np.asarray(batch.terminated)) * value
    np.testing.assert_allclose(td3.critic_target(state, batch, noise, CONFIG), expected, rtol=1e-4)


def test_the_losses_by_hand() -> None:
    state, batch = fresh_state(), random_batch()
    target = jnp.arange(BATCH, dtype=jnp.float32)
    seen, taken = np.asarray(batch.observation, np.float64), np.asarray(batch.action, np.float64)
    error = numpy_q(state.critics, seen, taken) - np.arange(BATCH)
    assert td3.critic_loss(state.critics, batch, target)[0] == pytest.approx(
        0.5 * np.mean(np.sum(error**2, axis=0)), rel=1e-5
    )
    action = np.tanh(numpy_mlp(state.actor, seen))
    expected = -np.mean(numpy_q(state.critics, seen, action)[0])
    loss, _ = td3.actor_loss(state.actor, state.critics, batch.observation, CONFIG)
    assert loss == pytest.approx(expected, rel=1e-4)


def test_actor_and_targets_move_at_every_second_update() -> None:
    states = [fresh_state()]
    for number in range(4):
        states.append(update(states[-1], random_batch(number), jax.random.key(number), CONFIG)[0])

    def moved(field: str) -> list[bool]:
        return [
            any(
                np.any(np.asarray(new) != np.asarray(old))
                for new, old in zip(
                    jax.tree.leaves(getattr(after, field)),
                    jax.tree.leaves(getattr(before, field)),
                    strict=True,
                )
            )
            for before, after in pairwise(states)
        ]

    assert moved("critics") == [True] * 4
    for field in ("actor", "target_actor", "target_critics", "actor_optimiser"):
        assert moved(field) == [False, True, False, True], field


def test_targets_move_by_exactly_the_target_rate() -> None:
    every = dataclasses.replace(CONFIG, policy_delay=1)
    state = fresh_state()
    new, _ = update(state, random_batch(), jax.random.key(0), every)
    for network, target in (("actor", "target_actor"), ("critics", "target_critics")):
        for moved, own, old in zip(
            *(jax.tree.leaves(part) for part in (getattr(new, target), getattr(new, network))),
            jax.tree.leaves(getattr(state, target)),
            strict=True,
        ):
            np.testing.assert_allclose(moved, 0.995 * old + 0.005 * own, atol=1e-7)


def test_the_host_acts_as_the_agent_does() -> None:
    state, key = fresh_state(), jax.random.key(4)
    parameters = jax.device_get(td3.policy(state, CONFIG))
    seen = np.linspace(-1, 1, OBSERVATION_DIM).astype(np.float32)
    noise = np.asarray(jax.random.normal(key, (ACTION_DIM,)))
    on_host = policy_action(parameters, seen, noise)
    np.testing.assert_allclose(on_host, td3.act(state, jnp.asarray(seen), key, CONFIG), atol=1e-6)
    still = td3.act(state, jnp.asarray(seen), key, CONFIG, deterministic=True)
    np.testing.assert_allclose(policy_action(parameters, seen, 0 * noise), still, atol=1e-6)
    assert on_host.dtype == np.float32
    np.testing.assert_array_equal(policy_action(parameters, seen, np.full(2, 1e3)), [1.0, 1.0])


@pytest.mark.parametrize(
    "wrong",
    [{"policy_delay": 0}, {"hidden_sizes": ()}, {"exploration_noise": -0.1}, {"discount": 1.5}],
)
def test_config_names_the_wrong_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        td3.TD3Config(**wrong)
