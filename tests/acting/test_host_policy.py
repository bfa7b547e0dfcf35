"""The NumPy policy of the workers equals the JAX policy of the learner, and brings no JAX along."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import policy_action
from element_rl.agents import sac
from element_rl.agents.networks import policy_parameters, squashed_gaussian


def on_host(parameters: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in parameters.items()}


@pytest.mark.parametrize(("observation_dim", "action_dim"), [(27, 8), (376, 17), (1, 1)])
def test_host_policy_equals_the_jax_policy(observation_dim: int, action_dim: int) -> None:
    state = sac.create(jax.random.key(0), observation_dim, action_dim, sac.SACConfig())
    parameters = on_host(policy_parameters(state.actor))
    policy = jax.jit(
        lambda observation, noise: squashed_gaussian(*state.actor(observation[None]), noise[None])[
            0
        ][0]
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        observation = 3 * rng.normal(size=observation_dim).astype(np.float32)
        noise = rng.normal(size=action_dim).astype(np.float32)
        action = policy_action(parameters, observation, noise)
        np.testing.assert_allclose(action, policy(observation, noise), atol=1e-5)


def test_log_standard_deviation_is_clipped_on_the_host_too() -> None:
    state = sac.create(jax.random.key(2), 3, 2, sac.SACConfig(hidden_sizes=(8,)))
    actor = eqx.tree_at(
        lambda tree: tree.network.biases[-1], state.actor, jnp.asarray([0.1, -0.2, 50.0, -50.0])
    )
    noise = np.asarray([0.05, 1.0], np.float32)
    expected, _ = squashed_gaussian(*actor(jnp.ones((1, 3))), jnp.asarray(noise)[None])
    action = policy_action(on_host(policy_parameters(actor)), np.ones(3, np.float32), noise)
    np.testing.assert_allclose(action, expected[0], atol=1e-5)


def test_one_member_of_a_population_acts_as_it_does_alone() -> None:
    config = sac.SACConfig(hidden_sizes=(16, 16))
    keys = jax.random.split(jax.random.key(3), 3)
    population = on_host(
        policy_parameters(jax.vmap(lambda key: sac.create(key, 4, 2, config))(keys).actor)
    )
    observation, noise = np.ones(4, np.float32), np.asarray([0.5, -0.5], np.float32)
    for p in range(3):
        alone = on_host(policy_parameters(sac.create(keys[p], 4, 2, config).actor))
        member = {name: array[p] for name, array in population.items()}
        np.testing.assert_allclose(
            policy_action(member, observation, noise),
            policy_action(alone, observation, noise),
            atol=1e-6,
        )


def test_double_precision_observations_give_single_precision_actions() -> None:
    state = sac.create(jax.random.key(4), 3, 2, sac.SACConfig(hidden_sizes=(8,)))
    action = policy_action(on_host(policy_parameters(state.actor)), np.ones(3), np.zeros(2))
    assert action.dtype == np.float32
    assert np.abs(action).max() < 1.0


def test_workers_load_no_jax() -> None:
    program = (
        "import sys, element_rl.acting.host_policy; "
        "print([m for m in ('jax', 'jaxlib') if m in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"
