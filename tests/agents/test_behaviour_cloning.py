"""Behaviour cloning: its loss by hand, the mean action as its answer, and actions on the bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import policy_action
from element_rl.agents import behaviour_cloning as bc
from element_rl.agents.networks import policy_parameters
from element_rl.agents.sac import Batch

CONFIG = bc.CloningConfig(hidden_sizes=(16,), learning_rate=0.01)
update = jax.jit(bc.update, static_argnames="config")


def batch_of(observation: np.ndarray, action: np.ndarray) -> Batch:
    observation, action = jnp.asarray(observation, jnp.float32), jnp.asarray(action, jnp.float32)
    zeros = jnp.zeros(len(observation))
    return Batch(observation, action, zeros, observation, zeros > 0)


def test_loss_by_hand() -> None:
    rng = np.random.default_rng(0)
    batch = batch_of(rng.normal(size=(5, 3)), rng.uniform(-1, 1, size=(5, 2)))
    state = bc.create(jax.random.key(0), 3, 2, CONFIG)
    total = 0.0
    for observation, action in zip(
        np.asarray(batch.observation), np.asarray(batch.action), strict=True
    ):
        hidden = np.maximum(
            observation @ state.actor.network.weights[0] + state.actor.network.biases[0], 0
        )
        mean = (hidden @ state.actor.network.weights[1] + state.actor.network.biases[1])[:2]
        total += 0.5 * float(np.sum((np.tanh(mean) - action) ** 2)) / 5
    loss, metrics = jax.jit(bc.actor_loss)(state.actor, batch)
    assert float(loss) == pytest.approx(total, rel=1e-5)
    assert float(metrics["actor_loss"]) == pytest.approx(total, rel=1e-5)


def test_it_learns_the_mean_action_and_actions_on_the_bounds() -> None:
    """At one place the dataset has 1 three times and -1 once, at the other always 1."""
    observation = np.repeat([[1.0, 0.0], [0.0, 1.0]], 4, axis=0)
    batch = batch_of(observation, [[1.0], [1.0], [1.0], [-1.0], [1.0], [1.0], [1.0], [1.0]])
    state = bc.create(jax.random.key(1), 2, 1, CONFIG)
    for _ in range(600):
        state, metrics = update(state, batch, jax.random.key(0), CONFIG)
    assert np.isfinite(float(metrics["actor_loss"]))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    parameters = {name: np.asarray(array) for name, array in policy_parameters(state.actor).items()}
    for place, action in ((np.array([1.0, 0.0]), 0.5), (np.array([0.0, 1.0]), 1.0)):
        for noise in (0.0, 3.0):  # sampled or not, it does the same
            done = policy_action(
                parameters, place.astype(np.float32), np.array([noise], np.float32)
            )
            assert done[0] == pytest.approx(action, abs=0.05)


def test_config_names_the_wrong_value() -> None:
    with pytest.raises(ValueError, match=r"CloningConfig.learning_rate is 0.0; choose above 0"):
        bc.CloningConfig(learning_rate=0.0)
