"""A3C by hand: advantages, losses, padding, the LSTM's state, and the same network in NumPy and in
JAX."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting import host_a3c
from element_rl.agents import a3c

SMALL = a3c.A3CConfig(channels=(4, 4), hidden_size=8, local_steps=6)
FRAME = (9, 12)  # odd and not square: rows and columns must not be mixed up


def rollout(
    length: int, config: a3c.A3CConfig = SMALL, seed: int = 0, terminated: bool = False
) -> a3c.PaddedRollout:
    rng = np.random.default_rng(seed)
    steps = config.local_steps
    return a3c.PaddedRollout(
        jnp.asarray(rng.integers(0, 256, (steps + 1, *FRAME), np.uint8)),
        jnp.asarray(rng.integers(0, 3, steps, np.int32)),
        jnp.asarray(rng.normal(size=steps), jnp.float32),
        jnp.asarray(length, jnp.int32),
        jnp.asarray(terminated),
        jnp.asarray(rng.normal(size=(2, config.hidden_size)), jnp.float32),
    )


@pytest.mark.parametrize(
    ("terminated", "decay", "expected"),
    [
        # r = 1, 0, 2; V = 0.5, 1, 2, then 4; γ = 0.5. δ = 1 + 0.5 − 0.5, 0 + 1 − 1, 2 + 0.5·4 − 2
        # (or 2 + 0 − 2)
        (False, 1.0, [1.0 + 0.5 * (0.0 + 0.5 * 2.0), 0.0 + 0.5 * 2.0, 2.0]),
        (True, 1.0, [1.0, 0.0, 0.0]),
        (False, 0.5, [1.0 + 0.25 * (0.0 + 0.25 * 2.0), 0.25 * 2.0, 2.0]),
        (False, 0.0, [1.0, 0.0, 2.0]),
    ],
)
def test_advantages_by_hand(terminated: bool, decay: float, expected: list[float]) -> None:
    rewards = jnp.array([1.0, 0.0, 2.0, 99.0, 99.0])  # what stands in the padding must not matter
    values = jnp.array([0.5, 1.0, 2.0, 4.0, 77.0, 77.0])
    advantages = a3c.generalised_advantages(
        rewards, values, jnp.asarray(3), jnp.asarray(terminated), 0.5, decay
    )
    np.testing.assert_allclose(advantages, [*expected, 0.0, 0.0], rtol=1e-6)


def test_the_loss_is_the_sum_over_steps_by_hand() -> None:
    network = a3c.ActorCritic.create(jax.random.key(0), FRAME, 3, SMALL)
    given = rollout(4)
    loss, metrics = a3c.rollout_loss(network, given, SMALL)
    log_policy, values = (np.asarray(x, np.float64) for x in network(given.frames, given.lstm))
    returns, total = values[4], 0.0
    for t in reversed(range(4)):
        # λ = 1: the advantage is a return minus the value
        returns = float(given.rewards[t]) + 0.9 * returns
        entropy = -np.sum(np.exp(log_policy[t]) * log_policy[t])
        advantage = returns - values[t]
        total += -log_policy[t, given.actions[t]] * advantage + 0.5 * advantage**2 - 0.01 * entropy
    assert float(loss) == pytest.approx(total / 6, rel=1e-4)
    assert float(metrics["value_mean"]) == pytest.approx(values[:4].mean(), rel=1e-4)


def test_padding_changes_nothing() -> None:
    """The same three steps, padded with other things, and padded to another length."""
    state = a3c.create(jax.random.key(1), FRAME, 3, SMALL)
    short = rollout(3)
    other = rollout(3, seed=5)
    keep = jnp.arange(6) < 3
    noise = short._replace(
        frames=short.frames.at[4:].set(other.frames[4:]),
        actions=jnp.where(keep, short.actions, other.actions),
        rewards=jnp.where(keep, short.rewards, jnp.nan),
    )
    once, twice = (a3c.update(state, state.network, given, SMALL) for given in (short, noise))
    for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(twice), strict=True):
        np.testing.assert_array_equal(a, b)
    longer = dataclasses.replace(SMALL, local_steps=3)
    cut = short._replace(
        frames=short.frames[:4], actions=short.actions[:3], rewards=short.rewards[:3]
    )
    np.testing.assert_allclose(
        a3c.rollout_loss(state.network, cut, longer)[0] * 3,
        a3c.rollout_loss(state.network, short, SMALL)[0] * 6,
        rtol=1e-5,
    )


def test_the_gradient_is_of_the_parameters_acted_with_and_lands_in_the_shared_ones() -> None:
    shared = a3c.create(jax.random.key(1), FRAME, 3, SMALL)
    acted = a3c.ActorCritic.create(jax.random.key(2), FRAME, 3, SMALL)
    after, _ = a3c.update(shared, acted, rollout(5), SMALL)
    gradient = jax.grad(lambda network: a3c.rollout_loss(network, rollout(5), SMALL)[0])(acted)
    # The first step of Adam is the sign of the gradient, times the learning rate, wherever the
    # gradient is.
    for before, now, slope in zip(
        *map(jax.tree.leaves, (shared.network, after.network, gradient)), strict=True
    ):
        clear = np.abs(slope) > 1e-4
        np.testing.assert_allclose((now - before)[clear], -1e-4 * np.sign(slope)[clear], rtol=1e-2)


def test_what_the_lstm_began_with_matters_and_reaches_every_step() -> None:
    network = a3c.ActorCritic.create(jax.random.key(0), FRAME, 3, SMALL)
    given = rollout(6)
    values = network(given.frames, given.lstm)[1]
    assert (np.abs(values - network(given.frames, given.lstm.at[:].set(0.0))[1]) > 1e-6).all()


def test_one_program_for_all_lengths() -> None:
    state = a3c.create(jax.random.key(1), FRAME, 3, SMALL)
    before = a3c.update._cache_size()
    for length in range(1, 7):
        state, metrics = a3c.update(
            state, state.network, rollout(length, terminated=length % 2 == 0), SMALL
        )
        assert all(np.isfinite(value) for value in metrics.values())
    assert a3c.update._cache_size() <= before + 1


@pytest.mark.parametrize(
    ("config", "frame"), [(SMALL, FRAME), (a3c.A3CConfig(local_steps=4), (84, 84))]
)
def test_numpy_acts_as_jax_learns(config: a3c.A3CConfig, frame: tuple[int, int]) -> None:
    network = a3c.ActorCritic.create(jax.random.key(3), frame, 5, config)
    parameters = {name: np.asarray(array) for name, array in a3c.policy_parameters(network).items()}
    frames = np.random.default_rng(0).integers(0, 256, (4, *frame), np.uint8)
    lstm = np.random.default_rng(1).normal(size=(2, config.hidden_size)).astype(np.float32)
    log_policy, values = network(jnp.asarray(frames), jnp.asarray(lstm))
    for t in range(4):
        probabilities, value, lstm = host_a3c.forward(parameters, frames[t], lstm)
        np.testing.assert_allclose(probabilities, np.exp(log_policy[t]), atol=1e-4)
        assert value == pytest.approx(float(values[t]), abs=1e-4)
        assert lstm.dtype == probabilities.dtype == np.float32


def test_the_paper_s_network_has_its_sizes() -> None:
    network = a3c.ActorCritic.create(jax.random.key(0), (84, 84), 16, a3c.A3CConfig())
    assert network.lstm_input.shape == (32 * 6 * 6, 4 * 512)
    assert network.head_weight.shape == (512, 16 + 1)


def test_actions_are_drawn_with_their_probabilities() -> None:
    network = a3c.ActorCritic.create(jax.random.key(0), FRAME, 3, SMALL)
    parameters = {
        name: np.asarray(array) * 3 for name, array in a3c.policy_parameters(network).items()
    }
    frame, lstm = np.full(FRAME, 200, np.uint8), np.zeros((2, 8), np.float32)
    probabilities = host_a3c.forward(parameters, frame, lstm)[0]
    uniforms = (np.arange(1_000) + 0.5) / 1_000
    drawn = [host_a3c.act(parameters, frame, lstm, float(u))[0] for u in uniforms]
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 1_000, probabilities, atol=2e-3)
    assert host_a3c.act(parameters, frame, lstm, np.nextafter(1.0, 0.0))[0] == 2


def test_parameters_make_the_network_again() -> None:
    network = a3c.ActorCritic.create(jax.random.key(0), FRAME, 3, SMALL)
    again = a3c.network_of(a3c.policy_parameters(network))
    assert jax.tree.structure(again) == jax.tree.structure(network)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(network), strict=True):
        np.testing.assert_array_equal(a, b)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"discount": 1.0},
        {"local_steps": 0},
        {"channels": ()},
        {"gae_decay": 1.5},
        {"learning_rate": 0.0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            a3c.A3CConfig(**wrong)


def test_acting_loads_no_jax() -> None:
    code = "import sys, element_rl.acting.host_a3c; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
