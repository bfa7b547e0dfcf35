"""TD3+BC: its actor's loss by hand, what it leaves to TD3, and what it learns where the answer is
known."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import policy_action
from element_rl.agents import td3, td3_bc
from element_rl.agents.contract import Batch
from element_rl.agents.networks import TwinCritics
from element_rl.mlp import MLP

CONFIG = td3_bc.TD3BCConfig(hidden_sizes=(16, 16))
AGENT = td3_bc.agent(CONFIG, 3, 2)


def batch_of(seed: int = 0, rows: int = 8) -> Batch:
    rng = np.random.default_rng(seed)
    before, after = (jnp.asarray(rng.normal(size=(rows, 3)), jnp.float32) for _ in range(2))
    action = jnp.asarray(rng.uniform(-1, 1, size=(rows, 2)), jnp.float32)
    reward = jnp.asarray(rng.normal(size=rows), jnp.float32)
    return Batch(before, action, reward, after, jnp.asarray(np.arange(rows) % 4 == 0))


def test_the_actors_loss_by_hand() -> None:
    """Two observations, an actor that says (0.5, 0) everywhere, Q_1(s, a) = 4 a_0 + 2 s, Q_2
    another.

    Q_1 = 4 and -4, so E Q_1 = 0 and E|Q_1| = 4: the values add nothing. With 2 s + 1 in the place
    of 2 s they are 5 and -3: λ = 2.5 / 4, E Q_1 = 1. The squared distances from the actions (1, 1)
    and (0.5, -1) are 1.25 and 1, over two dimensions: 0.5625.
    """
    actor = MLP((jnp.zeros((1, 2)),), (jnp.asarray([np.arctanh(0.5), 0.0]),))

    def critics(offset: float) -> TwinCritics:
        weights = jnp.asarray([[[2.0], [4.0], [0.0]], [[9.0], [9.0], [9.0]]])
        return TwinCritics(MLP((weights,), (jnp.asarray([[offset], [7.0]]),)))

    observation = jnp.asarray([[1.0], [-3.0]])
    action = jnp.asarray([[1.0, 1.0], [0.5, -1.0]])
    batch = Batch(observation, action, jnp.zeros(2), observation, jnp.zeros(2))
    for offset, expected in ((0.0, 0.5625), (1.0, 0.5625 - 2.5 / 4.0)):
        loss, metrics = td3_bc.actor_loss(actor, critics(offset), batch, 2.5)
        assert float(loss) == pytest.approx(expected, rel=1e-6)
        assert float(metrics["cloning_error"]) == pytest.approx(0.5625, rel=1e-6)


def test_the_loss_does_not_depend_on_the_scale_of_values_and_lambda_is_a_constant() -> None:
    state, batch = AGENT.create(jax.random.key(0)), batch_of()

    def scaled(factor: float) -> TwinCritics:
        network = state.critics.networks
        ends = (factor * network.weights[-1], factor * network.biases[-1])
        return TwinCritics(MLP((*network.weights[:-1], ends[0]), (*network.biases[:-1], ends[1])))

    gradient = jax.jit(jax.grad(td3_bc.actor_loss, has_aux=True), static_argnums=3)
    (once, _), (tenfold, _) = (
        gradient(state.actor, scaled(factor), batch, 2.5) for factor in (1.0, 10.0)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), once, tenfold)
    # no gradient through λ: that of the loss with λ written down is the same
    action = td3.mean_action(state.actor, batch.observation)
    q = state.critics(batch.observation, action)[0]
    weight = 2.5 / float(jnp.mean(jnp.abs(q)))

    def written_down(actor: MLP) -> jax.Array:
        action = td3.mean_action(actor, batch.observation)
        q = state.critics(batch.observation, action)[0]
        return -weight * jnp.mean(q) + jnp.mean((action - batch.action) ** 2)

    expected = jax.jit(jax.grad(written_down))(state.actor)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), once, expected)


def test_critics_and_targets_are_those_of_td3() -> None:
    state = AGENT.create(jax.random.key(0))
    plain = td3.create(jax.random.key(0), 3, 2, CONFIG.td3)
    update = jax.jit(AGENT.update)
    td3_update = jax.jit(td3.update, static_argnames="config")
    first = update(state, batch_of(), jax.random.key(1))[0]  # the actor has not learned yet
    expected = td3_update(plain, batch_of(), jax.random.key(1), CONFIG.td3)[0]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), first.critics, expected.critics
    )
    jax.tree.map(np.testing.assert_array_equal, first.actor, state.actor)
    second = update(first, batch_of(), jax.random.key(2))[0]
    assert not np.array_equal(second.actor.weights[0], state.actor.weights[0])
    assert int(second.updates) == 2


def learned(config: td3_bc.TD3BCConfig, batch: Batch, updates: int) -> td3.TD3State:
    agent = td3_bc.agent(config, batch.observation.shape[1], batch.action.shape[1])

    @jax.jit
    def train(state: Any) -> Any:
        def step(number: jax.Array, state: Any) -> Any:
            return agent.update(state, batch, jax.random.fold_in(jax.random.key(0), number))[0]

        return jax.lax.fori_loop(0, updates, step, state)

    return train(agent.create(jax.random.key(0)))


PROBE = td3_bc.TD3BCConfig(
    hidden_sizes=(16,), actor_learning_rate=3e-3, critic_learning_rate=1e-2, target_rate=0.05
)


def test_it_keeps_to_the_data_and_prefers_the_better_actions() -> None:
    """The data's actions are -0.5 and 0.5, each half of the time; the reward is the action.
    Cloning (α = 0) does their mean; values move it to the better one."""
    rows = 32
    observation = jnp.ones((rows, 1))
    action = jnp.asarray(np.where(np.arange(rows) % 2, 0.5, -0.5)[:, None], jnp.float32)
    batch = Batch(observation, action, action[:, 0], observation, jnp.ones(rows))
    done = {}
    for alpha in (0.0, 2.5):
        state = learned(dataclasses.replace(PROBE, alpha=alpha), batch, 400)
        done[alpha] = float(td3.mean_action(state.actor, observation)[0, 0])
    assert done[0.0] == pytest.approx(0.0, abs=0.05)
    assert done[2.5] > 0.4


def test_only_an_end_ends_a_return() -> None:
    """A reward of 1 at every step: where the task ends, the value is 1; where it goes on, 2 with
    γ = 0.5."""
    observation = jnp.asarray([[0.0, 1.0], [1.0, 0.0]] * 8)
    ended = observation[:, 0]
    action = jnp.zeros((16, 1))
    batch = Batch(observation, action, jnp.ones(16), observation, ended)
    state = learned(dataclasses.replace(PROBE, discount=0.5), batch, 600)
    values = state.critics(observation[:2], action[:2])
    np.testing.assert_allclose(values, [[2.0, 1.0]] * 2, atol=0.1)


def test_its_stored_policy_never_draws() -> None:
    state = AGENT.create(jax.random.key(0))
    stored = jax.device_get(AGENT.policy(state))
    assert stored["exploration_noise"] == 0.0
    seen = np.linspace(-1, 1, 3).astype(np.float32)
    acts = [policy_action(stored, seen, np.full(2, noise, np.float32)) for noise in (0.0, 3.0)]
    np.testing.assert_array_equal(*acts)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"alpha": -1.0}, "TD3BCConfig.alpha is -1.0; choose 0 or above"),
        ({"discount": 2.0}, "TD3Config.discount is 2.0; choose"),
    ],
)
def test_config_names_the_wrong_value(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        td3_bc.TD3BCConfig(**wrong)
