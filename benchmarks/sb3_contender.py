"""One contender of `bench_sb3`: SAC of Stable-Baselines3 or SBX with the plug-in or without, in a
process that trains when told.

python -m benchmarks.sb3_contender '{"learner": "SB3 SAC", "reward": "rnd", …}'      # then numbers
of steps on stdin
"""

import dataclasses
import json
import sys
from typing import Any

import numpy as np

from benchmarks.rlexplore_rewards import (
    EPISODE_STEPS,
    Clock,
    conversation,
    learner_settings,
    make_robot,
    warm_up_steps,
)


def main(request: dict[str, Any]) -> None:
    """Prepare SAC of either library, with the plug-in or without, then train as told."""
    with conversation(request) as (train_when_told, say):
        import jax
        import torch
        from stable_baselines3.common.env_util import make_vec_env

        torch.set_num_threads(1)
        compiled: list[str] = []

        def see(event: str, duration_secs: float, **_: str | int) -> None:
            if "backend_compile" in event:
                compiled.append(event)

        jax.monitoring.register_event_duration_secs_listener(see)
        model = _model(make_vec_env(make_robot, n_envs=request["num_envs"], seed=0), request)
        if request["reward"] == "element":
            _fill(model.replay_buffer, request)
        clock = Clock()
        clock.watch(model.replay_buffer, "add", "sample")
        model.learn(warm_up_steps(request), log_interval=None)

        def train(steps: int) -> None:
            model.learn(steps * request["num_envs"], reset_num_timesteps=False, log_interval=None)
            if request["learner"] == "SBX SAC":
                jax.block_until_ready((model.policy.actor_state, model.policy.qf_state))

        say({"versions": ""})
        train_when_told(train, clock, lambda: len(compiled))


def _model(envs: Any, request: dict[str, Any]) -> Any:
    options = learner_settings(request)
    if request["reward"] != "none":
        from element_rl.integrations.sb3 import IntrinsicReplayBuffer

        options["replay_buffer_class"] = IntrinsicReplayBuffer
        options["replay_buffer_kwargs"] = {
            "reward": request["reward"],
            "total_steps": request["stored"],
            "env_id": "Ant-v5",
            "max_episode_steps": EPISODE_STEPS,
            "options": _reward_options(request),
        }
    if request["learner"] == "SBX SAC":
        import sbx

        return sbx.SAC("MlpPolicy", envs, **options)
    import stable_baselines3

    return stable_baselines3.SAC("MlpPolicy", envs, device="cpu", **options)


def _reward_options(request: dict[str, Any]) -> dict[str, Any]:
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in request["options"].items()
    }
    if request["reward"] == "re3":
        return {**options, "pool_size": request["remembered"]}
    if request["reward"] == "element":
        return {
            **options,
            "update_interval": 100,
            "update_steps": 100,
        }  # while it is filled: all states but one of 100
    return options


def _fill(buffer: Any, request: dict[str, Any]) -> None:
    """Random walks until so many states are remembered, as many transitions noted; then windows of
    the paper's share."""
    from element_rl.integrations.noted_states import programs
    from element_rl.rewards.element import ElementReward

    bonus, num_envs = buffer.bonus, request["num_envs"]
    generator = np.random.default_rng(0)
    positions = np.zeros((num_envs, 2))
    following = generator.normal(size=(num_envs, 27)).astype(np.float32)
    step = 0
    while bonus.memory_size < request["remembered"]:
        observations, step = following, step + 1
        following = (0.95 * observations + 0.3 * generator.normal(size=(num_envs, 27))).astype(
            np.float32
        )
        actions = generator.uniform(-1, 1, (num_envs, 8)).astype(np.float32)
        positions += 0.1 * generator.normal(size=(num_envs, 2))
        ended = np.full(num_envs, step % EPISODE_STEPS == 0)
        infos = [
            {"x_position": x, "y_position": y, "TimeLimit.truncated": ended[0]}
            for x, y in positions
        ]
        buffer.add(observations, following, actions, np.zeros(num_envs), ended, infos)
    interval = EPISODE_STEPS * num_envs  # a window in every slice
    config = dataclasses.replace(
        bonus.rewarder.config, update_interval=interval, update_steps=interval // 10
    )
    bonus.rewarder = ElementReward(config)
    bonus._programs = programs(bonus.rewarder)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
