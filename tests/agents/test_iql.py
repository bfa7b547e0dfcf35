"""IQL: its losses and weights by hand, the order of its update, and what it learns where the answer
is known."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from element_rl.acting.host_policy import count_layers, policy_action
from element_rl.agents import iql
from element_rl.agents.contract import Batch
from element_rl.agents.stored_policy import policy_actions
from element_rl.mlp import MLP

CONFIG = iql.IQLConfig(hidden_sizes=(16, 16))


def constant(value: float) -> MLP:
    """V(s) = value."""
    return MLP((jnp.zeros((1, 1)),), (jnp.asarray([value]),))


def batch_of(action: Any, reward: Any = None, terminated: float = 1.0) -> Batch:
    """One observation, 1, for all."""
    action = jnp.asarray(action, jnp.float32)
    rows = len(action)
    ones = jnp.ones((rows, 1))
    rewards = jnp.zeros(rows) if reward is None else jnp.asarray(reward, jnp.float32)
    return Batch(ones, action, rewards, ones, jnp.full(rows, terminated))


def test_the_expectile_loss_by_hand() -> None:
    """V = 1; values 3, 0 and 1: u = 2, -1 and 0. 0.7 · 4, 0.3 · 1 and 0: a third of 3.1."""
    loss, metrics = iql.value_loss(
        constant(1.0), jnp.ones((3, 1)), jnp.asarray([3.0, 0.0, 1.0]), 0.7
    )
    assert float(loss) == pytest.approx(3.1 / 3, rel=1e-6)
    assert float(metrics["value_mean"]) == 1.0
    slope = jax.grad(
        lambda v: iql.value_loss(
            constant(0.0), jnp.ones((3, 1)), jnp.asarray([3.0, 0, 1]) - v, 0.7
        )[0]
    )(1.0)
    assert float(slope) == pytest.approx(-2 * (0.7 * 2 - 0.3 * 1) / 3, rel=1e-5)


def test_the_expectile_is_where_the_loss_is_least() -> None:
    """Of 0 and 1, the τ-expectile is τ: τ (1 - v) = (1 - τ) v."""
    values = jnp.asarray([0.0, 1.0])
    for expectile in (0.5, 0.7, 0.9):
        losses = [
            float(iql.value_loss(constant(v), jnp.ones((2, 1)), values, expectile)[0])
            for v in (expectile - 0.02, expectile, expectile + 0.02)
        ]
        assert losses[1] < min(losses[0], losses[2])


def test_the_weights_by_hand() -> None:
    """exp(3 u), never more than 100."""
    weight = iql.advantage_weight(jnp.asarray([0.0, 0.5, -1.0, 2.0, 1e4]), 3.0, 100.0)
    np.testing.assert_allclose(weight, [1.0, np.exp(1.5), np.exp(-3.0), 100.0, 100.0], rtol=1e-6)


def test_the_actors_loss_by_hand() -> None:
    """Weights 2 and 0.5 of two actions, under a Gaussian around tanh μ = (0.5, 0) with σ = (e^-1,
    e^2): the second log σ is beyond its bound of 2."""
    network = MLP((jnp.zeros((1, 2)),), (jnp.asarray([np.arctanh(0.5), 0.0]),))
    actor = iql.GaussianActor(network, jnp.asarray([-1.0, 3.0]))
    actions = np.array([[1.0, -1.0], [0.2, 0.4]])
    density = norm.logpdf(actions, [0.5, 0.0], np.exp([-1.0, 2.0])).sum(axis=1)
    loss, metrics = iql.actor_loss(actor, batch_of(actions), jnp.asarray([2.0, 0.5]))
    assert float(loss) == pytest.approx(-(2.0 * density[0] + 0.5 * density[1]) / 2, rel=1e-5)
    assert float(metrics["advantage_weight"]) == 1.25
    assert float(metrics["policy_deviation"]) == pytest.approx(np.exp([-1, 2]).mean(), rel=1e-6)


def test_the_order_of_the_update() -> None:
    """Critics bootstrap from V as it is after its step, from target critics as they were; what has
    terminated does not."""
    rng = np.random.default_rng(0)
    before, after = (jnp.asarray(rng.normal(size=(8, 3)), jnp.float32) for _ in range(2))
    action = jnp.asarray(rng.uniform(-1, 1, (8, 2)), jnp.float32)
    reward = jnp.asarray(rng.normal(size=8), jnp.float32)
    ended = jnp.asarray(np.arange(8) % 4 == 0)
    batch = Batch(before, action, reward, after, ended)
    state = iql.create(jax.random.key(0), 3, 2, CONFIG)
    new, metrics = jax.jit(iql.update, static_argnames="config")(
        state, batch, jax.random.key(1), CONFIG
    )
    following = new.value(after)[:, 0]
    target = reward + 0.99 * (1 - ended) * following
    assert float(metrics["target_mean"]) == pytest.approx(float(jnp.mean(target)), rel=1e-5)
    advantage = jnp.min(state.target_critics(before, action), axis=0) - new.value(before)[:, 0]
    weight = jnp.minimum(jnp.exp(3 * advantage), 100.0)
    assert float(metrics["advantage_weight"]) == pytest.approx(float(jnp.mean(weight)), rel=1e-5)
    for moved, own, old in zip(
        *(jax.tree.leaves(tree) for tree in (new.target_critics, new.critics)),
        jax.tree.leaves(state.target_critics),
        strict=True,
    ):
        np.testing.assert_allclose(moved, 0.995 * old + 0.005 * own, atol=1e-7)


def test_the_actors_rate_falls_along_half_a_cosine() -> None:
    falling = dataclasses.replace(CONFIG, actor_decay_steps=100)
    for updates, share in ((0, 1.0), (50, 0.5), (100, 0.0), (150, 0.0)):
        rate = iql.actor_rate(jnp.asarray(updates), falling)
        assert float(rate) == pytest.approx(3e-4 * share, abs=1e-9)
    for steady in (None, 0):
        config = dataclasses.replace(CONFIG, actor_decay_steps=steady)
        assert float(iql.actor_rate(jnp.asarray(70), config)) == pytest.approx(3e-4)


def learned(config: iql.IQLConfig, batch: Batch, updates: int) -> iql.IQLState:
    agent = iql.agent(config, batch.observation.shape[1], batch.action.shape[1])

    @jax.jit
    def train(state: Any) -> Any:
        step = lambda _, state: agent.update(state, batch, jax.random.key(0))[0]  # noqa: E731
        return jax.lax.fori_loop(0, updates, step, state)

    return train(agent.create(jax.random.key(0)))


PROBE = iql.IQLConfig(
    hidden_sizes=(16,),
    actor_learning_rate=1e-2,
    critic_learning_rate=1e-2,
    value_learning_rate=1e-2,
    target_rate=0.05,
)


def test_it_prefers_the_better_actions_of_the_data() -> None:
    """The data's actions are -0.5 and 0.5, each half of the time; the reward is twice the action.
    Weights e^(β u) as far apart as e^6 leave the better one; without a temperature (β = 0) it is
    their mean, and σ what the data have."""
    action = np.where(np.arange(16) % 2, 0.5, -0.5)[:, None]
    batch = batch_of(action, 2 * action[:, 0])
    for beta, expected, deviation in ((0.0, 0.0, 0.5), (3.0, 0.5, 0.05)):
        state = learned(dataclasses.replace(PROBE, inverse_temperature=beta), batch, 800)
        assert float(state.actor.mean(jnp.ones((1, 1)))[0, 0]) == pytest.approx(expected, abs=0.06)
        found = float(jnp.exp(state.actor.bounded_log_std)[0])
        assert found == pytest.approx(deviation, abs=0.06)
        np.testing.assert_allclose(state.value(jnp.ones((1, 1))), [[0.4]], atol=0.1)  # 2τ - 1


def test_only_an_end_ends_a_return() -> None:
    """A reward of 1 at every step: 1 where the task ends, 2 with γ = 0.5 where it goes on."""
    config = dataclasses.replace(PROBE, discount=0.5)
    for terminated, expected in ((1.0, 1.0), (0.0, 2.0)):
        batch = batch_of(np.zeros((8, 1)), np.ones(8), terminated)
        state = learned(config, batch, 500)
        np.testing.assert_allclose(state.value(jnp.ones((1, 1))), [[expected]], atol=0.05)


def test_its_stored_policy_draws_with_its_own_deviations() -> None:
    agent = iql.agent(CONFIG, 3, 2)
    state = agent.create(jax.random.key(0))
    actor = iql.GaussianActor(state.actor.network, jnp.asarray([-2.0, -9.0]))
    stored = jax.device_get(agent.policy(dataclasses.replace(state, actor=actor)))
    assert count_layers(stored) == 3
    seen, noise = np.linspace(-1, 1, 3).astype(np.float32), np.ones(2, np.float32)
    mean = np.asarray(actor.mean(jnp.asarray(seen)[None])[0])
    done = policy_action(stored, seen, noise)
    np.testing.assert_allclose(done - mean, np.exp([-2.0, -5.0]), rtol=1e-3)
    arrays = (jnp.asarray(each)[None] for each in (seen, np.zeros(2, np.float32), noise))
    on_device = policy_actions(jax.tree.map(jnp.asarray, stored), *arrays)
    np.testing.assert_allclose(on_device[0], done, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "choice"),
    [
        ({"expectile": 1.0}, "between 0 and 1"),
        ({"inverse_temperature": -1.0}, "0 or above"),
        ({"weight_clip": 0.0}, "above 0"),
        ({"hidden_sizes": ()}, "one or more positive widths"),
        ({"actor_decay_steps": -1}, "0 or above"),
    ],
)
def test_config_names_the_wrong_value(wrong: dict[str, Any], choice: str) -> None:
    with pytest.raises(ValueError, match=f"IQLConfig.{next(iter(wrong))} is .*; choose {choice}"):
        iql.IQLConfig(**wrong)
