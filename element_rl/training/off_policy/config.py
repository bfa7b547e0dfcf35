"""The settings of a run of `explore`, and how the ones left open are decided."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from element_rl.agents.dqn import DQNConfig
from element_rl.agents.sac import SACConfig, temperature_rate
from element_rl.agents.td3 import TD3Config
from element_rl.envs.make import describe
from element_rl.envs.names import registered_name
from element_rl.envs.notes import coverage_note
from element_rl.envs.positions import NONE
from element_rl.envs.robots import HEALTH_OPTION, can_fall, robot_of, units_fit
from element_rl.envs.spec import EnvSpec
from element_rl.population import number_of_devices
from element_rl.rewards import REWARD_HELP, TRAINING_NAMES, Reward, check_name, make_replay_reward
from element_rl.rewards.element_config import (
    MemoryKind,
    preset,
    replay_defaults,
    update_window,
    usual_estimator,
)
from element_rl.rewards.element_paper import printed
from element_rl.rewards.expression import Named, names_in, options_of_each, parsed
from element_rl.rewards.interface import Inputs, latent_of
from element_rl.rewards.making import memory_kind, said
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import stored_settings
from element_rl.storage.settings import named_values, settings_from_json, with_missing
from element_rl.training.off_policy.choosing import AgentName, chosen_agent, refuse_worlds
from element_rl.training.off_policy.view import Falls, TellPosition, agent_of
from element_rl.training.settings import (
    check_numbers,
    check_timeout,
    known_position,
    refuse_large_agents,
    usual_log_every,
    with_latent,
    written_position,
)
from element_rl.worlds.making import Physics, make_worlds

SMALLEST_CHUNK = 8
# With worlds on the device, unless the user says it (docs/worlds.md).
WORLDS_PER_AGENT = 64
SHORTEST_SCAN = 16  # steps of each world in a chunk
UPDATES_PER_WORLD_STEP = 1 / 8
LARGEST_TEMPERATURE_RATE = 32 * temperature_rate(SACConfig())
WORLDS_BATCH_SIZE = 256
EXPLORATION_SHARE = 0.1  # of a run's updates, in which DQN's random actions become few
PRINTED = "element-paper"
ELEMENTS = ("element", PRINTED)  # whose terms are within [0, 1], and whose memory has windows
POOLED = ("re3", "rise")  # which may compare with a sample of the replay


@dataclass(frozen=True)
class ExploreConfig:
    """What to train, on what, for how long. `None`: as this robot has it, or as fits the run."""

    # Gymnasium environment to explore: Ant-v5, Hopper-v5, CartPole-v1, PointMaze, or any other; one
    # of another package is named package:Env-v0. (required, unless --resume is given)
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    reward: Annotated[str, tyro.conf.arg(help=REWARD_HELP)] = "element"
    # Settings of the reward as NAME=VALUE pairs, e.g. learning_rate=1e-3, or renyi_order=2; in a
    # sum each names its reward, e.g. rnd.learning_rate=1e-3. (default: none)
    reward_options: tuple[str, ...] = ()
    # What the reward sees where its paper has observations: these (own), or ELEMENT's state, with
    # the position (state). ELEMENT, RE3 and RISE see the state either way.
    inputs: Inputs = "own"
    # Among which states RE3 and RISE look for neighbours: all that the agent has visited (whole),
    # or the last 4,096 draws from the replay (sample). (default: whole; sample where
    # --reward-options has a pool_size)
    pool: Literal["whole", "sample"] | None = None
    # Environment steps of each agent.
    steps: int = 1_000_000
    # How many agents are trained at once, each with a seed of its own.
    seeds: int = 1
    # Seed of the first agent; the others count up from it.
    seed: int = 0
    # Weight of ELEMENT's lifelong reward; 0 for the episodic reward alone. (default: 0.5)
    beta: float | None = None
    # Weight of ELEMENT's episodic reward; 0 for the lifelong reward alone.
    episodic_weight: float = 1.0
    # How ELEMENT finds the nearest of all remembered states: by comparing with every one (exact),
    # with FAISS's index (hnsw), with the paper's graph (graph), or exactly while that is fast and
    # then with hnsw (auto). spaced remembers only states that are far from all remembered ones, and
    # 8,192 at most (--reward-options memory_capacity=N), with a distance that grows with need.
    memory: MemoryKind = "auto"
    # When states are remembered: in the paper's update windows, or all the time, from the first
    # step on (always; then --update-interval and --update-steps mean nothing). On a CPU take
    # --memory spaced with it: others compare each step with the whole replay.
    remember: Literal["windows", "always"] = "windows"
    # Whether remembered states of its own episode make a state less novel (in, the paper's form),
    # or only those of other episodes do (out).
    own_episode: Literal["in", "out"] = "in"
    # How ELEMENT estimates the entropy of an episode: matrix-based Rényi entropy, a kernel density,
    # or distances to nearest neighbours. (default: kde on Hopper, knn on Walker2d; where states are
    # paid by themselves also on Ant and HalfCheetah; otherwise renyi)
    estimator: Literal["renyi", "kde", "knn"] | None = None
    # Width σ of the kernel of renyi and kde: states closer than about √σ count as alike.
    # (default: 1; with kde 0.1, where the paper has 1)
    bandwidth: float | None = None
    # Formula of ELEMENT's lifelong reward, one of Proposition 2's: from the distances to the
    # nearest remembered states (knn), or from a kernel over these distances (kde, renyi2).
    lifelong_estimator: Literal["knn", "kde", "renyi2"] = "knn"
    # How ELEMENT's two terms are scaled before they are added: by minimum and maximum over the
    # batch (batch) or over all batches so far (running), by mean and deviation over the batch
    # (standard), or by the 5 % and 95 % quantile of the last thousand batches (robust).
    normalisation: Literal["batch", "running", "standard", "robust"] = "batch"
    # Who earns an episode's entropy: each state what it adds itself, by the logarithm of how
    # crowded its place is (state) or by the first variation of the entropy (variation), or all
    # states alike (episode, the paper's form).
    credit: Literal["episode", "state", "variation"] = "state"
    # Weigh episodes of unequal length as the paper's appendix does.
    length_weighted: bool = False
    # Steps from one update window to the next, the paper's U: states are remembered in these
    # windows only. (default: 500,000, but no more than a tenth of --steps)
    update_interval: int | None = None
    # Steps of one update window, the paper's T_u. (default: a tenth of --update-interval)
    update_steps: int | None = None
    # Environments that each agent acts in, side by side; --steps counts the steps of all of them.
    # (default: 1; with --physics warp or jax 64)
    envs_per_agent: int | None = None
    # Where environments are stepped: in processes on the host (host), or by the thousand on the
    # device, MuJoCo's robots with MuJoCo Warp (warp) or environments written in JAX (jax).
    physics: Physics = "host"
    # Updates of the learner for each environment step of the agent. (default: 1; with --physics
    # warp or jax 1/8)
    updates_per_step: float | None = None
    # Transitions in the batch of one update, instead of the learner's own number. (default: the
    # learner's own, such as --sac.batch-size; with --physics warp or jax 256)
    batch_size: int | None = None
    # When a transition may be learned from: once its episode has ended (ended), or also while it
    # runs (running): then it is paid for the episode as it is so far, and anew when it has ended.
    # (default: ended; with --physics warp or jax running, but for
    # element-paper)
    learn_from: Literal["ended", "running"] | None = None
    # Transitions kept for each agent to learn from.
    replay_size: int = 1_000_000
    # Steps of an agent between two refreshes of its acting policy; lowered to divide --steps. With
    # --physics warp or jax at least 16 steps of each environment.
    chunk_steps: int = 64
    # Steps between two lines of metrics. (default: a hundredth of --steps, from 500 to 10,000)
    log_every: int | None = None
    # Steps between two checkpoints. (default: --update-interval)
    checkpoint_every: int | None = None
    # Processes that step the environments on the host; 0 steps them in the command's own process.
    # (default: one per agent, up to 64; one per core where agents have several environments)
    workers: int | None = None
    # Accelerators that share the agents, with the same number of agents on each. A run may be
    # continued with another number. (default: as many of the machine's as have equal shares; on
    # CPUs 1)
    devices: int | None = None
    # Seconds for which all processes may be silent while one is waited for. Then the run ends, says
    # whose environment hangs, and can be resumed. (default: as long as it takes)
    env_timeout: float | None = None
    # Agents that act at random, run for comparison at the end; 0 for none.
    random_seeds: int = 1
    # Factor of the task's reward, with --reward extrinsic or a sum that has it.
    reward_scale: float = 1.0
    # Divide the reward by its recent standard deviation, because SAC minds the size of rewards; not
    # for --reward element, whose terms are scaled already. The terms of a sum are divided by theirs
    # without this, unless --reward-options says recent_scale=false, or rnd.recent_scale=false.
    recent_scale: bool = False
    # How many times the task's own reward is added to the intrinsic one; with 0 the agents learn
    # from the intrinsic reward alone.
    extrinsic_weight: float = 0.0
    # Settings of the environment as NAME=VALUE pairs, e.g. max_episode_steps=500. (default: none)
    env_options: tuple[str, ...] = ()
    # What a fall of the robot does: it ends the episode and the return (end, as in the paper), it
    # ends nothing and the robot lies there (ignore), or it resets the robot while the return goes
    # on in the next episode (reset). Of other environments, whatever terminates an episode is its
    # fall. (default: ignore; end with --reward extrinsic and where falls cannot be ignored)
    falls: Falls | None = None
    # Where the agent is: columns of the observation (obs[0:2], or 0 1), entries of info (x_position
    # y_position), attributes of the environment (env.agent_pos), or FILE.py:FUNCTION, a function of
    # your own of (observation, info, env); none: nowhere. They become part of the state, and the
    # first two numbers of the map. (default: as the library knows of the robot, or what is found)
    position: tuple[str, ...] = ()
    # Lowest and highest value on the two axes of the map, e.g. -5 5 -5 5, in 100 × 100 cells.
    # (default: a robot's own; elsewhere the map has no bounds and grows)
    bounds: tuple[tuple[float, float], ...] = ()
    # Sides of a cell of a map without bounds, along both axes, e.g. 0.5 0.5, or one number.
    # (default: a hundredth of the observation's bounds where finite, else a fifth of how far random
    # actions get in 1,000 steps)
    cell_size: tuple[float, ...] = ()
    # Units of the states that ELEMENT, RE3 and RISE compare: the environment's own (raw), or taken
    # from 2,000 random steps before the run, so that a bandwidth means the same everywhere
    # (calibrated). (default: raw on Hopper, Walker2d, Ant and PointMaze, calibrated elsewhere)
    state_units: Literal["raw", "calibrated"] | None = None
    # Who is told where on the coverage map the agent is, beside what it observes: nobody (none),
    # the critics (critic), or critics and actor (both). Rewards see what they see without it.
    tell_position: TellPosition = "none"
    # Algorithm that learns from the reward: soft actor-critic (sac) or TD3 (td3) for numbers within
    # bounds, DQN (dqn) for a choice. With ppo or a3c, and where the environment shows images, the
    # command line goes to element on-policy, whose options are then meant. (default: sac, or dqn
    # where actions are a choice; ppo on images)
    agent: AgentName | None = None
    # The learner of --agent sac, soft actor-critic.
    sac: SACConfig = field(default_factory=SACConfig)
    # The learner of --agent td3, twin delayed deep deterministic policy gradient.
    td3: TD3Config = field(default_factory=TD3Config)
    # The learner of --agent dqn, deep Q-network.
    dqn: DQNConfig = field(default_factory=DQNConfig)

    def __post_init__(self) -> None:
        counts = ("steps", "seeds", "envs_per_agent", "replay_size", "chunk_steps")
        intervals = (
            *("log_every", "checkpoint_every", "update_interval", "update_steps"),
            "batch_size",
        )
        check_numbers(self, (*counts, *intervals), ("seed", "random_seeds"))
        if not math.isfinite(self.extrinsic_weight):
            raise ValueError(
                f"--extrinsic-weight must be a finite number, got {self.extrinsic_weight}."
            )
        of_host = "--workers are" if self.workers is not None else "--env-timeout is of"
        if self.physics != "host" and (self.workers, self.env_timeout) != (None, None):
            raise ValueError(
                f"{of_host} processes that step environments on the host; with --physics "
                f"{self.physics} there are none: leave it out."
            )
        check_timeout(self.env_timeout)
        if self.updates_per_step is not None and not 0 < self.updates_per_step < math.inf:
            raise ValueError(
                f"--updates-per-step must be a positive number, got {self.updates_per_step}."
            )
        check_name(self.reward, TRAINING_NAMES)
        if not self.env:
            raise ValueError("Name the environment to explore, such as Hopper-v5.")

    def as_begun(self) -> "ExploreConfig":
        """The settings of a run, read from its folder, with what older runs do not say."""
        return dataclasses.replace(
            self,
            reward_options=_said(self, older=True),
            agent=self.agent or "sac",
            position=stored_position(self.env, dataclasses.asdict(self)),
        )

    def as_written(self) -> "ExploreConfig":
        """The settings of a new run, with what must be written down since older runs have it
        otherwise."""
        return dataclasses.replace(
            self,
            reward=parsed(self.reward).text,
            reward_options=_said(self),
            pool=_pool(self),
            learn_from=self.learn_from or self._usual_learn_from,
            sac=_with_temperature(self),
        )

    @property
    def _usual_learn_from(self) -> Literal["running"] | None:
        """None: from episodes that have ended, as older runs have it and the paper."""
        printed = _has(self, (PRINTED,))
        return None if self.physics == "host" or printed else "running"

    @property
    def learner(self) -> SACConfig | TD3Config | DQNConfig:
        """The settings of the agent that learns."""
        own: SACConfig | TD3Config | DQNConfig = getattr(self, self.agent or "sac")
        size = own.batch_size if self.batch_size is None else self.batch_size
        return dataclasses.replace(own, batch_size=size)

    @property
    def num_envs(self) -> int:
        """Environments of each agent."""
        if self.envs_per_agent is not None:
            return self.envs_per_agent
        return 1 if self.physics == "host" else WORLDS_PER_AGENT

    @property
    def updates_per_chunk(self) -> int:
        """Of every agent."""
        return max(round(self.usual_updates_per_step * self.chunk_steps), 1)

    @property
    def usual_updates_per_step(self) -> float:
        """As given, or as is usual where environments are stepped there."""
        if self.updates_per_step is not None:
            return self.updates_per_step
        return 1.0 if self.physics == "host" else UPDATES_PER_WORLD_STEP

    @property
    def last_step(self) -> int:
        """Where a run ends: with the first chunk that brings it to `steps`, or beyond."""
        return -(-self.steps // self.chunk_steps) * self.chunk_steps


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
        if config.learn_from is None:
            config = dataclasses.replace(config, learn_from=begun.learn_from)
        said_then = with_missing(config.reward_options, reward_options(begun))
        config = dataclasses.replace(config, reward_options=said_then)
    number_of_devices(config.seeds, config.devices)  # refuses what is not there
    needed = latent_of(_make_reward(registered_name(config.env), config, config.steps))
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
    element = _element_options(spec.name, config, planned_steps)
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
        learn_from=config.as_written().learn_from or "ended",
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
    reward = _make_reward(spec.name, config, planned_steps)
    memory = memory_kind(reward) or config.memory
    return Resolved(dataclasses.replace(config, memory=memory), spec, reward)


def begun_settings(run: RunFolder) -> ExploreConfig:
    """The settings that a run was begun with.

    Older runs stored the memory as "auto"; which one that came to follows from their steps. They
    say nothing of units, pools and running episodes: their states are raw, their pools were
    sampled, and they learned from ended episodes. What a fall did there, the environment's options
    say.
    """
    stored = stored_settings(run, "explore", ExploreConfig)
    pool = stored.pool or ("sample" if _has(stored, POOLED) else None)
    stored = dataclasses.replace(
        _with_falls(stored.env, stored),
        state_units=stored.state_units or "raw",
        pool=pool,
        learn_from=stored.learn_from or "ended",
    )
    if not _has(stored, ("element",)) or stored.memory != "auto":
        return stored
    memory = memory_kind(_make_reward(stored.env, stored, stored.steps))
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


def stored_position(env: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The position that the settings of a run say. Older runs say none where they had none; then
    nothing is looked for either."""
    position = tuple(settings.get("position") or ())
    return position if position or robot_of(env) is not None else (NONE,)


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


def config_from_json(values: Mapping[str, Any]) -> ExploreConfig:
    """The configuration that `dataclasses.asdict` and JSON made this of."""
    return settings_from_json(ExploreConfig, values)


def parsed_options(config: ExploreConfig) -> dict[str, Any]:
    """The environment's options."""
    return read_env_options(config.env_options)


def read_env_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options of an environment, their values read as JSON (a word that is none stays a string)."""
    return named_values("--env-options", pairs, f"{HEALTH_OPTION}=false")


def reward_options(config: ExploreConfig) -> dict[str, Any]:
    """The reward's options."""
    return named_values(
        "--reward-options", config.reward_options, "learning_rate=1e-3", dotted=True
    )


def _said(config: ExploreConfig, older: bool = False) -> tuple[str, ...]:
    options = said(config.reward, reward_options(config), older)
    return with_missing(config.reward_options, options)


def _pool(config: ExploreConfig) -> Literal["whole", "sample"] | None:
    """Where RE3 and RISE look for neighbours; for all others as it was given, to be refused."""
    if not _has(config, POOLED):
        return config.pool
    rewards = parsed(config.reward)
    each = zip(rewards.names, options_of_each(rewards, reward_options(config))[0], strict=True)
    # RISE keeps no observations to look among
    sampled = any(
        "pool_size" in options or (name == "rise" and options.get("space") == "observation")
        for name, options in each
        if name in POOLED
    )
    return config.pool or ("sample" if sampled else "whole")


def _has(config: ExploreConfig, names: Sequence[str]) -> bool:
    """Whether the reward is one of these, or a sum that has one of them."""
    return not set(names_in(config.reward)).isdisjoint(names)


def is_task_reward(reward: str) -> bool:
    """Whether the agents learn from the task's own reward alone."""
    return set(names_in(reward)) == {"extrinsic"}


def _make_reward(env: str, config: ExploreConfig, planned_steps: int) -> Reward | None:
    options = reward_options(config)
    _refuse_unused(config, options)
    if config.reward == "random":
        return None
    rewards = parsed(config.reward)
    each, _ = options_of_each(rewards, options)
    for named, given in zip(rewards.rewards, each, strict=True):
        own = _own_options(named.name, env, config, planned_steps)
        twice = rewards.names.count(named.name) > 1  # then one may have others than the flags say
        if not twice and (clash := sorted(set(own) & set(given))):
            raise ValueError(_clash(named, clash[0]))
        prefix = f"{named.label}." if rewards.name is None else ""
        options |= {f"{prefix}{name}": given.get(name, value) for name, value in own.items()}
    return make_replay_reward(
        config.reward,
        env=env,
        total_steps=planned_steps,
        options=options,
        recent_scale=config.recent_scale,
    )


def _refuse_unused(config: ExploreConfig, options: Mapping[str, Any]) -> None:
    """Settings that the reward has no use for."""
    intrinsic = not set(names_in(config.reward)) <= {"random", "extrinsic"}
    alone = parsed(config.reward).name
    if config.pool and not _has(config, POOLED):
        raise ValueError(f"--pool is of {' and '.join(POOLED)}; {config.reward} has none.")
    if config.inputs == "state" and not intrinsic:
        raise ValueError(
            f"--inputs is what an intrinsic reward sees, and {config.reward} is none: leave it out."
        )
    if options and alone in ("random", "extrinsic"):
        raise ValueError(
            f"--reward-options are for other rewards than {config.reward}: see --help."
        )
    if config.recent_scale and alone in (*ELEMENTS, "random"):
        raise ValueError(
            f"--recent-scale is for other rewards than {config.reward}: ELEMENT's terms are within "
            "[0, 1]."
        )
    if config.extrinsic_weight and not intrinsic:
        raise ValueError(
            "--extrinsic-weight adds the environment's reward to an intrinsic one, and "
            f"{config.reward} is none: leave it out."
        )
    if config.extrinsic_weight and _has(config, ("extrinsic",)):
        raise ValueError(
            f"--extrinsic-weight adds the environment's reward, which {config.reward} has already: "
            "leave one of them out."
        )


def _own_options(name: str, env: str, config: ExploreConfig, planned_steps: int) -> dict[str, Any]:
    """The settings of a reward that have options of the command."""
    if name in ELEMENTS:
        return _element_options(env, config, planned_steps, name)
    if name == "extrinsic":
        return {"scale": config.reward_scale}
    return {"pool": config.pool} if config.pool and name in POOLED else {}


def _clash(named: Named, option: str) -> str:
    """What to say where a setting was given in two places, or cannot be given."""
    if named.name == PRINTED:
        return f"{PRINTED} has {option} as printed: --reward element takes others."
    flags = {
        "lifelong_weight": "--beta",
        "scale": "--reward-scale",
        "running": "--learn-from running",
    }
    return (
        f"{option} has an option of its own: {flags.get(option, '--' + option.replace('_', '-'))}."
    )


def _element_options(
    env: str, config: ExploreConfig, planned_steps: int, name: str | None = None
) -> dict[str, Any]:
    """ELEMENT's settings; `name` says which ELEMENT, where the reward is a sum that has both."""
    only_printed = _has(config, (PRINTED,)) and not _has(config, ("element",))
    if name == PRINTED or (name is None and only_printed):
        return _printed_options(env, config)
    paper = preset(env)
    estimator = config.estimator or usual_estimator(env, config.credit)
    usual_bandwidth = replay_defaults(estimator).get("bandwidth", paper.bandwidth)
    options: dict[str, Any] = {
        "lifelong_weight": paper.lifelong_weight if config.beta is None else config.beta,
        "estimator": estimator,
        "bandwidth": usual_bandwidth if config.bandwidth is None else config.bandwidth,
        "episodic_weight": config.episodic_weight,
        "memory": config.memory,
        "remember": config.remember,
        "own_episode": config.own_episode,
        "lifelong_estimator": config.lifelong_estimator,
        "normalisation": config.normalisation,
        "credit": config.credit,
        "running": (config.learn_from or config._usual_learn_from) == "running",
        "length_weighted": config.length_weighted,
    }
    return options | update_window(planned_steps, config.update_interval, config.update_steps)


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


def _with_temperature(config: ExploreConfig) -> SACConfig:
    """SAC with a temperature that, in worlds too, falls as fast for each step of the agent as it
    does with one update per step. Until it has fallen, the policy's own entropy outweighs what a
    bonus pays (docs/worlds.md)."""
    given = config.sac.temperature_learning_rate
    if given is None:
        updates = config.usual_updates_per_step / config.sac.policy_delay
        fewer = 1.0 if config.physics == "host" else min(updates, 1.0)
        given = min(temperature_rate(config.sac) / fewer, LARGEST_TEMPERATURE_RATE)
    return dataclasses.replace(config.sac, temperature_learning_rate=given)


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


def _printed_options(env: str, config: ExploreConfig) -> dict[str, Any]:
    """What the paper prints; the window, the only setting that can be asked for, is its own
    whatever the length of the run."""
    paper = printed(env)
    interval = config.update_interval or paper.update_interval
    steps = config.update_steps or min(paper.update_steps, max(interval // 10, 1))
    names = ("lifelong_weight", "estimator", "bandwidth")
    options = {name: getattr(paper, name) for name in names}
    return options | {"update_interval": interval, "update_steps": steps}


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
