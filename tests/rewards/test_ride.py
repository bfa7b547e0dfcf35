"""RIDE's impact, counts, gradients and optimiser against numbers by hand and plain NumPy."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.icm import CuriosityModels, curiosity_loss
from element_rl.rewards.inverse_model import InverseModel
from element_rl.rewards.ride import RideConfig, RideReward

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=100
)
SMALL = {"feature_dim": 4, "encoder_sizes": (8,), "inverse_sizes": (7,), "forward_sizes": (6,)}
KEY = jax.random.key(0)
gradient_of = jax.jit(
    lambda models, batch: jax.grad(curiosity_loss, has_aux=True)(models, batch, 0.2)
)


def ride(**options: Any) -> RideReward:
    return RideReward(RideConfig(**(SMALL | options)))


def random_batch(seed: int, noted: Any, size: int = 6) -> Transitions:
    rng = np.random.default_rng(seed)
    observation, action = rng.normal(size=(size, 3)), rng.uniform(-1, 1, size=(size, 2))
    pushed = observation + np.pad(action, ((0, 0), (0, 1)))
    fields = {"observation": observation, "action": action, "next_observation": pushed}
    return transitions(size, {"inverse_root_visits": noted}, **fields)


def numpy_mlp(network: MLP, inputs: Any) -> np.ndarray:
    hidden = np.asarray(inputs, np.float64)
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        hidden = hidden @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)
        hidden = hidden if layer == len(network.weights) - 1 else np.maximum(hidden, 0)
    return hidden


def numpy_losses(models: CuriosityModels, batch: Transitions) -> tuple[float, float]:
    before, after = (
        numpy_mlp(models.inverse.encoder, seen)
        for seen in (batch.observation, batch.next_observation)
    )
    told = np.tanh(numpy_mlp(models.inverse.head, np.concatenate([before, after], axis=1)))
    foreseen = numpy_mlp(models.forward, np.concatenate([before, batch.action], axis=1))
    inverse = ((told - np.asarray(batch.action)) ** 2).mean()
    return inverse, 0.5 * ((foreseen - after) ** 2).sum(axis=1).mean()


def test_by_hand() -> None:
    """φ doubles two numbers: from (0, 0) to (3, 4) the impact is 10; at the fourth visit half of
    it is paid, times c. To stay pays nothing."""
    double = MLP((2.0 * jnp.eye(2),), (jnp.zeros(2),))
    idle = MLP((jnp.zeros((4, 1)),), (jnp.zeros(1),))
    models = CuriosityModels(InverseModel(double, idle), MLP((jnp.zeros((3, 2)),), (jnp.zeros(2),)))
    reward = RideReward(RideConfig(feature_dim=2, encoder_sizes=(), reward_scale=0.3))
    state = init(reward, KEY, RewardSpec(2, 1, 2, 8, 100))._replace(models=models)
    batch = transitions(
        3,
        {"inverse_root_visits": [1.0, 0.5, 1.0]},
        observation=[[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]],
        action=np.zeros((3, 1)),
        next_observation=[[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]],
    )
    np.testing.assert_allclose(reward_of(reward, state, batch), [3.0, 1.5, 0.0], rtol=1e-6)
    terms = reward.reward_terms(state, batch)
    np.testing.assert_allclose(terms["reward_lifelong"], [10.0, 10.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(terms["reward_episodic"], [1.0, 0.5, 1.0])


def test_notes_are_one_over_the_root_of_visits() -> None:
    """Over several episodes: counts begin anew, and cells are whitened by the episodes before."""
    reward = ride(cell_width=0.8)
    state = init(reward, KEY, SPEC)
    rng = np.random.default_rng(0)
    mean, std, seen = np.zeros(3), np.ones(3), []
    for length in (40, 1, 17):
        walk = np.cumsum(rng.normal(size=(length + 1, 3)), axis=0).astype(np.float32)
        keys = np.floor((walk - mean) / std / 0.8 + np.asarray(state.cells.offsets))
        visits, expected = Counter([tuple(keys[0])]), []
        for key in map(tuple, keys[1:]):
            visits[key] += 1
            expected.append(visits[key] ** -0.5)
        state, notes = observe(reward, state, episode_of(walk))
        noted = notes["inverse_root_visits"]
        np.testing.assert_allclose(noted[:length], expected, rtol=1e-5)
        assert not np.asarray(noted)[length:].any()
        seen.append(walk[1:])
        mean, std = np.concatenate(seen).mean(0), np.concatenate(seen).std(0)
    assert min(expected) < 1


def test_against_numpy_through_updates() -> None:
    reward, noted = ride(reward_scale=0.7), np.array([1.0, 0.5, 1.0, 0.1, 0.3, 0.0])
    state = init(reward, KEY, SPEC)
    for seed in range(3):
        batch = random_batch(seed, noted)
        inverse, forward = numpy_losses(state.models, batch)
        state, metrics = update(reward, state, batch, KEY)
        assert set(metrics) == set(reward.metric_names)
        np.testing.assert_allclose(metrics["ride_inverse_loss"], inverse, rtol=1e-5)
        np.testing.assert_allclose(metrics["ride_forward_loss"], forward, rtol=1e-5)
        encoder = state.models.inverse.encoder
        change = numpy_mlp(encoder, batch.next_observation) - numpy_mlp(encoder, batch.observation)
        expected = 0.7 * noted * np.linalg.norm(change, axis=1)
        np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-4)


def test_first_step_of_rmsprop_on_the_joint_loss() -> None:
    """From nothing the mean square is 0.01 g²: a step is −η g / (0.1 |g| + ε), as in PyTorch. It
    moves φ, g and f, and nothing else; notes train nothing."""
    reward = ride(learning_rate=0.01)
    state, batch = init(reward, KEY, SPEC), random_batch(1, np.ones(6))
    gradient, _ = gradient_of(state.models, batch)
    updated, _ = update(reward, state, batch, KEY)
    for part in (lambda m: m.inverse.encoder, lambda m: m.inverse.head, lambda m: m.forward):
        old, slope, new = (part(tree) for tree in (state.models, gradient, updated.models))
        slope, old, new = (jax.device_get(network) for network in (slope, old, new))
        assert np.abs(slope.weights[0]).max() > 1e-6
        step = 0.01 * slope.weights[0] / (0.1 * np.abs(slope.weights[0]) + 1e-5)
        np.testing.assert_allclose(new.weights[0], old.weights[0] - step, rtol=1e-4, atol=1e-5)
    for old, new in zip(
        jax.tree.leaves((state.cells, state.observations)),
        jax.tree.leaves((updated.cells, updated.observations)),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)
    others, _ = update(reward, state, batch._replace(notes=random_batch(1, np.zeros(6)).notes), KEY)
    np.testing.assert_array_equal(
        others.models.forward.weights[0], updated.models.forward.weights[0]
    )


def test_large_gradients_are_scaled_down() -> None:
    """To a norm of 1e-4 in all: next to ε the steps then follow the slope."""
    reward = ride(learning_rate=1.0, max_gradient_norm=1e-4, rms_epsilon=1.0)
    state, batch = init(reward, KEY, SPEC), random_batch(1, np.ones(6))
    updated, _ = update(reward, state, batch, KEY)
    before, after = (jax.device_get(jax.tree.leaves(known.models)) for known in (state, updated))
    norm = np.sqrt(sum(((new - old) ** 2).sum() for old, new in zip(before, after, strict=True)))
    np.testing.assert_allclose(norm, 1e-4, rtol=1e-2)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"feature_dim": 0}, "feature_dim is 0; choose at least 1."),
        ({"encoder_sizes": (0,)}, r"encoder_sizes is \(0,\); choose positive widths."),
        ({"forward_weight": 1.0}, "forward_weight is 1.0; choose above 0 and below 1."),
        ({"rms_decay": 1.0}, "rms_decay is 1.0; choose from 0 to below 1."),
        ({"cell_projections": 0}, "cell_projections is 0; choose at least 1."),
        ({"cell_width": 0.0}, "cell_width is 0.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^RideConfig.{sentence}$"):
        RideConfig(**setting)


def test_official_settings_and_interface() -> None:
    config = RideConfig()
    assert (config.feature_dim, config.inverse_sizes, config.forward_sizes) == (128, (256,), (256,))
    assert (config.learning_rate, config.rms_decay, config.rms_epsilon) == (1e-4, 0.99, 1e-5)
    assert config.max_gradient_norm == 40.0
    assert isinstance(RideReward(), Reward)
