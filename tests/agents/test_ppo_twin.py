"""One rollout, equal weights: Stable-Baselines3's PPO and ours make the same step."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.agents import ppo
from element_rl.agents.ppo_network import Layers, PPONetwork

sb3 = pytest.importorskip("stable_baselines3")
STEPS, ENVS, EPOCHS, DISCOUNT, DECAY, RATE = 16, 4, 10, 0.98, 0.8, 1e-3


def network(policy: Any) -> PPONetwork:
    """Theirs as ours."""
    arrays = {name: jnp.array(array.numpy()) for name, array in policy.state_dict().items()}

    def layers(*names: str) -> Layers:
        weights = tuple(jnp.transpose(arrays[f"{name}.weight"]) for name in names)
        return Layers(weights, tuple(arrays[f"{name}.bias"] for name in names))

    acting = layers("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
    valuing = layers("mlp_extractor.value_net.0", "mlp_extractor.value_net.2", "value_net")
    return PPONetwork(Layers(), Layers(), Layers(), acting, valuing, None)


def test_advantages_and_a_step_are_theirs() -> None:
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.vec_env import DummyVecEnv

    model = sb3.PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS),
        n_steps=STEPS,
        batch_size=STEPS * ENVS,
        n_epochs=EPOCHS,
        gamma=DISCOUNT,
        gae_lambda=DECAY,
        learning_rate=RATE,
        seed=0,
        device="cpu",
    )
    _, callback = model._setup_learn(10 * STEPS * ENVS)
    model.set_logger(configure(None, []))
    buffer = model.rollout_buffer
    model.collect_rollouts(model.env, callback, buffer, STEPS)
    ended = np.concatenate([buffer.episode_starts[1:], model._last_episode_starts[None]]) > 0
    assert ended.any()  # poles fall, and none reaches the time limit
    before = network(model.policy)
    empty = np.zeros((ENVS, 2, 0), np.float32)
    arrays: Any = (
        *(buffer.observations, buffer.actions[..., 0].astype(np.int32)),
        *(buffer.rewards[..., None], ended, ended, buffer.episode_starts[0] > 0, empty),
        *(model._last_obs, np.zeros((ENVS, 4), np.float32)),
        *(np.full(ENVS, STEPS), np.zeros(ENVS, np.int32)),
    )
    given = ppo.Rollout(*map(jnp.asarray, arrays))
    config = ppo.PPOConfig(
        rollout_steps=STEPS,
        epochs=EPOCHS,
        minibatches=1,
        gae_decay=DECAY,
    ).resolved(False, ENVS)
    streams = (ppo.Stream(DISCOUNT),)
    ours, _ = ppo.prepared(before, given, config, streams)
    for found, expected in (
        (ours.advantage, buffer.advantages),
        (ours.returns[..., 0], buffer.returns),
        (ours.log_probability, buffer.log_probs),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    state = ppo.PPOState(before, ppo._optimiser(config).init(before))
    state, _ = ppo.learn(state, given, jax.random.key(0), jnp.float32(RATE), config, streams)
    model.train()
    for mine, theirs in zip(
        jax.tree.leaves(state.network), jax.tree.leaves(network(model.policy)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=5e-5)
