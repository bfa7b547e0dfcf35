"""RLE against NumPy in float64."""

import jax
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.rewards import RewardSpec
from element_rl.rewards.interface import Latent, latent_of
from element_rl.rewards.recent_scale import recently_scaled
from element_rl.rewards.rle import RleConfig, RleReward

# two columns of the world, three of z
SPEC = RewardSpec(
    observation_dim=5, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)


def rle(**options) -> RleReward:
    return RleReward(RleConfig(**({"latent_dim": 3, "feature_sizes": (16,)} | options)))


def told(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Observations of two numbers and a z on the sphere."""
    latent = rng.normal(size=(rows, 3))
    return np.concatenate(
        [rng.normal(2.0, 3.0, (rows, 2)), latent / np.linalg.norm(latent, axis=1)[:, None]], axis=1
    ).astype(np.float32)


def features_by_hand(network, seen: np.ndarray, world: np.ndarray) -> np.ndarray:
    """φ of whitened observations; `world` is what the whitening has seen."""
    inputs = np.clip((seen - world.mean(axis=0)) / world.std(axis=0), -5, 5)
    first, last = (np.asarray(weight, np.float64) for weight in network.weights)
    hidden = np.maximum(inputs @ first + np.asarray(network.biases[0], np.float64), 0)
    return hidden @ last + np.asarray(network.biases[1], np.float64)


@pytest.mark.parametrize("form", ["cosine", "product"])
def test_the_reward_by_hand(form: str) -> None:
    """z is that of the observation before the action; that of the next one, and its own columns in
    the observation, are not looked at."""
    reward, rng = rle(form=form), np.random.default_rng(0)
    visited = told(rng, 21)
    state, notes = observe(reward, init(reward, jax.random.key(0), SPEC), episode_of(visited))
    assert notes == {}
    world = visited[1:, :2].astype(np.float64)
    before, after = told(rng, 6), told(rng, 6)
    batch = transitions(6, observation=before, next_observation=after)
    features = features_by_hand(state.network, after[:, :2].astype(np.float64), world)
    if form == "cosine":
        all_features = features_by_hand(state.network, world, world)
        features = (features - all_features.mean(axis=0)) / all_features.std(axis=0)
        features /= np.linalg.norm(features, axis=1)[:, None]
    expected = (features * before[:, 2:]).sum(axis=1)
    np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-3, atol=1e-4)
    terms = reward.reward_terms(state, batch)
    np.testing.assert_allclose(terms["reward_episodic"], expected, rtol=1e-3, atol=1e-4)
    if form == "cosine":
        assert np.abs(expected).max() <= 1


def test_nothing_is_learned() -> None:
    reward = rle()
    state = init(reward, jax.random.key(0), SPEC)
    batch = transitions(4, observation=np.zeros((4, 5)), next_observation=np.zeros((4, 5)))
    after, metrics = update(reward, state, batch, jax.random.key(1))
    assert metrics == {}
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_it_says_what_it_needs() -> None:
    assert rle(latent_every=500).latent == Latent(3, "sphere", 500)
    assert rle(latent_every=500).latent.option == "sphere:3:500"
    assert RleReward().latent.option == "sphere:8"
    assert latent_of(recently_scaled(rle())) == Latent(3)


def test_mistakes_get_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"RleConfig.latent_dim is 0; choose at least 1\."):
        RleConfig(latent_dim=0)
    with pytest.raises(ValueError, match=r"RleConfig.latent_every is 0; choose at least 1, or"):
        RleConfig(latent_every=0)
    with pytest.raises(ValueError, match="of 5 numbers cannot end with a latent of 8: wrap the"):
        RleReward().init(jax.random.key(0), SPEC)
