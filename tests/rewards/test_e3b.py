"""E3B against numbers by hand and against NumPy in float64, which inverts the matrix at every
step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of

from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.e3b import E3bConfig, E3bReward, E3bState, elliptical_bonuses

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)
SMALL = {"feature_dim": 6, "encoder_sizes": (16,), "head_sizes": (16,)}

# Compiled once for every setting: op by op the tests would take minutes.
init = jax.jit(E3bReward.init, static_argnums=(0, 2))
observe = jax.jit(E3bReward.observe, static_argnums=0)
update = jax.jit(E3bReward.update, static_argnums=0)
bonuses = jax.jit(elliptical_bonuses, static_argnums=1)


def e3b(**options) -> E3bReward:
    return E3bReward(E3bConfig(**(SMALL | options)))


@functools.cache
def fresh(seed: int = 0) -> E3bState:
    """A new state; only widths of layers shape it, so it serves every setting tested here."""
    return init(e3b(), jax.random.key(seed), SPEC)


def batch_of(bonus: list[float] | np.ndarray, seed: int = 0) -> Transitions:
    """Transitions whose action is the change of the observation, so that an inverse model can
    learn."""
    rng = np.random.default_rng(seed)
    size = len(bonus)
    observation = rng.normal(size=(size, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, size=(size, 2)).astype(np.float32)
    change = np.concatenate([action, np.zeros((size, 1), np.float32)], axis=1)
    return Transitions(
        observation=jnp.asarray(observation),
        action=jnp.asarray(action),
        next_observation=jnp.asarray(observation + change),
        extrinsic_reward=jnp.zeros(size),
        terminated=jnp.zeros(size, bool),
        state=jnp.zeros((size, 4)),
        notes={"elliptical_bonus": jnp.asarray(bonus, jnp.float32)},
    )


def mlp(network, inputs: np.ndarray) -> np.ndarray:
    """A network with ReLU, in NumPy and float64."""
    hidden = np.asarray(inputs, np.float64)
    pairs = zip(network.weights, network.biases, strict=True)
    layers = [
        (np.asarray(weight, np.float64), np.asarray(bias, np.float64)) for weight, bias in pairs
    ]
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight + bias, 0)
    return hidden @ layers[-1][0] + layers[-1][1]


def bonus_loop(features: np.ndarray, ridge: float) -> list[float]:
    """The definition: the matrix of the states before, inverted anew for every state after the
    first."""
    features = np.asarray(features, np.float64)
    found = []
    for n in range(1, len(features)):
        matrix = ridge * np.eye(features.shape[1])
        for feature in features[:n]:
            matrix += np.outer(feature, feature)
        found.append(features[n] @ np.linalg.inv(matrix) @ features[n])
    return found


def test_defaults_are_the_authors() -> None:
    config = E3bReward().config
    assert (config.ridge, config.feature_dim, config.learning_rate, config.max_gradient_norm) == (
        0.1,
        512,
        2.5e-4,
        0.2,
    )
    assert (config.normalise, config.largest_reward, config.head_sizes) == (False, None, (256,))
    assert isinstance(E3bReward(), Reward)


def test_one_hot_features_count_visits() -> None:
    """b = 1 / (earlier visits + λ)."""
    states = [0, 1, 1, 0, 2, 1, 1]
    visits_before = [0, 0, 1, 1, 0, 2, 3]
    np.testing.assert_allclose(
        bonuses(jnp.eye(3)[jnp.array(states)], 0.1), 1 / (np.array(visits_before) + 0.1), rtol=1e-5
    )


def test_two_dimensions_by_hand() -> None:
    """C_0 = λI + φ_0φ_0ᵀ with φ_0 = (1, 1), λ = 1: C_0⁻¹ = [[2, −1], [−1, 2]]/3; φ_1 = (1, 0) →
    2/3. C_1 = C_0 + φ_1φ_1ᵀ = [[3, 1], [1, 2]]: C_1⁻¹ = [[2, −1], [−1, 3]]/5; φ_2 = (1, 2) → (2 − 4
    + 12)/5 = 2."""
    features = jnp.array([[1.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    np.testing.assert_allclose(bonuses(features, 1.0), [2, 2 / 3, 2], rtol=1e-6)


@pytest.mark.parametrize("kind", ["independent", "slow walk", "far from the origin"])
def test_rank_one_updates_stay_exact_over_500_steps(kind: str) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(501, 32))
    if kind != "independent":
        features = np.cumsum(0.1 * features, axis=0) + (
            3.0 if kind == "far from the origin" else 0.0
        )
    features = features.astype(np.float32)
    np.testing.assert_allclose(
        bonuses(jnp.asarray(features), 0.1)[1:], bonus_loop(features, 0.1), rtol=1e-3
    )


def test_notes_equal_the_definition_over_several_episodes() -> None:
    """C holds s_0 … s_t for the bonus of s_{t+1}, and begins anew with every episode; the last
    state earns one too."""
    state, reward = fresh(), e3b()
    rng = np.random.default_rng(1)
    every = []
    for length in (40, 1, 13):
        visited = rng.normal(size=(length + 1, 3)).astype(np.float32)
        expected = bonus_loop(mlp(state.inverse_model.encoder, visited), 0.1)
        state, notes = observe(reward, state, episode_of(visited))
        np.testing.assert_allclose(notes["elliptical_bonus"][:length], expected, rtol=1e-3)
        assert not np.any(notes["elliptical_bonus"][length:])
        every += expected
    assert float(state.bonuses.number) == len(every)
    np.testing.assert_allclose(float(state.bonuses.mean), np.mean(every), rtol=1e-3)
    np.testing.assert_allclose(
        float(state.bonuses.squares / state.bonuses.number), np.var(every), rtol=2e-3
    )


def test_self_is_not_among_the_states_before() -> None:
    """Were s_{t+1} in C already, no bonus could reach 1."""
    _, notes = observe(e3b(), fresh(), episode_of(np.array([[0.0, 0, 0], [30.0, -20, 10]])))
    assert notes["elliptical_bonus"][0] > 10


def test_the_bonus_is_the_reward_as_it_is() -> None:
    bonus = [0.5, 4.0, 0.0, 2.0]
    batch = batch_of(bonus)
    np.testing.assert_array_equal(e3b().reward(fresh(), batch), bonus)
    np.testing.assert_array_equal(e3b().reward_terms(fresh(), batch)["reward_episodic"], bonus)


def test_minihacks_scale_and_clip() -> None:
    """Divided by the standard deviation of every bonus so far, the mean not subtracted, then
    clipped to 1."""
    reward = e3b(normalise=True)
    state = fresh()
    np.testing.assert_array_equal(reward.reward(state, batch_of([3.0])), [3.0])  # nothing seen yet
    seen = []
    for seed in (1, 2):
        visited = np.random.default_rng(seed).normal(size=(9, 3)).astype(np.float32)
        seen += bonus_loop(mlp(state.inverse_model.encoder, visited), 0.1)
        state, _ = observe(reward, state, episode_of(visited))
    bonus = np.std(seen) * np.array([0.25, 0.5, 3.0])
    batch = batch_of(bonus)
    np.testing.assert_allclose(reward.reward(state, batch), [0.25, 0.5, 3.0], rtol=1e-3)
    clipped = e3b(normalise=True, largest_reward=1.0)
    np.testing.assert_allclose(clipped.reward(state, batch), [0.25, 0.5, 1.0], rtol=1e-3)
    np.testing.assert_allclose(
        clipped.reward_terms(state, batch)["reward_episodic"], bonus, rtol=1e-6
    )


def test_padding_and_its_garbage_change_nothing() -> None:
    walk = np.random.default_rng(0).normal(size=(15, 3))
    settings = ((14, 0.0), (40, 1e3), (40, -5.0))
    outcomes = [
        observe(e3b(), fresh(), episode_of(walk, rows, garbage)) for rows, garbage in settings
    ]
    for state, notes in outcomes[1:]:
        np.testing.assert_allclose(
            notes["elliptical_bonus"][:14], outcomes[0][1]["elliptical_bonus"], rtol=1e-4
        )
        for ours, theirs in zip(
            jax.tree.leaves(state), jax.tree.leaves(outcomes[0][0]), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_one_update_by_hand() -> None:
    reward, batch, state = e3b(), batch_of(np.zeros(32)), fresh()
    both = [
        mlp(state.inverse_model.encoder, x) for x in (batch.observation, batch.next_observation)
    ]
    told = np.tanh(mlp(state.inverse_model.head, np.concatenate(both, axis=1)))
    _, metrics = update(reward, state, batch, jax.random.key(1))
    assert tuple(metrics) == reward.metric_names
    np.testing.assert_allclose(
        metrics["e3b_inverse_loss"], ((told - np.asarray(batch.action)) ** 2).mean(), rtol=1e-5
    )


def test_the_inverse_model_learns() -> None:
    reward, batch = e3b(), batch_of(np.zeros(256))

    def step(state: E3bState, key: jax.Array):
        return reward.update(state, batch, key)

    _, metrics = jax.jit(
        lambda state: jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 1000))
    )(fresh())
    assert metrics["e3b_inverse_loss"][-1] < 0.2 * metrics["e3b_inverse_loss"][0]


def test_standing_still_is_finite() -> None:
    """The same feature again and again: b = 1 / (n + λ/‖φ‖²), even where features are large;
    without features b is 0."""
    norm = 5 * 20.0**2
    counted = bonuses(jnp.full((1001, 5), 20.0), 0.1)
    np.testing.assert_allclose(counted, 1 / (np.arange(1001) + 0.1 / norm), rtol=1e-2)
    assert np.isfinite(counted).all()
    assert (counted >= 0).all()
    assert not np.any(bonuses(jnp.zeros((5, 5)), 0.1))
    state, notes = observe(e3b(), fresh(), episode_of(np.zeros((41, 3))))
    assert np.isfinite(notes["elliptical_bonus"]).all()
    assert np.isfinite(e3b(normalise=True).reward(state, batch_of(notes["elliptical_bonus"]))).all()
    empty = episode_of(np.zeros((2, 3)))._replace(mask=jnp.zeros(40, bool))
    after, notes = observe(e3b(), state, empty)
    assert not np.any(notes["elliptical_bonus"])
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ridge", 0.0),
        ("feature_dim", 0),
        ("learning_rate", -1.0),
        ("encoder_sizes", (0,)),
        ("largest_reward", 0.0),
    ],
)
def test_bad_settings_are_refused(name: str, value) -> None:
    with pytest.raises(ValueError, match=rf"E3bConfig.{name} is .*; choose .*\."):
        E3bConfig(**{name: value})
