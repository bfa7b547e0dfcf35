"""RLE and METRA beside somebody's learner: they work on a wrapped environment, and say on others
which wrapper is missing."""

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv
from support.sb3_worlds import SMALL, Walk
from support.small_rewards import SMALL_REWARDS

from element_rl import IntrinsicReward, RolloutReward
from element_rl.envs.latents import LatentObservation
from element_rl.integrations.sb3 import IntrinsicCallback, IntrinsicReplayBuffer

LATENT = ["rle", "metra"]


def told_walks(number: int) -> DummyVecEnv:
    envs = DummyVecEnv([lambda: LatentObservation(Walk(), dim=2)] * number)
    envs.seed(0)
    return envs


def spaces_of(env: gymnasium.Env) -> tuple[Any, Any]:
    return env.observation_space, env.action_space


def features_along(bonus: Any, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """METRA's reward by hand: units are 1 before an episode has ended."""
    first, last = bonus.state.encoder.weights
    bias = np.asarray(bonus.state.encoder.biases[0])
    hidden = [np.maximum(part[:, :3] @ np.asarray(first) + bias, 0) for part in (before, after)]
    return (((hidden[1] - hidden[0]) @ np.asarray(last)) * before[:, 3:]).sum(axis=1)


@pytest.mark.parametrize("name", LATENT)
def test_sac_and_ppo_learn_from_it(name: str) -> None:
    settings: dict[str, Any] = {"reward": name, "max_episode_steps": 9}
    options = {"options": SMALL_REWARDS[name]}
    model = SAC(
        "MlpPolicy",
        told_walks(1),
        learning_starts=20,
        batch_size=8,
        buffer_size=100,
        policy_kwargs=dict(SMALL),
        seed=0,
        replay_buffer_class=IntrinsicReplayBuffer,
        replay_buffer_kwargs=settings | options,
    )
    model.learn(30)
    rewards = model.replay_buffer.sample(16).rewards.numpy()
    assert np.isfinite(rewards).all()
    assert rewards.std() > 0
    small = {"n_steps": 12, "batch_size": 8, "n_epochs": 1, "policy_kwargs": dict(SMALL)}
    ppo = PPO("MlpPolicy", told_walks(2), seed=0, **small)
    ppo.learn(48, callback=IntrinsicCallback(**settings, **options))
    assert np.std(ppo.rollout_buffer.rewards) > 0


def test_the_reward_of_a_batch_by_hand(tmp_path: Path) -> None:
    """Also after it was stored and read again, and after a pickle: the space goes along."""
    env = LatentObservation(Walk(), dim=2)
    bonus = IntrinsicReward(
        "metra", *spaces_of(env), capacity=100, max_episode_steps=9, options=SMALL_REWARDS["metra"]
    )
    env.action_space.seed(0)
    before, after, actions = [], [], []
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        actions.append(env.action_space.sample())
        following = env.step(actions[-1])[0]
        bonus.observe(observation[None], actions[-1][None], following[None], [False], [False])
        before, after = [*before, observation], [*after, following]
        observation = following
    batch = np.arange(5), np.stack(before), np.stack(actions), np.stack(after)
    bonus.save(tmp_path)
    for mine in (bonus, IntrinsicReward.load(tmp_path), pickle.loads(pickle.dumps(bonus))):
        expected = features_along(mine, batch[1], batch[3])
        np.testing.assert_allclose(mine.reward(*batch), expected, rtol=1e-4, atol=1e-6)
        assert mine.settings["observation_space"].latent.dim == 2


def test_states_do_not_hold_it() -> None:
    """ELEMENT on a wrapped environment remembers what it remembers without."""
    rng = np.random.default_rng(0)
    world = rng.normal(size=(4, 3)).astype(np.float32)
    told = np.concatenate([world, rng.normal(size=(4, 2)).astype(np.float32)], axis=1)
    states = []
    for env, seen in ((Walk(), world), (LatentObservation(Walk()), told)):
        bonus = IntrinsicReward("element", *spaces_of(env), capacity=100, max_episode_steps=9)
        raw, beside = (jnp.asarray(part) for part in bonus.source.read(seen))
        states.append(np.asarray(bonus.source.encoding.states(raw, beside)))
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize("kind", [IntrinsicReward, RolloutReward])
def test_mistakes_get_one_sentence(kind: Any) -> None:
    wrapper = r"wrap it, as the last wrapper, with element_rl.envs.latents.LatentObservation\(env, "
    with pytest.raises(ValueError, match=rf"and its space does not say so: {wrapper}dim=8"):
        kind("rle", *spaces_of(Walk()), max_episode_steps=9)
    other = LatentObservation(Walk(), dim=3)
    with pytest.raises(ValueError, match=rf"and its own is sphere, 3: {wrapper}dim=2, kind='sph"):
        kind("metra", *spaces_of(other), max_episode_steps=9)
