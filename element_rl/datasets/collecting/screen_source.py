"""What a dataset of screens is collected from: an on-policy run's agents, its environment and its
encoder."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import WrapperSpec
from jaxtyping import UInt8

from element_rl.acting.rollout_actor import RolloutSettings
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.envs.make import describe, env_maker, make_env
from element_rl.envs.names import with_package
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.config import env_options as parsed_options
from element_rl.training.on_policy.launch import ENCODER
from element_rl.training.on_policy.measures import episode_entropy

# `make_env` puts this around environments of images; named in a dataset, `recover_environment` does
# so too.
SCREEN = WrapperSpec("Screen", "element_rl.envs.screens:Screen", {})


@dataclass(frozen=True)
class ScreenSource:
    """An on-policy run, and the environment that its dataset is of."""

    run: RunFolder
    reward: str
    seeds: tuple[int, ...]  # of the agents
    env_options: Mapping[str, Any]
    spec: EnvSpec
    # as Gymnasium made it, with what makes frames of its images
    env_spec: gymnasium.envs.registration.EnvSpec
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.spaces.Discrete
    local_steps: int  # as in training: rollouts number the draws of actions
    hidden_size: int

    def refuse_policy(self, policy: Mapping[str, np.ndarray]) -> None:
        actions = policy["head_bias"].shape[1] - 1  # the last head is the value
        if actions != self.spec.actions:
            raise ValueError(
                f"The policies of {self.run.path} choose among {actions} actions, but "
                f"{self.spec.name} with "
                f"{dict(self.env_options)} has {self.spec.actions}: leave out the --env-options "
                "that change this."
            )

    def rollout_settings(self, parameters: Mapping[str, np.ndarray]) -> RolloutSettings:
        """What workers have to know; `parameters` of one agent, none for random actions."""
        shapes = {name: array.shape for name, array in parameters.items()}
        make = env_maker(self.spec.name, self.env_options)
        return RolloutSettings(self.spec, make, self.local_steps, self.hidden_size, shapes)


def screen_source_of(run: RunFolder, env_options: tuple[str, ...]) -> ScreenSource:
    """The run with its own environment and options, and those given besides."""
    settings = run.config["settings"]
    options = parsed_options(
        OnPolicyConfig(settings["env"], env_options=(*settings["env_options"], *env_options))
    )
    env = make_env(settings["env"], **options)
    try:
        env_spec = copy.deepcopy(env.env.spec)
        assert env_spec is not None  # make_env goes through the registry
        env_spec.additional_wrappers = (*env_spec.additional_wrappers, SCREEN)
        return ScreenSource(
            run=run,
            reward=settings["reward"],
            seeds=tuple(settings["seed"] + index for index in range(settings["seeds"])),
            env_options=options,
            spec=describe(settings["env"], **options),
            env_spec=with_package(env_spec, settings["env"]),
            observation_space=env.observation_space,
            action_space=env.action_space,
            local_steps=settings["a3c"]["local_steps"],
            hidden_size=settings["a3c"]["hidden_size"],
        )
    finally:
        env.close()


class ScreenEntropies:
    """The paper's evaluation entropy of an episode: matrix-based, of order 1.001, in bits, on the
    run's own encoder."""

    def __init__(self, source: ScreenSource) -> None:
        self._encoder = load_encoder(source.run.path / ENCODER)

    def __call__(self, frames: UInt8[np.ndarray, "M H W"]) -> float:
        """Of the states s_1 … s_T, M = T + 1 frames given."""
        return episode_entropy(encode_all(self._encoder, frames[1:]))
