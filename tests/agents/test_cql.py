"""CQL: the conservative term against loops in NumPy and against a brute-force integral; what it
leaves to SAC is SAC."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from element_rl.agents import cql, sac
from element_rl.agents.networks import Actor, TwinCritics
from element_rl.mlp import MLP

CONFIG = cql.CQLConfig(hidden_sizes=(16, 16), sampled_actions=4, batch_size=8)
OBSERVATION_DIM, ACTION_DIM, BATCH = 3, 2, 8
# Compiled, all of them: an operation at a time takes longer, compiling for every shape.
update = jax.jit(cql.update, static_argnames="config")
conservative_gap = jax.jit(cql.conservative_gap)
action_values = jax.jit(cql.action_values)
q_of = jax.jit(lambda critics, observation, action: critics(observation, action))
critic_target = jax.jit(sac.critic_target, static_argnames=("discount", "soft"))


def random_batch(seed: int = 0) -> sac.Batch:
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, size=(BATCH, ACTION_DIM))
    action[0] = (-1.0, 1.0)  # the bounds are actions like any other
    return sac.Batch(
        observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        action=jnp.asarray(action, jnp.float32),
        reward=jnp.asarray(rng.normal(size=BATCH), jnp.float32),
        next_observation=jnp.asarray(rng.normal(size=(BATCH, OBSERVATION_DIM)), jnp.float32),
        terminated=jnp.asarray(np.arange(BATCH) % 4 == 0),
    )


def hand_made_critics() -> TwinCritics:
    """Q_i(s, a) = c_i relu(s·u + a·v) with c = (1, -3): small enough to write down, and far
    apart."""
    first = np.array([[0.5], [-1.0], [0.3], [1.2], [-0.7]], np.float32)
    weights = (jnp.asarray(np.stack([first, first])), jnp.asarray([[[1.0]], [[-3.0]]]))
    biases = (jnp.asarray([[0.4], [0.4]]), jnp.asarray([[0.0], [2.0]]))
    return TwinCritics(MLP(weights, biases))


def hand_made_q(critic: int, observation: np.ndarray, action: np.ndarray) -> float:
    u, v = np.array([0.5, -1.0, 0.3]), np.array([1.2, -0.7])
    hidden = max(0.0, float(observation @ u + action @ v) + 0.4)
    return hidden if critic == 0 else -3.0 * hidden + 2.0


def proposals(seed: int = 0, number: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, size=(number, BATCH, ACTION_DIM)).astype(np.float32)
    return actions, rng.normal(size=(number, BATCH)).astype(np.float32)


def looped_gap(batch: sac.Batch, actions: np.ndarray, log_density: np.ndarray) -> list[float]:
    """G_i, one number after the other: critics outside, then observations, then actions."""
    gaps = []
    for critic in range(2):
        total = 0.0
        for b in range(BATCH):
            observation = np.asarray(batch.observation[b], np.float64)
            integral = 0.0
            for s in range(len(actions)):
                value = hand_made_q(critic, observation, actions[s, b].astype(np.float64))
                integral += np.exp(value) / np.exp(float(log_density[s, b])) / len(actions)
            total += np.log(integral) - hand_made_q(
                critic, observation, np.asarray(batch.action[b], np.float64)
            )
        gaps.append(total / BATCH)
    return gaps


def test_conservative_gap_of_each_critic_by_hand() -> None:
    batch, (actions, log_density) = random_batch(), proposals()
    expected = looped_gap(batch, actions, log_density)
    gap = conservative_gap(hand_made_critics(), batch, actions, log_density)
    np.testing.assert_allclose(gap, expected, rtol=1e-5)
    # One logarithm over both critics, as some code has it, is another number: this test can tell
    # the axes apart.
    weighted = (
        np.asarray(action_values(hand_made_critics(), batch.observation, actions)) - log_density
    )
    of_data = np.asarray(q_of(hand_made_critics(), batch.observation, batch.action))
    over_both = logsumexp(weighted, axis=(0, 1)) - np.log(len(actions))
    assert abs(2 * np.mean(over_both) - of_data.mean(axis=1).sum() - sum(expected)) > 0.5
    over_critics = logsumexp(weighted, axis=0)
    assert abs(np.mean(over_critics) - of_data.mean() - np.mean(expected)) > 0.1


def test_critic_loss_by_hand() -> None:
    batch, (actions, log_density) = random_batch(1), proposals(1)
    target = np.linspace(-1, 1, BATCH)
    loss, metrics = jax.jit(cql.critic_loss)(
        hand_made_critics(), batch, target.astype(np.float32), actions, log_density, np.float32(5.0)
    )
    gaps = looped_gap(batch, actions, log_density)
    errors = 0.0
    for critic in range(2):
        for b in range(BATCH):
            value = hand_made_q(
                critic, np.asarray(batch.observation[b]), np.asarray(batch.action[b])
            )
            errors += 0.5 * (value - target[b]) ** 2 / BATCH
    assert float(loss) == pytest.approx(errors + 0.5 * 5.0 * sum(gaps), rel=1e-5)
    assert float(metrics["critic_loss"]) == pytest.approx(errors, rel=1e-5)
    assert float(metrics["conservative_gap"]) == pytest.approx(np.mean(gaps), rel=1e-5)


def test_action_values_are_those_of_the_critics() -> None:
    critics = TwinCritics.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, (16, 16))
    batch, (actions, _) = random_batch(), proposals()
    values = action_values(critics, batch.observation, actions)
    expected = np.stack([q_of(critics, batch.observation, each) for each in actions], axis=1)
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_proposed_actions_come_with_their_own_densities() -> None:
    batch, number = random_batch(), 3
    actor = Actor.create(jax.random.key(1), OBSERVATION_DIM, ACTION_DIM, (16,))
    noise = np.random.default_rng(0).normal(size=(3 * number, BATCH, ACTION_DIM)).astype(np.float32)
    actions, log_density = jax.jit(cql.proposed_actions)(actor, batch, noise)
    np.testing.assert_allclose(actions[:number], 2 * norm.cdf(noise[:number]) - 1, atol=1e-6)
    np.testing.assert_allclose(log_density[:number], np.log(0.5**ACTION_DIM), rtol=1e-6)
    for kind, observation in ((1, batch.observation), (2, batch.next_observation)):
        mean, log_std = (np.asarray(part, np.float64) for part in actor(observation))
        for s in range(kind * number, (kind + 1) * number):
            u = np.arctanh(np.asarray(actions[s], np.float64))
            np.testing.assert_allclose(u, mean + np.exp(log_std) * noise[s], atol=1e-3)
            density = np.prod(norm.pdf(u, mean, np.exp(log_std)) / (1 - np.tanh(u) ** 2), axis=-1)
            np.testing.assert_allclose(log_density[s], np.log(density), atol=1e-3)


def test_the_estimate_converges_to_the_integral_over_all_actions() -> None:
    """One action, so that log ∫ exp Q da can be had from a fine grid; critics that are anything but
    flat."""
    critics = TwinCritics.create(jax.random.key(3), OBSERVATION_DIM, 1, (32, 32))
    critics = eqx.tree_at(
        lambda c: c.networks.weights, critics, tuple(4 * w for w in critics.networks.weights)
    )
    actor = Actor.create(jax.random.key(4), OBSERVATION_DIM, 1, (16,))
    batch = random_batch()._replace(action=jnp.zeros((BATCH, 1)))
    size = 20_000

    @jax.jit
    def truth_and_estimates(noise: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        grid = jnp.broadcast_to(
            ((jnp.arange(size) + 0.5) * 2 / size - 1)[:, None, None], (size, BATCH, 1)
        )
        truth = cql.conservative_gap(critics, batch, grid, jnp.full((size, BATCH), -jnp.log(2.0)))
        actions, log_density = cql.proposed_actions(actor, batch, noise)
        parts = zip(jnp.split(actions, 3), jnp.split(log_density, 3), strict=True)
        each = jnp.stack([cql.conservative_gap(critics, batch, *part) for part in parts])
        spread = jnp.ptp(cql.action_values(critics, batch.observation, grid), axis=1)
        return (
            truth,
            jnp.concatenate(
                [each, cql.conservative_gap(critics, batch, actions, log_density)[None]]
            ),
            spread,
        )

    truth, estimates, spread = truth_and_estimates(
        jax.random.normal(jax.random.key(5), (3 * size, BATCH, 1))
    )
    assert float(jnp.max(spread)) > 2.0
    # each kind of proposal alone converges: none has a wrong density
    for estimate in estimates[:3]:
        np.testing.assert_allclose(estimate, truth, atol=0.06)
    np.testing.assert_allclose(estimates[3], truth, atol=0.02)


def test_without_weight_it_is_sac() -> None:
    config = dataclasses.replace(CONFIG, conservative_weight=0.0, soft_backup=True)
    state = cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, config)
    plain = sac.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, config.sac)
    jax.tree.map(np.testing.assert_array_equal, state.agent, plain)
    sac_update = jax.jit(sac.update, static_argnames="config")
    for seed in range(3):
        state, metrics = update(state, random_batch(seed), jax.random.key(seed), config)
        plain, plain_metrics = sac_update(
            plain, random_batch(seed), jax.random.key(seed), config.sac
        )
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-7, rtol=1e-6), state.agent, plain)
        for name, value in plain_metrics.items():
            np.testing.assert_allclose(metrics[name], value, atol=1e-6)


def test_updates_lower_other_actions_below_those_of_the_data() -> None:
    state = cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG)
    gaps = []
    for seed in range(300):
        state, metrics = update(state, random_batch(0), jax.random.key(seed), CONFIG)
        gaps.append(float(metrics["conservative_gap"]))
    assert np.mean(gaps[-20:]) < np.mean(gaps[:20]) - 0.1


def test_target_has_an_entropy_term_only_if_asked_for() -> None:
    state = cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG).agent
    noise = jax.random.normal(jax.random.key(1), (BATCH, ACTION_DIM))
    batch = random_batch()
    hard, soft = (
        critic_target(state, batch, noise, discount=0.9, soft=soft) for soft in (False, True)
    )
    draw = jax.jit(
        lambda actor, noise: sac.squashed_gaussian(*actor(batch.next_observation), noise)
    )
    _, log_probability = draw(state.actor, noise)
    going_on = ~np.asarray(batch.terminated)
    np.testing.assert_allclose(
        soft[going_on],
        np.asarray(hard - 0.9 * 1.0 * log_probability)[going_on],
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_array_equal(soft[~going_on], hard[~going_on])
    _, metrics = update(
        cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG),
        batch,
        jax.random.key(1),
        CONFIG,
    )
    drawn = jax.random.normal(jax.random.key(1), (2, BATCH, ACTION_DIM))[0]
    expected = critic_target(state, batch, drawn, discount=CONFIG.discount, soft=False)
    assert float(metrics["target_mean"]) == pytest.approx(float(jnp.mean(expected)), rel=1e-4)


@pytest.mark.parametrize(("gap", "sign"), [(3.0, -1.0), (1.0, 1.0)])
def test_a_learned_weight_rises_above_its_threshold_and_falls_below(
    gap: float, sign: float
) -> None:
    gradient = jax.grad(cql.weight_loss)(jnp.log(jnp.asarray(5.0)), jnp.asarray(gap), 2.0)
    assert float(gradient) == pytest.approx(sign * 5.0, rel=1e-6)  # descent moves against it


def test_the_weight_is_learned_only_with_a_threshold() -> None:
    config = dataclasses.replace(CONFIG, lagrange_threshold=-100.0, conservative_learning_rate=0.01)
    state = cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, config)
    new, metrics = update(state, random_batch(), jax.random.key(0), config)
    assert float(metrics["conservative_weight"]) == pytest.approx(5.0, rel=1e-5)
    assert float(new.log_conservative_weight) == pytest.approx(np.log(5.0) + 0.01, abs=1e-5)
    unchanged, _ = update(state, random_batch(), jax.random.key(0), CONFIG)
    assert float(unchanged.log_conservative_weight) == float(state.log_conservative_weight)


@pytest.mark.parametrize("wrong", [{"conservative_weight": -1.0}, {"sampled_actions": 0}])
def test_config_names_the_wrong_value(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"CQLConfig.{name} is .*; choose"):
        cql.CQLConfig(**wrong)
    with pytest.raises(ValueError, match=r"SACConfig.discount is 2.0; choose"):
        cql.CQLConfig(discount=2.0)
    with pytest.raises(ValueError, match="cannot start at 0"):
        cql.CQLConfig(conservative_weight=0.0, lagrange_threshold=1.0)
