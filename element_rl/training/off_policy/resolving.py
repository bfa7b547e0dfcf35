"""How the settings that a run of `explore` leaves open are decided."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from element_rl.agents.dqn import DQNConfig
from element_rl.envs.make import describe
from element_rl.envs.names import registered_name
from element_rl.envs.notes import coverage_note
from element_rl.envs.positions import NONE
from element_rl.envs.robots import HEALTH_OPTION, can_fall, units_fit
from element_rl.envs.spec import EnvSpec
from element_rl.population import number_of_devices
from element_rl.rewards import Reward
from element_rl.rewards.element_config import update_window
from element_rl.rewards.interface import latent_of
from element_rl.rewards.making import memory_kind
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import stored_settings
from element_rl.storage.settings import with_missing
from element_rl.training.off_policy.choosing import chosen_agent, refuse_worlds
from element_rl.training.off_policy.config import (
    POOLED,
    ExploreConfig,
    has_reward,
    is_task_reward,
    parsed_options,
    reward_options,
    stored_position,
)
from element_rl.training.off_policy.reward_settings import element_options, reward_of
from element_rl.training.off_policy.view import Falls, agent_of
from element_rl.training.settings import (
    known_position,
    refuse_large_agents,
    usual_log_every,
    with_latent,
    written_position,
)
from element_rl.worlds.making import make_worlds

SMALLEST_CHUNK = 8
SHORTEST_SCAN = 16  # steps of each world in a chunk
WORLDS_BATCH_SIZE = 256
EXPLORATION_SHARE = 0.1  # of a run's updates, in which DQN's random actions become few


class Resolved(NamedTuple):
    """A configuration with nothing left open, and what follows from it."""

    config: ExploreConfig
    spec: EnvSpec  # the environment's description
    reward: Reward | None  # None: random actions


def resolved(config: ExploreConfig | Resolved, run: RunFolder | None = None) -> Resolved:
    """The configuration with nothing left open. It makes an environment to look at; what is
    resolved stays as it is.

    `run` is one that is continued, perhaps with more steps or fewer: what their number decides
    stays as it was when the run began.
    """
    if isinstance(config, Resolved):
        return config
    planned_steps = config.steps
    if run is not None:
        begun = begun_settings(run)
        planned_steps = begun.steps
        if config.memory == "auto":
            config = dataclasses.replace(config, memory=begun.memory)
        if config.state_units is None:
            config = dataclasses.replace(config, state_units=begun.state_units)
        if config.pool is None:
            config = dataclasses.replace(config, pool=begun.pool)
        said_then = with_missing(config.reward_options, reward_options(begun))
        config = dataclasses.replace(config, reward_options=said_then)
    number_of_devices(config.seeds, config.devices)  # refuses what is not there
    needed = latent_of(reward_of(registered_name(config.env), config, config.steps))
    config = with_latent(config, needed)
    options = parsed_options(config)
    spec = _described(config, options)
    config = dataclasses.replace(config, agent=chosen_agent(config.agent, spec))
    if config.physics != "host":
        refuse_worlds(config.physics, spec)
        make_worlds(config.physics, spec, options)  # refuses what it cannot take
    config = _with_falls(spec.name, config)
    # refuses networks that do not fit, and to tell places where there is no map
    refuse_large_agents(agent_of(config, spec).create, config.seeds)
    element = element_options(spec.name, config, planned_steps)
    config = dataclasses.replace(
        config.as_written(),
        env=spec.name,
        update_interval=element["update_interval"],
        update_steps=element["update_steps"],
        envs_per_agent=config.num_envs,
        chunk_steps=_chunk_steps(
            planned_steps, _wanted_chunk(config), config.num_envs, _smallest_chunk(config)
        ),
        batch_size=_batch_size(config),
        log_every=config.log_every or usual_log_every(planned_steps),
        checkpoint_every=config.checkpoint_every
        or min(element["update_interval"], update_window(planned_steps)["update_interval"]),
        beta=element["lifelong_weight"],
        estimator=element["estimator"],
        bandwidth=element["bandwidth"],
        position=written_position(config.position, spec),
        dqn=_with_exploration(config, planned_steps),
        bounds=(spec.coverage_bounds or ()) if config.position else config.bounds,
        cell_size=spec.coverage_cell_size or (),
        state_units=config.state_units or usual_units(spec.name),
    )
    _refuse_delay(config)
    reward = reward_of(spec.name, config, planned_steps)
    memory = memory_kind(reward) or config.memory
    return Resolved(dataclasses.replace(config, memory=memory), spec, reward)


def begun_settings(run: RunFolder) -> ExploreConfig:
    """The settings that a run was begun with.

    Older runs stored the memory as "auto"; which one that came to follows from their steps. They
    say nothing of units and pools: their states are raw, and their pools were sampled. What a fall
    did there, the environment's options say.
    """
    stored = stored_settings(run, "explore", ExploreConfig)
    pool = stored.pool or ("sample" if has_reward(stored, POOLED) else None)
    stored = dataclasses.replace(
        _with_falls(stored.env, stored), state_units=stored.state_units or "raw", pool=pool
    )
    if not has_reward(stored, ("element",)) or stored.memory != "auto":
        return stored
    memory = memory_kind(reward_of(stored.env, stored, stored.steps))
    return dataclasses.replace(stored, memory=memory or stored.memory)


def _with_falls(env: str, config: ExploreConfig) -> ExploreConfig:
    """The configuration with what a fall does, said in both places: here, and to the environment,
    so that a random policy beside the run has the same."""
    told = parsed_options(config).get(HEALTH_OPTION)
    if not can_fall(env):
        if config.falls == "ignore":
            raise ValueError(
                f"--falls ignore is for robots that can fall, and {env} has no option "
                f"{HEALTH_OPTION}: take end or reset, or leave --falls out."
            )
        return dataclasses.replace(config, falls=config.falls or "end")
    usual: Falls = "end" if is_task_reward(config.reward) else "ignore"
    if told is not None:
        usual = "end" if told else "ignore"
    falls = config.falls or usual
    if told is not None and bool(told) == (falls == "ignore"):
        raise ValueError(
            f"--falls {falls} and --env-options {HEALTH_OPTION}={str(bool(told)).lower()} "
            "contradict each other: leave one of them out."
        )
    said = () if told is not None else (f"{HEALTH_OPTION}={str(falls != 'ignore').lower()}",)
    return dataclasses.replace(config, falls=falls, env_options=(*config.env_options, *said))


def usual_units(env: str) -> Literal["raw", "calibrated"]:
    """Of the states in an environment, unless the user says it."""
    return "raw" if units_fit(env) else "calibrated"


def _described(config: ExploreConfig, options: Mapping[str, Any]) -> EnvSpec:
    """The environment, as the settings say it. Worlds on the device have no environment that a
    position could be found in: they have those that are named."""

    def described_with(position: Sequence[str]) -> EnvSpec:
        return describe(config.env, position, config.bounds, "vectors", config.cell_size, **options)

    spec = described_with(config.position)
    if config.physics == "host" or config.position or known_position(config.env):
        return spec
    there = ("x_position", "y_position") if config.physics == "warp" else ()
    if all(isinstance(entry, int) or entry in there for entry in spec.position):
        return spec
    return described_with((NONE,))


def described(settings: Mapping[str, Any], env_options: Mapping[str, Any]) -> EnvSpec:
    """The environment of a run by its stored settings, with these options; older runs say nothing
    of positions."""
    position = stored_position(settings["env"], settings)
    bounds, cell_size = settings.get("bounds") or (), settings.get("cell_size") or ()
    return describe(settings["env"], position, bounds, "vectors", cell_size, **env_options)


def map_note(given: ExploreConfig, spec: EnvSpec) -> str:
    """What a user should know of position and coverage before the run begins; nothing where they
    are as asked, or as published."""
    said = bool(given.position)
    return "" if given.bounds and said else coverage_note(spec, said)


def _wanted_chunk(config: ExploreConfig) -> int:
    """Steps of an agent in a chunk: on the device so many that the host has little to do."""
    least = 0 if config.physics == "host" else SHORTEST_SCAN * config.num_envs
    return max(config.chunk_steps, least)


def _smallest_chunk(config: ExploreConfig) -> int:
    """What a chunk is at least, so that the run ends where it was told to."""
    if config.physics == "host":
        return SMALLEST_CHUNK
    return max(SMALLEST_CHUNK, SHORTEST_SCAN * config.num_envs // 2)


def _batch_size(config: ExploreConfig) -> int | None:
    usual = None if config.physics == "host" else WORLDS_BATCH_SIZE
    return usual if config.batch_size is None else config.batch_size


def _with_exploration(config: ExploreConfig, planned_steps: int) -> DQNConfig:
    """DQN with the updates in which its random actions become few, in a run that uses it."""
    if config.agent != "dqn" or config.dqn.exploration_updates is not None:
        return config.dqn
    updates = planned_steps * config.usual_updates_per_step
    length = max(round(EXPLORATION_SHARE * updates), 1)
    return dataclasses.replace(config.dqn, exploration_updates=length)


def _refuse_delay(config: ExploreConfig) -> None:
    """An actor of SAC that would not learn in every chunk: its metrics are means over chunks."""
    delay, updates = config.sac.policy_delay, config.updates_per_chunk
    if config.agent == "sac" and delay > updates:
        raise ValueError(
            f"--sac.policy-delay {delay} is more than the {updates} updates of a chunk of "
            f"{config.chunk_steps} steps: take less, or a larger --chunk-steps."
        )


def _chunk_steps(steps: int, wanted: int, num_envs: int, smallest: int) -> int:
    """The largest divisor of the steps up to `wanted` that all environments of an agent can share
    evenly.

    So a run ends where it was told to. Where there is none from `smallest` on, the largest multiple
    up to `wanted`.
    """
    most = max(min(wanted, steps) // num_envs, 1)  # steps of each environment
    fair = min(-(-smallest // num_envs), most)
    divisors = [d for d in range(most, 0, -1) if steps % (d * num_envs) == 0]
    return num_envs * (divisors[0] if divisors and divisors[0] >= fair else most)
