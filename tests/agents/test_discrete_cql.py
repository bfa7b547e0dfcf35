"""CQL with a finite number of actions: target and loss by hand, vectors and images, and a dataset
it must read sceptically."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_values import action_values
from element_rl.agents import discrete_cql as dcql
from element_rl.mlp import MLP

CONFIG = dcql.DiscreteCQLConfig(hidden_sizes=(16,), learning_rate=0.01)
update = jax.jit(dcql.update, static_argnames="config")
values_of = jax.jit(lambda network, observation: network(observation))


def table(values: np.ndarray) -> dcql.QNetwork:
    """A network that is a table: one-hot observations [S], values [S, A]; relu leaves one-hot
    vectors alone."""
    states, actions = values.shape
    eye = jnp.eye(states)
    return dcql.QNetwork(
        (),
        (),
        MLP((eye, jnp.asarray(values, jnp.float32)), (jnp.zeros(states), jnp.zeros(actions))),
    )


CHOOSER = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 3.0]])
TARGETS = np.array([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])


def batch_of(
    states: list[int],
    actions: list[int],
    rewards: list[float],
    following: list[int],
    ends: list[bool],
):
    eye = np.eye(2, dtype=np.float32)
    return dcql.DiscreteBatch(
        jnp.asarray(eye[states]),
        jnp.asarray(actions, jnp.int32),
        jnp.asarray(rewards, jnp.float32),
        jnp.asarray(eye[following]),
        jnp.asarray(ends),
    )


def test_target_and_loss_by_hand() -> None:
    config = dcql.DiscreteCQLConfig()
    state = dcql.DiscreteCQLState(table(CHOOSER), table(TARGETS), None)
    batch = batch_of([0, 1, 1], [0, 2, 1], [1.0, 2.0, 3.0], [1, 0, 0], [False, False, True])
    target = jax.jit(partial(dcql.value_target, discount=0.9))(state, batch)
    # The network chooses action 2 in state 1 and action 1 in state 0; the copy says 60 and 20.
    np.testing.assert_allclose(target, [1 + 0.9 * 60, 2 + 0.9 * 20, 3.0], rtol=1e-6)

    by_hand = jax.jit(partial(dcql.value_loss, conservative_weight=2.0))
    loss, metrics = by_hand(state.values, batch, jnp.asarray([1.5, 0.0, 3.0]))
    errors, gap = 0.0, 0.0
    for s, a, y in ((0, 0, 1.5), (1, 2, 0.0), (1, 1, 3.0)):
        error = abs(CHOOSER[s, a] - y)
        errors += (0.5 * error**2 if error <= 1 else error - 0.5) / 3
        gap += (np.log(np.sum(np.exp(CHOOSER[s]))) - CHOOSER[s, a]) / 3
    assert float(metrics["critic_loss"]) == pytest.approx(errors, rel=1e-5)
    assert float(metrics["conservative_gap"]) == pytest.approx(gap, rel=1e-5)
    assert float(loss) == pytest.approx(errors + 2.0 * gap, rel=1e-5)
    assert config.conservative_weight == 1.0


def test_an_action_the_data_do_not_have_is_not_chosen() -> None:
    """Both actions of the data pay 1 and 0.5; the third is never tried and double Q-learning alone
    may prefer it."""
    batch = batch_of([0] * 8, [0, 1] * 4, [1.0, 0.5] * 4, [1] * 8, [True] * 8)
    for seed in range(3):
        state = dcql.create(jax.random.key(seed), (2,), 3, CONFIG)
        for _ in range(300):
            state, metrics = update(state, batch, jax.random.key(0), CONFIG)
        q = np.asarray(values_of(state.values, batch.observation)[0])
        assert int(dcql.act(state.values, batch.observation[:1], jax.random.key(0))[0]) == 0
        assert q[2] < q[:2].min() - 1.0
        assert float(metrics["conservative_gap"]) >= 0.0


def test_images() -> None:
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, size=(6, 4, 21, 30)), jnp.uint8)
    state = dcql.create(jax.random.key(0), (4, 21, 30), 5, CONFIG)
    assert len(state.values.kernels) == dcql.CONVOLUTIONS
    # 21 → 11, 6, 3, 2 and 30 → 15, 8, 4, 2
    assert state.values.network.weights[0].shape[0] == dcql.FILTERS * 2 * 2
    batch = dcql.DiscreteBatch(
        images,
        jnp.arange(6) % 5,
        jnp.arange(6.0),
        jnp.flip(images, axis=0),
        jnp.zeros(6, dtype=bool),
    )
    losses = []
    for _ in range(20):
        state, metrics = update(state, batch, jax.random.key(0), CONFIG)
        losses.append(float(metrics["critic_loss"]))
    assert losses[-1] < 0.7 * losses[0]
    # NumPy on the host computes the same, for images and for vectors.
    parameters = {
        name: np.asarray(array) for name, array in dcql.value_parameters(state.values).items()
    }
    for image, expected in zip(np.asarray(images), values_of(state.values, images), strict=True):
        np.testing.assert_allclose(action_values(parameters, image), expected, atol=1e-4)


def test_values_of_vectors_on_the_host() -> None:
    state = dcql.create(jax.random.key(0), (3,), 5, CONFIG)
    parameters = {
        name: np.asarray(array) for name, array in dcql.value_parameters(state.values).items()
    }
    observation = np.array([[0.3, -1.0, 2.0]], np.float32)
    expected = values_of(state.values, observation)[0]
    np.testing.assert_allclose(action_values(parameters, observation[0]), expected, atol=1e-6)


def test_actions_are_greedy_or_drawn_by_their_values() -> None:
    values = table(np.array([[0.0, np.log(3.0)], [5.0, 0.0]]))
    many = jnp.tile(jnp.asarray([[1.0, 0.0]]), (4000, 1))
    assert (np.asarray(dcql.act(values, many, jax.random.key(0))) == 1).all()
    assert float(
        jnp.mean(dcql.act(values, many, jax.random.key(0), softness=1.0))
    ) == pytest.approx(0.75, abs=0.03)


def test_the_target_network_follows_by_exactly_the_target_rate() -> None:
    state = dcql.create(jax.random.key(4), (2,), 3, CONFIG)
    batch = batch_of([0, 1], [0, 2], [1.0, -1.0], [1, 0], [False, True])
    new, _ = update(state, batch, jax.random.key(0), CONFIG)
    rate = CONFIG.target_rate
    expected = jax.tree.map(
        lambda old, new: (1 - rate) * old + rate * new, state.target_values, new.values
    )
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-7), new.target_values, expected)


def test_config_names_the_wrong_value() -> None:
    with pytest.raises(ValueError, match=r"DiscreteCQLConfig.target_rate is 0.0; choose"):
        dcql.DiscreteCQLConfig(target_rate=0.0)
