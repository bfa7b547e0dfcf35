"""The settings of agents that learn the task of a run from scratch."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from element_rl.acting.host_policy import is_normalised, policy_widths
from element_rl.envs.names import MARIO
from element_rl.envs.robots import HEALTH_OPTION
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.settings import named_values, settings_from_json
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig, is_task_reward
from element_rl.training.off_policy.resolving import Resolved
from element_rl.training.off_policy.resolving import resolved as resolved_explore
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.config import resolved as resolved_on_policy
from element_rl.training.on_policy.launch import ENCODER

OFF_POLICY_ONLY = (
    "temperature",
    "replay",
    "critic_warmup",
    "anchor",
    "anchor_halflife",
    "replay_size",
    "chunk_steps",
    "sac",
    "td3",
    "dqn",
)
OF_ACTORS = ("temperature", "critic_warmup", "anchor", "anchor_halflife")  # which DQN has none of
REWARD_SCALES = {MARIO: 0.1}
KINDS: Mapping[type, str] = {
    ExploreConfig: "a run of element explore",
    OnPolicyConfig: "an on-policy run of this version",
}
Settings = TypeVar("Settings", ExploreConfig, OnPolicyConfig)


def off_policy_settings(config: FinetuneConfig, source: RunFolder) -> Resolved:
    """Settings of SAC or TD3 on the task of a run, from scratch; refused where the run's policies
    do not fit."""
    explored = explored_settings(source, ExploreConfig)
    name = explored.agent or "sac"
    others = tuple({"sac", "td3", "dqn", "a3c"} - {name})
    _refuse_given(config, others, f"{source.path} is a run of {name.upper()}")
    if name == "dqn":
        reason = f"{source.path} is a run of DQN, whose values are its policy"
        _refuse_given(config, OF_ACTORS, reason)
    settings, policy = _shared_settings(config, source, explored)
    explored = _on_the_host(explored)
    learner: Any = getattr(config, name) or explored.learner
    sees, *sizes, gives = policy_widths(policy)
    if tuple(sizes) != tuple(learner.hidden_sizes):
        raise ValueError(
            f"The policies of {source.path} have hidden layers of {' '.join(map(str, sizes))} "
            f"units, not {' '.join(map(str, learner.hidden_sizes))}: leave "
            f"--{name}.hidden-sizes away."
        )
    if is_normalised(policy) != (getattr(learner, "layer_norm", "none") == "both"):
        raise ValueError(
            f"The policies of {source.path} have layers that are "
            f"{'' if is_normalised(policy) else 'not '}normalised: leave "
            f"--{explored.agent}.layer-norm away."
        )
    # the option that exploring adds by itself is not the task's
    added = f"{HEALTH_OPTION}=false" if not is_task_reward(explored.reward) else None
    options = [pair for pair in explored.env_options if pair != added]
    settings |= {
        "replay_size": config.replay_size or explored.replay_size,
        "chunk_steps": config.chunk_steps or explored.chunk_steps,
        "reward_scale": explored.reward_scale
        if config.reward_scale is None
        else config.reward_scale,
        "env_options": _merged_options(options, config.env_options, f"{HEALTH_OPTION}=false"),
        "position": explored.position,
        "bounds": explored.bounds,
        "cell_size": explored.cell_size,
        "tell_position": explored.tell_position,
        "agent": explored.agent,
        name: learner,
    }
    task = resolved_explore(ExploreConfig(**settings))
    spec = task.spec
    if (sees, gives) != (spec.observation_dim, spec.action_dim):
        raise ValueError(
            f"The policies of {source.path} take {sees} observations and give {gives} actions, "
            f"but {spec.name} with these options has {spec.observation_dim} and "
            f"{spec.action_dim}: use the environment options of the run."
        )
    return task


def _on_the_host(explored: ExploreConfig) -> ExploreConfig:
    """The settings of a run without what was chosen for worlds on the device: a task is learned on
    the host, with one environment and one update per step."""
    if explored.physics == "host":
        return explored
    sac = dataclasses.replace(explored.sac, temperature_learning_rate=None)
    usual = ExploreConfig(explored.env)
    return dataclasses.replace(
        explored, batch_size=usual.batch_size, chunk_steps=usual.chunk_steps, sac=sac
    )


def on_policy_settings(config: FinetuneConfig, source: RunFolder) -> tuple[OnPolicyConfig, EnvSpec]:
    """Settings of A3C on the task of a run, from scratch; refused where the run's policies do not
    fit."""
    explored = explored_settings(source, OnPolicyConfig)
    if explored.agent != "a3c":
        raise ValueError(
            f"{source.path} is a run of PPO, whose policies go on with element on-policy --agent "
            f"ppo --begin {source.path} --reward extrinsic."
        )
    reason = f"{source.path} is a run of A3C, and this is a setting of SAC"
    _refuse_given(config, OFF_POLICY_ONLY, reason)
    settings, policy = _shared_settings(config, source, explored)
    scale = config.reward_scale
    if scale is None:
        scale = REWARD_SCALES.get(explored.env, 1.0)
    settings |= {
        "reward_options": () if scale == 1.0 else (f"scale={scale}",),
        "encoder": source.path / ENCODER,
        "restarts": explored.restarts,
        "env_options": _merged_options(
            explored.env_options, config.env_options, "goal_distance=20"
        ),
        "a3c": config.a3c or explored.a3c,
    }
    task, spec = resolved_on_policy(OnPolicyConfig(**settings))
    layers = sum(name.startswith("conv_bias") for name in policy)
    channels = tuple(policy[f"conv_bias_{layer}"].shape[1] for layer in range(layers))
    hidden, actions = policy["lstm_hidden"].shape[1], policy["head_bias"].shape[1] - 1
    if (channels, hidden) != (tuple(task.a3c.channels), task.a3c.hidden_size):
        raise ValueError(
            f"The policies of {source.path} have convolutions of {' '.join(map(str, channels))} "
            f"channels and an LSTM of {hidden} units: leave --a3c.channels and --a3c.hidden-size "
            "away."
        )
    if actions != spec.actions:
        raise ValueError(
            f"The policies of {source.path} choose among {actions} actions, but {spec.name} with "
            f"these options has {spec.actions}: use the environment options of the run."
        )
    return task, spec


def _shared_settings(
    config: FinetuneConfig, source: RunFolder, explored: ExploreConfig | OnPolicyConfig
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings that both kinds of runs have; and a policy of the run, for its shapes."""
    if explored.reward == "random":
        raise RunError(f"The run {source.path} acted at random: it has no policy to transfer.")
    seeds = explored.seeds if config.seeds is None else config.seeds
    if seeds > explored.seeds:
        raise ValueError(
            f"--seeds is {seeds}, but the run {source.path} has {explored.seeds} agents: take at "
            "most these."
        )
    settings = {
        "env": explored.env,
        "reward": "extrinsic",
        "steps": config.steps,
        "seeds": seeds,
        "seed": explored.seed if config.seed is None else config.seed,
        "log_every": config.log_every,
        "checkpoint_every": config.checkpoint_every,
        "workers": explored.workers if config.workers is None else config.workers,
        "random_seeds": 0,
    }
    checkpoint = int(config.checkpoint) if config.checkpoint.isdecimal() else None
    return settings, source.load_policy(checkpoint)


def explored_settings(source: RunFolder, kind: type[Settings]) -> Settings:
    """The settings that a run explored with."""
    try:
        return settings_from_json(kind, source.config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{source.path} is not {KINDS[kind]} (its config.json has other settings): give the "
            "folder of one."
        ) from error


def _refuse_given(config: FinetuneConfig, names: tuple[str, ...], reason: str) -> None:
    """Complain of settings that mean nothing for this kind of run."""
    for field in dataclasses.fields(config):
        if field.name in names and getattr(config, field.name) != field.default:
            raise ValueError(
                f"--{field.name.replace('_', '-')} means nothing here: {reason}. Leave it away."
            )


def _merged_options(explored: Iterable[str], given: Iterable[str], example: str) -> tuple[str, ...]:
    """NAME=VALUE pairs, those given instead of the run's of the same name."""
    named_values("--env-options", tuple(given), example)  # complains of what is no NAME=VALUE
    return tuple({pair.partition("=")[0]: pair for pair in (*explored, *given)}.values())
