"""Every reward of the registry is what PPO learns from: on vectors with choices, on vectors with a
Box, on frames."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import screen_probes, vector_probes
from support.small_rewards import SMALL_REWARDS

from element_rl.agents.ppo import PPOConfig
from element_rl.rewards import NAMES
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, resolved
from element_rl.training.on_policy.states import encoders_of
from element_rl.training.on_policy.training import OnPolicy

SMALL = OnPolicyConfig(
    vector_probes.CHOICE,
    agent="ppo",
    steps=96,
    workers=0,
    envs_per_agent=3,
    log_every=48,
    state_units="raw",
    random_seeds=0,
    ppo=PPOConfig(
        rollout_steps=16, epochs=1, minibatches=2, hidden_sizes=(8,), channels=(2, 2), frame_units=8
    ),
)
KINDS: dict[str, dict[str, Any]] = {
    "vectors and choices": {},
    "vectors and a Box": {"env": vector_probes.BOX},
    "frames and choices": {"env": screen_probes.NAME, "state_units": None, "state_dim": 4},
}
LATENT = ("rle", "metra")


@pytest.fixture(scope="module", autouse=True)
def _probe_environments() -> Iterator[None]:
    vector_probes.register_probes()
    screen_probes.register_probes()
    yield
    vector_probes.forget_probes()
    gymnasium.registry.pop(screen_probes.NAME)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_ppo_learns_from(name: str, kind: str) -> None:
    options = tuple(
        f"{option}={list(value) if isinstance(value, tuple) else value}"
        for option, value in SMALL_REWARDS.get(name, {}).items()
    )
    settings = {"reward": name, "reward_options": options, **KINDS[kind]}
    config, spec = resolved(dataclasses.replace(SMALL, **settings))
    encoders = encoders_of(config, spec)
    if name in LATENT and spec.sees_frames:
        with pytest.raises(ValueError, match="frames cannot carry"):
            bonus_of(config, spec, encoders.state_dim)
        return
    assert (spec.latent_dim > 0) == (name in LATENT)
    bonus = bonus_of(config, spec, encoders.state_dim)
    with OnPolicy(config, spec, encoders, bonus, None) as training:
        training.train(lambda progress: None, lambda: False)
        assert training.step == 96
        logged = training.metrics.logged()
    assert np.isfinite(logged["reward_mean"]).all()
    assert np.isfinite(logged["gradient_norm"]).all()
