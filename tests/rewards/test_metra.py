"""METRA against NumPy in float64: its reward, its constraint, a step of φ and one of λ."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.rewards import RewardSpec
from element_rl.rewards.interface import Latent
from element_rl.rewards.metra import (
    MetraConfig,
    MetraReward,
    MetraState,
    constraint,
    encoder_loss,
)

# three columns of the world, two of z
SPEC = RewardSpec(
    observation_dim=5, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)


def metra(**options) -> MetraReward:
    return MetraReward(MetraConfig(**({"encoder_sizes": (16,), "warm_up": 30} | options)))


@functools.cache
def fresh() -> MetraState:
    return init(metra(), jax.random.key(0), SPEC)


def told(rng: np.random.Generator, rows: int, spread: float = 3.0) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, rows)
    world = rng.normal(1.0, spread, (rows, 3))
    return np.column_stack([world, np.cos(angle), np.sin(angle)]).astype(np.float32)


def change_by_hand(encoder, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """φ(s') − φ(s), of inputs as they are."""
    weights = [np.asarray(weight, np.float64) for weight in encoder.weights]
    biases = [np.asarray(bias, np.float64) for bias in encoder.biases]
    first, last = (
        np.maximum(np.asarray(part, np.float64) @ weights[0] + biases[0], 0)
        for part in (before, after)
    )
    return (last - first) @ weights[1]


def test_defaults_are_the_authors() -> None:
    config = MetraConfig()
    assert (config.latent_dim, config.encoder_sizes) == (2, (1024, 1024))
    assert (config.multiplier, config.slack) == (30.0, 1e-3)
    assert (config.learning_rate, config.multiplier_learning_rate) == (1e-4, 1e-4)


def test_the_reward_by_hand() -> None:
    """The first thirty observations, and no later ones, say what inputs are measured in; z is that
    of the observation before the action."""
    reward, rng = metra(), np.random.default_rng(0)
    first, second = told(rng, 36), told(rng, 11, spread=9.0)
    state, notes = observe(reward, fresh(), episode_of(first))
    state, _ = observe(reward, state, episode_of(second))
    assert notes == {}
    world = first[1:, :3].astype(np.float64)
    before, after = told(rng, 6), told(rng, 6)
    scaled = [(part[:, :3] - world.mean(axis=0)) / world.std(axis=0) for part in (before, after)]
    expected = (change_by_hand(state.encoder, *scaled) * before[:, 3:]).sum(axis=1)
    batch = transitions(6, observation=before, next_observation=after)
    np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-3, atol=1e-5)
    terms = reward.reward_terms(state, batch)
    np.testing.assert_allclose(terms["reward_episodic"], expected, rtol=1e-3, atol=1e-5)


def test_the_constraint_by_hand() -> None:
    """min(ε, 1 − l²) for steps of length 0, just below 1, 1 and 2."""
    squared = jnp.array([0.0, 1 - 5e-4, 1.0, 4.0])
    np.testing.assert_allclose(constraint(squared, 1e-3), [1e-3, 5e-4, 0.0, -3.0], atol=1e-6)


def test_the_loss_of_the_encoder_by_hand() -> None:
    rng = np.random.default_rng(1)
    before, after = told(rng, 8), told(rng, 8)
    change = change_by_hand(fresh().encoder, before[:, :3], after[:, :3])
    squared = (change**2).sum(axis=1)
    objective = (change * before[:, 3:]).sum(axis=1).mean()
    expected = -(objective + 7.0 * np.minimum(1e-3, 1 - squared).mean())
    arrays = (jnp.asarray(part) for part in (before[:, :3], after[:, :3], before[:, 3:]))
    loss, (met, lengths) = jax.jit(encoder_loss, static_argnums=5)(
        fresh().encoder, *arrays, jnp.float32(7.0), 1e-3
    )
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(met) == pytest.approx(objective, rel=1e-4)
    np.testing.assert_allclose(lengths, np.sqrt(squared), rtol=1e-4)


@pytest.mark.parametrize(("spread", "grows"), [(0.01, False), (30.0, True)])
def test_a_step_of_the_multiplier_by_hand(spread: float, grows: bool) -> None:
    """Adam's first step is its learning rate against the sign of the slope, E[min(ε, 1 − l²)]: λ
    falls while all steps are short, and grows where they are too long."""
    rng = np.random.default_rng(2)
    batch = transitions(8, observation=told(rng, 8, spread), next_observation=told(rng, 8, spread))
    state, metrics = update(metra(), fresh(), batch, jax.random.key(0))
    slope = np.log(30.0) + (1e-4 if grows else -1e-4)
    assert float(state.log_multiplier) == pytest.approx(slope, abs=1e-6)
    assert float(metrics["metra_multiplier"]) == pytest.approx(30.0, rel=1e-6)
    change = change_by_hand(
        fresh().encoder, batch.observation[:, :3], batch.next_observation[:, :3]
    )
    lengths = np.sqrt((np.asarray(change) ** 2).sum(axis=1))
    assert float(metrics["metra_step_length"]) == pytest.approx(lengths.mean(), rel=1e-3)
    objective = (change * np.asarray(batch.observation)[:, 3:]).sum(axis=1).mean()
    assert float(metrics["metra_objective"]) == pytest.approx(objective, rel=1e-3, abs=1e-5)


def test_steps_become_as_long_as_they_may() -> None:
    """A point that moves a little in the direction it is told: φ stretches its steps to a length of
    1, and no further."""
    reward, rng = metra(learning_rate=3e-3, multiplier_learning_rate=3e-2), np.random.default_rng(3)
    before = told(rng, 64, spread=1.0)
    after = before.copy()
    after[:, :2] += 0.1 * before[:, 3:]
    batch = transitions(64, observation=before, next_observation=after)
    keys = jax.random.split(jax.random.key(0), 800)
    learn = jax.jit(
        lambda state: jax.lax.scan(lambda s, k: reward.update(s, batch, k), state, keys)
    )
    _, metrics = learn(fresh())
    assert metrics["metra_step_length"][0] < 0.2
    assert metrics["metra_step_length"][-50:].mean() == pytest.approx(1.0, abs=0.1)
    assert metrics["metra_objective"][-50:].mean() > 0.8


def test_it_says_what_it_needs() -> None:
    assert metra().latent == Latent(2, "sphere")
    skills = metra(latent_dim=16, latent_kind="choice").latent
    assert (skills, skills.option) == (Latent(16, "choice"), "choice:16")


@pytest.mark.parametrize(
    ("name", "value"),
    [("latent_dim", 0), ("slack", 0.0), ("multiplier", -1.0)],
)
def test_bad_settings_are_refused(name: str, value) -> None:
    with pytest.raises(ValueError, match=rf"MetraConfig.{name} is .*; choose .*\."):
        MetraConfig(**{name: value})
    with pytest.raises(ValueError, match="choose at least 1, of skills at least 2"):
        MetraConfig(latent_dim=1, latent_kind="choice")
