"""RND's numbers by hand and by plain NumPy: whitening, prediction error, and the scale of the
discounted return."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.rnd import RndConfig, RndReward, RndState, discounted_returns, whitened
from element_rl.rewards.scaling import empty_moments, with_values
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
# One compilation per setting and shape for all tests: a reward is a constant to its programs.
init = jax.jit(lambda reward, key: reward.init(key, SPEC), static_argnums=0)
observe = jax.jit(lambda reward, state, episode: reward.observe(state, episode), static_argnums=0)
update = jax.jit(
    lambda reward, state, batch, key: reward.update(state, batch, key), static_argnums=0
)
reward_of = jax.jit(lambda reward, state, batch: reward.reward(state, batch), static_argnums=0)

SMALL = RndConfig(feature_dim=5, target_sizes=(8,), predictor_sizes=(8, 8), learning_rate=1e-2)


def episode_of(next_observation: np.ndarray, rows: int = 8, padding: float = 1e3) -> Episode:
    length, width = next_observation.shape
    padded = np.full((rows, width), padding, np.float32)
    padded[:length] = next_observation
    return Episode(
        observation=jnp.full((rows, width), 77.0),
        action=jnp.zeros((rows, 2)),
        next_observation=jnp.asarray(padded),
        extrinsic_reward=jnp.zeros(rows),
        terminated=jnp.zeros(rows, bool),
        state=jnp.zeros((rows, 2)),
        mask=jnp.arange(rows) < length,
        step=jnp.arange(rows),
    )


def batch_of(
    next_observation: np.ndarray, observation: float = 77.0, terminated: bool = False
) -> Transitions:
    size, width = next_observation.shape
    return Transitions(
        observation=jnp.full((size, width), observation),
        action=jnp.zeros((size, 2)),
        next_observation=jnp.asarray(next_observation, jnp.float32),
        extrinsic_reward=jnp.zeros(size),
        terminated=jnp.full(size, terminated),
        state=jnp.zeros((size, 2)),
        notes={},
    )


def numpy_mlp(network: MLP, inputs: np.ndarray) -> np.ndarray:
    hidden = np.asarray(inputs, np.float64)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        hidden = np.maximum(
            hidden @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0.0
        )
    return hidden @ np.asarray(network.weights[-1], np.float64) + np.asarray(
        network.biases[-1], np.float64
    )


def numpy_errors(state: RndState, observation: np.ndarray, seen: np.ndarray) -> np.ndarray:
    inputs = np.clip((observation - seen.mean(axis=0)) / seen.std(axis=0), -5.0, 5.0)
    return ((numpy_mlp(state.predictor, inputs) - numpy_mlp(state.target, inputs)) ** 2).mean(
        axis=1
    )


def test_by_hand() -> None:
    """Target (x, 2x), predictor 0: e = 2.5 x². Observations 1 and 3 whiten to ∓1; with γ = ½, R is
    2.5 and then 3.75."""
    reward = RndReward(
        RndConfig(feature_dim=2, target_sizes=(), predictor_sizes=(), return_discount=0.5)
    )
    state = reward.init(jax.random.key(0), RewardSpec(1, 2, 2, 8, 100))
    target = MLP((jnp.array([[1.0, 2.0]]),), (jnp.zeros(2),))
    state = state._replace(target=target, predictor=jax.tree.map(jnp.zeros_like, target))

    before = reward_of(reward, state, batch_of(np.array([[2.0], [-10.0]])))
    # nothing seen: shift 0, scales 1; −10 is cut to −5
    np.testing.assert_allclose(before, [10.0, 62.5], rtol=1e-6)

    state, notes = observe(reward, state, episode_of(np.array([[1.0], [3.0]])))
    assert notes == {}
    np.testing.assert_allclose(state.running_return, 3.75, rtol=1e-6)
    rewards = reward_of(reward, state, batch_of(np.array([[3.0], [2.0], [12.0]])))
    np.testing.assert_allclose(rewards, [2.5 / 0.625, 0.0, 62.5 / 0.625], rtol=1e-5, atol=1e-6)
    threefold = RndReward(dataclasses.replace(reward.config, reward_scale=3.0))
    np.testing.assert_allclose(
        reward_of(threefold, state, batch_of(np.array([[3.0], [2.0], [12.0]]))), 3.0 * rewards
    )

    # A second episode with the one observation 2, the mean of all: e = 0, R = 1.875. R goes on from
    # episode to episode.
    state, _ = observe(reward, state, episode_of(np.array([[2.0]])))
    np.testing.assert_allclose(state.running_return, 1.875, rtol=1e-6)
    scale = np.std([2.5, 3.75, 1.875])
    rewards = reward_of(reward, state, batch_of(np.array([[3.0]])))
    # the variance of 1, 3, 2 is ⅔
    np.testing.assert_allclose(rewards, [2.5 * 1.5 / scale], rtol=1e-5)


def test_over_time_against_numpy() -> None:
    """Five episodes of unequal lengths with updates between them, statistics kept as plain
    lists."""
    reward = RndReward(SMALL)
    state = init(reward, jax.random.key(1))
    rng = np.random.default_rng(0)
    observations: list[np.ndarray] = []
    returns: list[float] = []
    running = 0.0
    for number, length in enumerate([8, 3, 1, 6, 5]):
        episode = rng.normal(loc=number, scale=[1.0, 10.0, 0.1], size=(length, 3)).astype(
            np.float32
        )
        observations += list(episode)
        seen = np.array(observations, np.float64)
        for error in numpy_errors(state, episode, seen):
            running = 0.99 * running + error
            returns.append(running)
        state, _ = observe(reward, state, episode_of(episode))
        np.testing.assert_allclose(state.running_return, running, rtol=1e-4)

        batch = batch_of(rng.normal(scale=5.0, size=(6, 3)))
        for step in range(3):
            expected_loss = numpy_errors(state, np.asarray(batch.next_observation), seen).mean()
            state, metrics = update(reward, state, batch, jax.random.key(step))
            np.testing.assert_allclose(metrics["rnd_loss"], expected_loss, rtol=1e-4)
            np.testing.assert_allclose(metrics["rnd_return_std"], np.std(returns), rtol=1e-4)
        expected = numpy_errors(state, np.asarray(batch.next_observation), seen) / np.std(returns)
        np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-4)
        np.testing.assert_allclose(
            reward.reward_terms(state, batch)["reward_lifelong"], expected, rtol=1e-4
        )


def test_first_step_of_adam_by_hand() -> None:
    """A linear predictor: the gradient is 2 xᵀ(p − t) / (B F), and Adam's first step is −lr · g /
    (|g| + 1e-8)."""
    reward = RndReward(
        RndConfig(feature_dim=2, target_sizes=(), predictor_sizes=(), learning_rate=0.01)
    )
    state = init(reward, jax.random.key(3))
    inputs = np.random.default_rng(1).uniform(-2, 2, size=(7, 3))
    difference = numpy_mlp(state.predictor, inputs) - numpy_mlp(state.target, inputs)
    updated, _ = update(reward, state, batch_of(inputs), jax.random.key(0))
    gradient = 2 * inputs.T @ difference / difference.size
    expected = state.predictor.weights[0] - 0.01 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(updated.predictor.weights[0], expected, rtol=1e-5, atol=1e-7)
    for old, new in zip(
        jax.tree.leaves(state.target), jax.tree.leaves(updated.target), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_trained_share() -> None:
    """The loss is the mean over the rows drawn, and only those move the predictor."""
    reward = RndReward(
        RndConfig(feature_dim=4, target_sizes=(), predictor_sizes=(), trained_share=0.5)
    )
    state = init(reward, jax.random.key(3))
    inputs = np.random.default_rng(1).uniform(-2, 2, size=(40, 3)).astype(np.float32)
    chosen = np.asarray(jax.random.uniform(jax.random.key(5), (40,))) < 0.5
    assert 10 < chosen.sum() < 30
    some, metrics = update(reward, state, batch_of(inputs), jax.random.key(5))
    errors = np.asarray(reward.prediction_error(state, jnp.asarray(inputs)))
    np.testing.assert_allclose(metrics["rnd_loss"], errors[chosen].mean(), rtol=1e-5)
    whole = RndReward(RndConfig(feature_dim=4, target_sizes=(), predictor_sizes=()))
    alone, _ = whole.update(state, batch_of(inputs[chosen]), jax.random.key(6))
    np.testing.assert_allclose(some.predictor.weights[0], alone.predictor.weights[0], rtol=1e-5)


def test_discounted_returns_skip_padding() -> None:
    errors = jnp.array([1.0, 100.0, 2.0, jnp.inf, 3.0])
    mask = jnp.array([True, False, True, False, True])
    running, returns = discounted_returns(jnp.asarray(8.0), errors, mask, 0.5)
    np.testing.assert_allclose(returns[np.asarray(mask)], [5.0, 4.5, 5.25])
    np.testing.assert_allclose(running, 5.25)


def test_whitening_of_an_entry_that_never_changes() -> None:
    seen = with_values(empty_moments((2,)), jnp.array([[4.0, 0.0], [4.0, 2.0]]))
    np.testing.assert_allclose(
        whitened(jnp.array([[4.5, 3.0], [40.0, -9.0]]), seen, 5.0), [[0.5, 2.0], [5.0, -5.0]]
    )


def test_padding_changes_nothing() -> None:
    reward = RndReward(SMALL)
    state = init(reward, jax.random.key(0))
    episode = np.random.default_rng(0).normal(size=(5, 3))
    exact, _ = observe(reward, state, episode_of(episode, rows=5))
    padded, _ = observe(reward, state, episode_of(episode, rows=8, padding=-1e6))
    for ours, theirs in zip(jax.tree.leaves(exact), jax.tree.leaves(padded), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    empty, _ = observe(reward, padded, episode_of(np.zeros((0, 3))))
    for ours, theirs in zip(jax.tree.leaves(padded), jax.tree.leaves(empty), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_only_the_next_observation_counts() -> None:
    reward = RndReward(SMALL)
    state = init(reward, jax.random.key(0))
    inputs = np.random.default_rng(0).normal(size=(6, 3))
    state, _ = observe(reward, state, episode_of(inputs))
    rewards = reward_of(reward, state, batch_of(inputs))
    np.testing.assert_array_equal(
        rewards, reward_of(reward, state, batch_of(inputs, observation=-3.0))
    )
    np.testing.assert_array_equal(
        rewards, reward_of(reward, state, batch_of(inputs, terminated=True))
    )
    assert not np.allclose(rewards, reward_of(reward, state, batch_of(inputs + 0.5)))


def test_learns_where_it_was_and_not_elsewhere() -> None:
    """Many updates in one scan: the loss of the batch falls, and that of a place apart falls
    less."""
    reward = RndReward(SMALL)
    rng = np.random.default_rng(0)
    known, apart = rng.normal(size=(32, 3)), rng.normal(size=(32, 3)) * [1, 1, 0] + [0, 0, 4]
    state, _ = observe(reward, init(reward, jax.random.key(0)), episode_of(known, rows=32))
    batch = batch_of(known)
    ratio_before = (
        reward_of(reward, state, batch_of(apart)).mean() / reward_of(reward, state, batch).mean()
    )
    learn = jax.jit(
        lambda state, keys: jax.lax.scan(lambda s, k: reward.update(s, batch, k), state, keys)
    )
    state, metrics = learn(state, jax.random.split(jax.random.key(1), 300))
    assert set(metrics) == set(reward.metric_names)
    assert metrics["rnd_loss"][-1] < 0.05 * metrics["rnd_loss"][0]
    ratio_after = (
        reward_of(reward, state, batch_of(apart)).mean() / reward_of(reward, state, batch).mean()
    )
    assert ratio_after > 3 * ratio_before


@pytest.mark.parametrize("length", [0, 1, 8])
def test_constant_observations_stay_finite(length: int) -> None:
    reward = RndReward(SMALL)
    state = init(reward, jax.random.key(0))
    for _ in range(3):
        state, _ = observe(reward, state, episode_of(np.full((length, 3), 0.1)))
        state, metrics = update(reward, state, batch_of(np.full((6, 3), 0.1)), jax.random.key(0))
        values = [
            *metrics.values(),
            reward_of(reward, state, batch_of(np.full((6, 3), 0.1))),
            *jax.tree.leaves(state),
        ]
        assert all(np.isfinite(value).all() for value in values)
    if length == 0:
        assert float(metrics["rnd_return_std"]) == 1.0


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"feature_dim": 0}, "RndConfig.feature_dim is 0; choose at least 1."),
        ({"target_sizes": (8, 0)}, r"RndConfig.target_sizes is \(8, 0\); choose positive widths."),
        (
            {"predictor_sizes": (-1,)},
            r"RndConfig.predictor_sizes is \(-1,\); choose positive widths.",
        ),
        ({"learning_rate": 0.0}, "RndConfig.learning_rate is 0.0; choose above 0."),
        ({"trained_share": 0.0}, "RndConfig.trained_share is 0.0; choose above 0 and at most 1."),
        ({"observation_clip": -5.0}, "RndConfig.observation_clip is -5.0; choose above 0."),
        ({"return_discount": 1.0}, "RndConfig.return_discount is 1.0; choose from 0 to below 1."),
        ({"reward_scale": 0.0}, "RndConfig.reward_scale is 0.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        RndConfig(**setting)


def test_state_survives_a_file() -> None:
    reward = RndReward(SMALL)
    rng = np.random.default_rng(0)
    state, _ = observe(reward, init(reward, jax.random.key(0)), episode_of(rng.normal(size=(8, 3))))
    batch = batch_of(rng.normal(size=(6, 3)))
    state, _ = update(reward, state, batch, jax.random.key(1))
    restored = arrays_to_tree(init(reward, jax.random.key(9)), tree_to_arrays(state))
    np.testing.assert_array_equal(
        reward_of(reward, restored, batch), reward_of(reward, state, batch)
    )
    one, _ = update(reward, state, batch, jax.random.key(2))
    other, _ = update(reward, restored, batch, jax.random.key(2))
    np.testing.assert_array_equal(reward_of(reward, one, batch), reward_of(reward, other, batch))


def test_official_settings_and_interface() -> None:
    config = RndConfig()
    assert (config.feature_dim, config.target_sizes, config.predictor_sizes) == (
        512,
        (1024, 1024),
        (1024, 1024),
    )
    assert (config.learning_rate, config.observation_clip, config.return_discount) == (
        1e-4,
        5.0,
        0.99,
    )
    assert (config.trained_share, config.reward_scale) == (1.0, 1.0)
    assert isinstance(RndReward(), Reward)
    assert RndReward().note_shapes() == {}
