"""Disagreement against plain NumPy in double precision: variance, losses, gradients, scale."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.disagreement import (
    DisagreementConfig,
    DisagreementReward,
    DisagreementState,
    ensemble_loss,
)

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=40, total_steps=100
)
SMALL = {"num_models": 4, "hidden_sizes": (6,)}
KEY = jax.random.key(0)
gradient_of = jax.jit(jax.grad(ensemble_loss))


def disagreement(**options: Any) -> DisagreementReward:
    return DisagreementReward(DisagreementConfig(**(SMALL | options)))


def random_batch(seed: int, size: int = 6) -> Transitions:
    """A world that can be learnt: the action pushes two of three entries."""
    rng = np.random.default_rng(seed)
    observation, action = rng.normal(size=(size, 3)), rng.uniform(-1, 1, size=(size, 2))
    pushed = observation + np.pad(action, ((0, 0), (0, 1)))
    return transitions(size, observation=observation, action=action, next_observation=pushed)


def numpy_predictions(models: MLP, inputs: np.ndarray) -> np.ndarray:
    """Model by model, [N, B, O]."""
    found = []
    for model in range(len(models.biases[0])):
        hidden = inputs
        for layer, (weight, bias) in enumerate(zip(models.weights, models.biases, strict=True)):
            hidden = hidden @ np.asarray(weight[model], np.float64) + np.asarray(bias[model], float)
            hidden = hidden if layer == len(models.weights) - 1 else np.maximum(hidden, 0)
        found.append(hidden)
    return np.stack(found)


def numpy_variance(state: DisagreementState, batch: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Entry by entry: 1/N Σ (f_n − f̄)², and its mean."""
    whitened = np.clip((np.asarray(batch.observation, float) - mean) / std, -5, 5)
    inputs = np.concatenate([whitened, np.asarray(batch.action, float)], axis=1)
    foreseen = numpy_predictions(state.models, inputs)
    centre = sum(foreseen) / len(foreseen)
    squares = sum((one - centre) ** 2 for one in foreseen) / len(foreseen)
    return squares.mean(axis=1)


def test_by_hand() -> None:
    """Two models without hidden layers say 3 s and s + 2 a. At s = 1, a = 1 they agree; at s = 2,
    a = 0 they say 6 and 2: the variance is 4."""
    models = MLP((jnp.array([[[3.0], [0.0]], [[1.0], [2.0]]]),), (jnp.zeros((2, 1)),))
    reward = disagreement(num_models=2, hidden_sizes=(), reward_scale=0.5)
    spec = RewardSpec(1, 1, 2, 8, 100)
    state = init(reward, KEY, spec)._replace(models=models)
    batch = transitions(
        2, observation=[[1.0], [2.0]], action=[[1.0], [0.0]], next_observation=[[7.0], [-9.0]]
    )
    np.testing.assert_allclose(reward_of(reward, state, batch), [0.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(
        reward.reward_terms(state, batch)["reward_lifelong"], [0.0, 2.0], rtol=1e-6
    )


def test_variance_and_scale_against_numpy() -> None:
    """Whitened by what was seen, over the deviation of the discounted return of all variances."""
    reward = disagreement()
    state = init(reward, KEY, SPEC)
    rng = np.random.default_rng(0)
    seen, running, returns = [], 0.0, []
    for length in (7, 12):
        visited = rng.normal(2.0, 3.0, size=(length + 1, 3)).astype(np.float32)
        episode = episode_of(visited)
        seen.append(visited[1:])
        every = np.concatenate(seen)
        rows = jax.tree.map(lambda leaf, n=length: leaf[:n], jax.device_get(episode))
        for variance in numpy_variance(state, rows, every.mean(0), every.std(0)):
            running = 0.99 * running + variance
            returns.append(running)
        state, notes = observe(reward, state, episode)
        assert notes == {}
    batch = random_batch(3)
    variance = numpy_variance(state, batch, every.mean(0), every.std(0))
    np.testing.assert_allclose(
        reward_of(reward, state, batch), variance / np.std(returns), rtol=1e-4
    )
    plain = disagreement(normalise=False)
    np.testing.assert_allclose(reward_of(plain, state, batch), variance, rtol=1e-4)
    assert np.ptp(variance) > 0.1 * variance.mean()


def test_each_model_learns_from_rows_of_its_own() -> None:
    """The gradient of a model is that of its mean error over its rows; a model without any
    stays."""
    state = init(disagreement(), KEY, SPEC)
    batch = random_batch(1)
    inputs = jnp.concatenate([batch.observation, batch.action], axis=1)
    trained = np.array([[1, 1, 0, 0, 1, 0], [0] * 6, [1] * 6, [0, 0, 0, 0, 0, 1]], bool)
    gradient = gradient_of(state.models, inputs, batch.next_observation, jnp.asarray(trained))
    predicted = numpy_predictions(state.models, np.asarray(inputs, float))
    for model, rows in enumerate(trained):
        error = predicted[model] - np.asarray(batch.next_observation, float)
        # d/db of the mean over rows and 3 entries of squares, for the bias of the last layer
        expected = 2 * error[rows].sum(axis=0) / 3 / max(rows.sum(), 1)
        np.testing.assert_allclose(gradient.biases[-1][model], expected, rtol=1e-4, atol=1e-6)
    assert not any(np.asarray(leaf[1]).any() for leaf in jax.tree.leaves(gradient))
    assert np.asarray(gradient.weights[0][0]).any()


def test_an_update_is_a_step_of_adam_on_the_drawn_rows() -> None:
    reward = disagreement(learning_rate=0.01, trained_share=0.5)
    state, batch, key = init(reward, KEY, SPEC), random_batch(2, size=8), jax.random.key(5)
    updated, metrics = update(reward, state, batch, key)
    trained = np.asarray(jax.random.uniform(key, (4, 8))) < 0.5
    assert len({tuple(rows) for rows in trained}) == 4  # each has drawn its own
    inputs = jnp.concatenate([batch.observation, batch.action], axis=1)
    gradient = gradient_of(state.models, inputs, batch.next_observation, jnp.asarray(trained))
    for old, slope, new in zip(
        *map(jax.tree.leaves, (state.models, gradient, updated.models)), strict=True
    ):
        old, slope = np.asarray(old), np.asarray(slope)
        step = slope / (np.abs(slope) + 1e-8)
        np.testing.assert_allclose(new, old - 0.01 * step, rtol=1e-4, atol=1e-6)
    predicted = numpy_predictions(state.models, np.asarray(inputs, float))
    errors = ((predicted - np.asarray(batch.next_observation, float)) ** 2).mean(axis=2)
    losses = [error[rows].mean() for error, rows in zip(errors, trained, strict=True)]
    np.testing.assert_allclose(metrics["disagreement_loss"], np.mean(losses), rtol=1e-5)
    assert set(metrics) == set(reward.metric_names)
    assert float(metrics["disagreement_return_std"]) == 1.0  # nothing seen yet


def test_models_that_learnt_agree_on_noise_and_not_on_what_is_far() -> None:
    """The next observation is a coin that nobody can foresee: the models agree on its mean."""
    reward = disagreement(hidden_sizes=(32,), learning_rate=3e-3, normalise=False)
    state, rng = init(reward, KEY, SPEC), np.random.default_rng(0)
    observation, action = rng.normal(size=(256, 3)), rng.uniform(-1, 1, size=(256, 2))
    coin = rng.choice([-1.0, 1.0], size=(256, 3))
    batch = transitions(256, observation=observation, action=action, next_observation=coin)
    before = reward_of(reward, state, batch).mean()
    learn = jax.jit(
        lambda state, keys: jax.lax.scan(lambda s, k: reward.update(s, batch, k), state, keys)
    )
    state, metrics = learn(state, jax.random.split(KEY, 300))
    assert metrics["disagreement_loss"][-1] > 0.5  # of a coin nothing can be foreseen
    after = reward_of(reward, state, batch).mean()
    assert after < 0.5 * before
    elsewhere = batch._replace(observation=batch.observation + 4.0)
    assert reward_of(reward, state, elsewhere).mean() > 5 * after


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"num_models": 1}, "num_models is 1; choose at least 2: one model agrees with itself."),
        ({"hidden_sizes": (0,)}, r"hidden_sizes is \(0,\); choose positive widths."),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; choose above 0."),
        ({"trained_share": 1.5}, "trained_share is 1.5; choose above 0 and at most 1."),
        ({"return_discount": 1.0}, "return_discount is 1.0; choose from 0 to below 1."),
        ({"observation_clip": -1.0}, "observation_clip is -1.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^DisagreementConfig.{sentence}$"):
        DisagreementConfig(**setting)


def test_official_settings_and_interface() -> None:
    config = DisagreementConfig()
    assert (config.num_models, config.hidden_sizes, config.learning_rate) == (5, (1024,), 1e-4)
    assert (config.trained_share, config.return_discount, config.normalise) == (0.8, 0.99, True)
    assert isinstance(DisagreementReward(), Reward)
    # every model has weights of its own
    weights = np.asarray(init(disagreement(), KEY, SPEC).models.weights[0])
    assert all(not np.allclose(weights[0], other) for other in weights[1:])
