"""SAC: losses against hand-written NumPy, invariances of the update, and what reaches the
learner."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.agents import sac

CONFIG = sac.SACConfig(hidden_sizes=(16, 16))
OBSERVATION_DIM, ACTION_DIM, BATCH = 3, 2, 8
update = jax.jit(sac.update, static_argnames="config")
critic_target = jax.jit(sac.critic_target, static_argnames="discount")
critic_loss = jax.jit(sac.critic_loss)
actor_loss = jax.jit(sac.actor_loss)


def fresh_state(seed: int = 0) -> sac.SACState:
    state = sac.create(jax.random.key(seed), OBSERVATION_DIM, ACTION_DIM, CONFIG)
    other = sac.create(jax.random.key(seed + 100), OBSERVATION_DIM, ACTION_DIM, CONFIG)
    # so that targets and critics differ
    return eqx.tree_at(lambda tree: tree.target_critics, state, other.critics)


def random_batch(seed: int = 0) -> sac.Batch:
    rng = np.random.default_rng(seed)
    return sac.Batch(
        observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        action=jnp.asarray(rng.uniform(-1, 1, size=(BATCH, ACTION_DIM)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=BATCH), jnp.float32),
        next_observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        terminated=jnp.asarray(np.arange(BATCH) % 4 == 0),
    )


def random_noise(seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (BATCH, ACTION_DIM))


def assert_trees_close(left: object, right: object, atol: float) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, atol=atol, rtol=0), left, right)


# Losses, written a second time in float64 NumPy.


def numpy_mlp(
    weights: list[np.ndarray], biases: list[np.ndarray], inputs: np.ndarray
) -> np.ndarray:
    hidden = np.maximum(inputs @ weights[0] + biases[0], 0)
    hidden = np.maximum(hidden @ weights[1] + biases[1], 0)
    return hidden @ weights[2] + biases[2]


def numpy_policy(
    state: sac.SACState, observation: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    network = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state.actor.network)
    mean, log_std = np.split(numpy_mlp(network.weights, network.biases, observation), 2, axis=-1)
    u = mean + np.exp(log_std) * noise
    log_gaussian = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), np.sum(log_gaussian - np.log(1 - np.tanh(u) ** 2), axis=-1)


def numpy_q(critics: sac.TwinCritics, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    networks = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), critics.networks)
    inputs = np.concatenate([observation, action], axis=-1)
    return np.stack(
        [
            numpy_mlp([w[i] for w in networks.weights], [b[i] for b in networks.biases], inputs)[
                :, 0
            ]
            for i in range(2)
        ]
    )


def test_critic_target_by_hand() -> None:
    state, batch, noise = fresh_state(), random_batch(), np.asarray(random_noise(), np.float64)
    target = critic_target(state, batch, random_noise(), discount=0.9)

    next_observation = np.asarray(batch.next_observation, np.float64)
    next_action, log_probability = numpy_policy(state, next_observation, noise)
    next_value = (
        numpy_q(state.target_critics, next_observation, next_action).min(axis=0)
        - 0.2 * log_probability
    )
    expected = np.asarray(batch.reward) + 0.9 * np.where(batch.terminated, 0.0, next_value)
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-5)


def test_critic_and_actor_loss_by_hand() -> None:
    state, batch, noise = fresh_state(), random_batch(), np.asarray(random_noise(), np.float64)
    observation, target = np.asarray(batch.observation, np.float64), jnp.linspace(-1, 1, BATCH)

    loss, metrics = critic_loss(state.critics, batch, target)
    q = numpy_q(state.critics, observation, np.asarray(batch.action, np.float64))
    first, second = q - np.asarray(target, np.float64)
    assert float(loss) == pytest.approx(np.mean(first**2 + second**2) / 2, rel=1e-5)
    assert float(metrics["q_mean"]) == pytest.approx(q.mean(), rel=1e-4)

    temperature = jnp.asarray(0.7)
    loss, metrics = actor_loss(
        state.actor, state.critics, temperature, batch.observation, random_noise()
    )
    action, log_probability = numpy_policy(state, observation, noise)
    expected = np.mean(
        0.7 * log_probability - numpy_q(state.critics, observation, action).min(axis=0)
    )
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(metrics["policy_entropy"]) == pytest.approx(-log_probability.mean(), rel=1e-4)


@pytest.mark.parametrize(("policy_entropy", "sign"), [(1.0, 1.0), (-5.0, -1.0), (-2.0, 0.0)])
def test_temperature_falls_when_the_policy_is_too_random_and_rises_when_too_sure(
    policy_entropy: float, sign: float
) -> None:
    log_temperature = jnp.log(jnp.asarray(0.2))
    gradient, _ = jax.grad(sac.temperature_loss, has_aux=True)(
        log_temperature, jnp.asarray(policy_entropy), -2.0
    )
    assert float(gradient) == pytest.approx(0.2 * (policy_entropy + 2.0), abs=1e-6)
    assert np.sign(float(gradient)) == sign  # descent moves against the gradient


# The update as a whole.


def test_target_critics_move_by_exactly_the_target_rate() -> None:
    state = fresh_state()
    new_state, _ = update(state, random_batch(), jax.random.key(1), CONFIG)
    rate = CONFIG.target_rate
    expected = jax.tree.map(
        lambda old, new: (1 - rate) * old + rate * new, state.target_critics, new_state.critics
    )
    assert_trees_close(new_state.target_critics, expected, atol=1e-7)


def test_critics_take_one_adam_step_on_their_own_loss_only() -> None:
    """Nothing of the actor's or the temperature's loss moves the critics: their step is Adam's
    first, done by hand."""
    state, batch, key = fresh_state(), random_batch(), jax.random.key(2)
    new_state, metrics = update(state, batch, key, CONFIG)

    target = critic_target(
        state, batch, jax.random.normal(key, (2, BATCH, ACTION_DIM))[0], CONFIG.discount
    )
    gradient, _ = jax.jit(jax.grad(sac.critic_loss, has_aux=True))(state.critics, batch, target)
    expected = jax.tree.map(
        lambda p, g: p - 3e-4 * g / (jnp.abs(g) + 1e-8), state.critics, gradient
    )
    assert_trees_close(new_state.critics, expected, atol=1e-6)
    assert float(metrics["target_mean"]) == pytest.approx(float(jnp.mean(target)), rel=1e-5)


def test_update_reports_every_metric_and_learns_the_temperature() -> None:
    new_state, metrics = update(fresh_state(), random_batch(), jax.random.key(3), CONFIG)
    names = "critic_loss actor_loss temperature_loss temperature policy_entropy q_mean target_mean"
    assert set(metrics) == set(names.split())
    assert all(np.isfinite(value) for value in metrics.values())
    assert float(metrics["temperature"]) == pytest.approx(0.2, rel=1e-6)
    # The default target entropy is minus the number of actions.
    expected_loss = 0.2 * (float(metrics["policy_entropy"]) + ACTION_DIM)
    assert float(metrics["temperature_loss"]) == pytest.approx(expected_loss, rel=1e-5)
    assert float(new_state.log_temperature) == pytest.approx(np.log(0.2) - 3e-4, abs=1e-6)


# What reaches the learner.


def test_a_reward_bonus_moves_the_target_by_exactly_itself() -> None:
    state, batch, noise = fresh_state(), random_batch(), random_noise()
    bonus = jnp.linspace(-2.0, 3.0, BATCH)
    before = critic_target(state, batch, noise, 0.99)
    after = critic_target(state, batch._replace(reward=batch.reward + bonus), noise, 0.99)
    np.testing.assert_allclose(after - before, bonus, atol=1e-6)


def test_a_reward_bonus_moves_the_critics() -> None:
    state, batch, key = fresh_state(), random_batch(), jax.random.key(8)
    paid, _ = update(state, batch._replace(reward=batch.reward + 10.0), key, CONFIG)
    fined, _ = update(state, batch._replace(reward=batch.reward - 10.0), key, CONFIG)
    # Adam's first step is one learning rate long: up for the one, down for the other, so twice that
    # lies between them.
    between = paid.critics.networks.biases[-1] - fined.critics.networks.biases[-1]
    np.testing.assert_allclose(between, 2 * CONFIG.critic_learning_rate, rtol=1e-3)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_centring_takes_a_share_of_the_mean_reward_away(share: float) -> None:
    state, batch, key = fresh_state(), random_batch(), jax.random.key(3)
    centred = update(
        state, batch, key, config=sac.SACConfig(hidden_sizes=(16, 16), reward_centring=share)
    )
    by_hand = batch._replace(reward=batch.reward - share * np.mean(np.asarray(batch.reward)))
    for mine, theirs in zip(
        *map(jax.tree.leaves, (centred, update(state, by_hand, key, config=CONFIG))), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def test_terminated_masks_the_bootstrap_and_may_be_float_or_bool() -> None:
    state, batch, noise = fresh_state(), random_batch(), random_noise()
    as_bool = critic_target(state, batch, noise, 0.99)
    as_float = critic_target(
        state, batch._replace(terminated=batch.terminated.astype(jnp.float32)), noise, 0.99
    )
    np.testing.assert_array_equal(as_bool, as_float)
    ended = np.asarray(batch.terminated)
    np.testing.assert_array_equal(as_bool[ended], batch.reward[ended])
    assert np.all(as_bool[~ended] != batch.reward[~ended])


def test_act_draws_within_bounds_and_repeats_with_its_key() -> None:
    state, observation = fresh_state(), jnp.ones(OBSERVATION_DIM)
    actions = jax.jit(jax.vmap(lambda key: sac.act(state, observation, key)))(
        jax.random.split(jax.random.key(0), 200)
    )
    assert actions.shape == (200, ACTION_DIM)
    assert np.abs(actions).max() < 1.0
    assert np.std(actions, axis=0).min() > 0.2
    again = sac.act(state, observation, jax.random.split(jax.random.key(0), 200)[0])
    np.testing.assert_allclose(again, actions[0], atol=1e-6)
    first, second = (
        sac.act(state, observation, jax.random.key(k), deterministic=True) for k in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "wrong",
    [{"hidden_sizes": ()}, {"discount": 1.5}, {"target_rate": 0.0}, {"initial_temperature": 0.0}],
)
def test_config_names_the_wrong_value(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"SACConfig.{name} is .*; choose"):
        sac.SACConfig(**wrong)
