"""ICM's losses, gradients and bonus against plain NumPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.mlp import MLP
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.icm import CuriosityModels, IcmConfig, IcmReward, curiosity_loss
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.inverse_model import InverseModel
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
# One compilation per setting and shape for all tests: a reward is a constant to its programs.
init = jax.jit(lambda reward, key: reward.init(key, SPEC), static_argnums=0)
update = jax.jit(
    lambda reward, state, batch, key: reward.update(state, batch, key), static_argnums=0
)
reward_of = jax.jit(lambda reward, state, batch: reward.reward(state, batch), static_argnums=0)
gradient_of = jax.jit(
    lambda models, batch: jax.grad(curiosity_loss, has_aux=True)(models, batch, 0.2)[0]
)

SIZES = {"feature_dim": 4, "encoder_sizes": (8,), "inverse_sizes": (7,), "forward_sizes": (6,)}
SMALL = IcmConfig(**SIZES)


def batch_of(
    observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
) -> Transitions:
    size = len(observation)
    return Transitions(
        observation=jnp.asarray(observation, jnp.float32),
        action=jnp.asarray(action, jnp.float32),
        next_observation=jnp.asarray(next_observation, jnp.float32),
        extrinsic_reward=jnp.zeros(size),
        terminated=jnp.zeros(size, bool),
        state=jnp.zeros((size, 2)),
        notes={},
    )


def random_batch(seed: int, size: int = 6) -> Transitions:
    """A world that can be learnt: the action pushes two of three entries, the third turns into
    their sum."""
    rng = np.random.default_rng(seed)
    observation, action = rng.normal(size=(size, 3)), rng.uniform(-1, 1, size=(size, 2))
    pushed = observation[:, :2] + action
    return batch_of(
        observation, action, np.concatenate([pushed, pushed.sum(axis=1, keepdims=True)], axis=1)
    )


def numpy_mlp(network: MLP, inputs: np.ndarray) -> np.ndarray:
    hidden = inputs
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        hidden = np.maximum(hidden @ weight + bias, 0.0)
    return hidden @ network.weights[-1] + network.biases[-1]


def in_double(tree: object) -> object:
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def numpy_squared_errors(models: CuriosityModels, batch: Transitions) -> np.ndarray:
    models, batch = in_double(models), in_double(batch)
    features = numpy_mlp(models.inverse.encoder, batch.observation)
    foreseen = numpy_mlp(models.forward, np.concatenate([features, batch.action], axis=1))
    return ((foreseen - numpy_mlp(models.inverse.encoder, batch.next_observation)) ** 2).sum(axis=1)


def numpy_losses(models: CuriosityModels, batch: Transitions) -> tuple[float, float]:
    forward = 0.5 * numpy_squared_errors(models, batch).mean()
    models, batch = in_double(models), in_double(batch)
    both = [
        numpy_mlp(models.inverse.encoder, seen)
        for seen in (batch.observation, batch.next_observation)
    ]
    told = np.tanh(numpy_mlp(models.inverse.head, np.concatenate(both, axis=1)))
    return ((told - batch.action) ** 2).mean(), forward


def test_by_hand() -> None:
    """φ doubles a number and f foresees it unmoved: from 1 to 3 the error is 2 − 6, so η/2 · 16, or
    log(1 + 4 η)."""
    double = MLP((jnp.array([[2.0]]),), (jnp.zeros(1),))
    unmoved = MLP((jnp.array([[1.0], [0.0]]),), (jnp.zeros(1),))
    head = MLP((jnp.zeros((2, 1)),), (jnp.zeros(1),))  # always tells the action 0
    models = CuriosityModels(InverseModel(double, head), unmoved)
    batch = batch_of([[1.0], [1.0]], [[0.5], [-1.0]], [[3.0], [1.0]])
    for form, expected in (
        ("paper", [0.1 / 2 * 16.0, 0.0]),
        ("urlb", [np.log(1.0 + 0.1 * 4.0), 0.0]),
    ):
        reward = IcmReward(IcmConfig(feature_dim=1, encoder_sizes=(), reward_scale=0.1, form=form))
        state = reward.init(jax.random.key(0), RewardSpec(1, 1, 2, 8, 100))._replace(models=models)
        np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-6)
        np.testing.assert_allclose(
            reward.reward_terms(state, batch)["reward_lifelong"], expected, rtol=1e-6
        )
    loss, metrics = curiosity_loss(models, batch, 0.2)
    np.testing.assert_allclose(metrics["icm_inverse_loss"], (0.25 + 1.0) / 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["icm_forward_loss"], (8.0 + 0.0) / 2, rtol=1e-6)
    np.testing.assert_allclose(loss, 0.8 * 0.625 + 0.2 * 4.0, rtol=1e-6)


@pytest.mark.parametrize("form", ["paper", "urlb"])
def test_against_numpy_through_updates(form: str) -> None:
    reward = IcmReward(IcmConfig(**SIZES, reward_scale=0.7, form=form))
    state = init(reward, jax.random.key(2))
    for seed in range(4):
        batch = random_batch(seed)
        inverse, forward = numpy_losses(state.models, batch)
        state, metrics = update(reward, state, batch, jax.random.key(seed))
        assert set(metrics) == set(reward.metric_names)
        np.testing.assert_allclose(metrics["icm_inverse_loss"], inverse, rtol=1e-5)
        np.testing.assert_allclose(metrics["icm_forward_loss"], forward, rtol=1e-5)
        squared = numpy_squared_errors(state.models, batch)  # of the models just updated
        expected = 0.35 * squared if form == "paper" else np.log(1.0 + 0.7 * np.sqrt(squared))
        np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-4)


@pytest.mark.parametrize("part", ["encoder", "head", "forward"])
def test_gradients_are_those_of_the_joint_loss(part: str) -> None:
    """Central differences of the NumPy loss, weight by weight: no gradient is stopped on its way
    into φ."""
    models = init(IcmReward(SMALL), jax.random.key(2)).models
    batch = random_batch(0)
    gradient = gradient_of(models, batch)

    def weights_of(tree: CuriosityModels) -> np.ndarray:
        return (tree.forward if part == "forward" else getattr(tree.inverse, part)).weights[0]

    models = in_double(models)
    weights = weights_of(models)
    numeric = np.zeros_like(weights)
    for place in np.ndindex(weights.shape):
        values = []
        for change in (1e-6, -2e-6):
            weights[place] += change
            inverse, forward = numpy_losses(models, batch)
            values.append(0.8 * inverse + 0.2 * forward)
        weights[place] += 1e-6
        numeric[place] = (values[0] - values[1]) / 2e-6
    np.testing.assert_allclose(weights_of(gradient), numeric, rtol=1e-3, atol=1e-6)


def test_first_step_of_adam() -> None:
    reward = IcmReward(IcmConfig(**SIZES, learning_rate=0.01))
    state = init(reward, jax.random.key(0))
    batch = random_batch(1)
    gradient = gradient_of(state.models, batch)
    updated, _ = update(reward, state, batch, jax.random.key(0))
    for old, slope, new in zip(
        *map(jax.tree.leaves, (state.models, gradient, updated.models)), strict=True
    ):
        np.testing.assert_allclose(
            new, old - 0.01 * slope / (np.abs(slope) + 1e-8), rtol=1e-4, atol=1e-6
        )


def test_learns_without_collapsing() -> None:
    """Both losses fall, what was never seen keeps a larger bonus, and φ still tells places
    apart."""
    reward = IcmReward(
        IcmConfig(feature_dim=8, encoder_sizes=(32,), inverse_sizes=(32,), forward_sizes=(32,))
    )
    state = init(reward, jax.random.key(0))
    batch = random_batch(0, size=64)
    first = numpy_losses(state.models, batch)
    learn = jax.jit(
        lambda state, keys: jax.lax.scan(lambda s, k: reward.update(s, batch, k), state, keys)
    )
    state, _ = learn(state, jax.random.split(jax.random.key(1), 1000))
    last = numpy_losses(state.models, batch)
    assert last[0] < 0.1 * first[0]
    assert last[1] < 0.2 * first[1]
    elsewhere = random_batch(1, size=64)
    elsewhere = elsewhere._replace(next_observation=elsewhere.next_observation + 4.0)
    assert reward_of(reward, state, elsewhere).mean() > 5 * reward_of(reward, state, batch).mean()
    assert np.asarray(state.models.inverse.features(batch.observation)).std(axis=0).max() > 0.1


def test_observing_episodes_changes_nothing() -> None:
    reward = IcmReward(SMALL)
    state = init(reward, jax.random.key(0))
    rows = jnp.zeros((8, 3))
    episode = Episode(
        rows,
        rows[:, :2],
        rows,
        rows[:, 0],
        rows[:, 0] > 0,
        rows[:, :2],
        rows[:, 0] == 0,
        jnp.arange(8),
    )
    after, notes = reward.observe(state, episode)
    assert notes == {}
    assert reward.note_shapes() == {}
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("form", ["paper", "urlb"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_single_state_stays_finite(form: str, value: float) -> None:
    reward = IcmReward(IcmConfig(**SIZES, reward_scale=0.7, form=form))
    state = init(reward, jax.random.key(0))
    same = np.full((6, 3), value)
    batch = batch_of(same, np.zeros((6, 2)), same)
    for step in range(20):
        state, metrics = update(reward, state, batch, jax.random.key(step))
    values = [*metrics.values(), reward_of(reward, state, batch), *jax.tree.leaves(state)]
    assert all(np.isfinite(value).all() for value in values)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"feature_dim": 0}, "IcmConfig.feature_dim is 0; choose at least 1."),
        ({"encoder_sizes": (0,)}, r"IcmConfig.encoder_sizes is \(0,\); choose positive widths."),
        ({"inverse_sizes": (0,)}, r"IcmConfig.inverse_sizes is \(0,\); choose positive widths."),
        ({"forward_sizes": (0,)}, r"IcmConfig.forward_sizes is \(0,\); choose positive widths."),
        ({"forward_weight": 1.0}, "IcmConfig.forward_weight is 1.0; choose above 0 and below 1."),
        ({"learning_rate": -1.0}, "IcmConfig.learning_rate is -1.0; choose above 0."),
        ({"reward_scale": 0.0}, "IcmConfig.reward_scale is 0.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        IcmConfig(**setting)


def test_state_survives_a_file() -> None:
    reward = IcmReward(SMALL)
    batch = random_batch(0)
    state, _ = update(reward, init(reward, jax.random.key(0)), batch, jax.random.key(1))
    restored = arrays_to_tree(init(reward, jax.random.key(9)), tree_to_arrays(state))
    np.testing.assert_array_equal(
        reward_of(reward, restored, batch), reward_of(reward, state, batch)
    )
    one, _ = update(reward, state, batch, jax.random.key(2))
    other, _ = update(reward, restored, batch, jax.random.key(2))
    np.testing.assert_array_equal(reward_of(reward, one, batch), reward_of(reward, other, batch))


def test_official_settings_and_interface() -> None:
    config = IcmConfig()
    assert (config.feature_dim, config.forward_weight, config.learning_rate) == (288, 0.2, 1e-3)
    assert (config.reward_scale, config.form) == (1.0, "paper")
    assert isinstance(IcmReward(), Reward)
