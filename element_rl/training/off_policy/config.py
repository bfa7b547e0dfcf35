"""The settings of a run of `explore`, and how the ones left open are decided."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.envs.make import describe
from element_rl.envs.robots import HEALTH_OPTION, can_fall, units_fit
from element_rl.envs.spec import EnvSpec
from element_rl.rewards import REWARD_HELP, TRAINING_NAMES, Reward, check_name, make_replay_reward
from element_rl.rewards.element_config import (
    MemoryKind,
    preset,
    replay_defaults,
    update_window,
)
from element_rl.rewards.element_paper import printed
from element_rl.rewards.interface import Inputs
from element_rl.rewards.making import memory_kind, said
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import stored_settings
from element_rl.storage.settings import named_values, settings_from_json, with_missing
from element_rl.training.off_policy.view import Falls, TellPosition, view_of
from element_rl.training.settings import check_numbers, usual_log_every
from element_rl.worlds.making import Physics, make_worlds

SMALLEST_CHUNK = 8
# With worlds on the device, unless the user says it (docs/worlds.md).
WORLDS_PER_AGENT = 128
SHORTEST_SCAN = 16  # steps of each world in a chunk
UPDATES_PER_WORLD_STEP = 1 / 32
WORLDS_BATCH_SIZE = 512
PRINTED = "element-paper"
ELEMENTS = ("element", PRINTED)  # whose terms are within [0, 1], and whose memory has windows
POOLED = ("re3", "rise")  # which may compare with a sample of the replay


@dataclass(frozen=True)
class ExploreConfig:
    """What to train, on what, for how long. `None`: as this robot has it, or as fits the run."""

    # Gymnasium environment to explore, with Box spaces: Ant-v5, Hopper-v5, Walker2d-v5,
    # Humanoid-v4, PointMaze, or any other; one of another package is named package:Env-v0.
    # (required, unless --resume is given)
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    reward: Annotated[str, tyro.conf.arg(help=REWARD_HELP)] = "element"
    # Settings of the reward as NAME=VALUE pairs, e.g. learning_rate=1e-3, or renyi_order=2.
    # (default: none)
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
    # or distances to nearest neighbours. (default: kde on Hopper, knn on Walker2d, otherwise renyi)
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
    # (default: 1; with --physics warp or jax 128)
    envs_per_agent: int | None = None
    # Where environments are stepped: in processes on the host (host), or by the thousand on the
    # device, MuJoCo's robots with MuJoCo Warp (warp) or environments written in JAX (jax).
    physics: Physics = "host"
    # Updates of the learner for each environment step of the agent. (default: 1; with --physics
    # warp or jax 1/32)
    updates_per_step: float | None = None
    # Transitions in the batch of one update, instead of the learner's own number. (default: the
    # learner's own, such as --sac.batch-size; with --physics warp or jax 512)
    batch_size: int | None = None
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
    # Agents that act at random, run for comparison at the end; 0 for none.
    random_seeds: int = 1
    # Factor of the task's reward, with --reward extrinsic.
    reward_scale: float = 1.0
    # Divide the reward by its recent standard deviation, because SAC minds the size of rewards; not
    # for --reward element, whose terms are scaled already.
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
    # Where the agent is, in an environment that is no robot of this library: entries of info, or
    # columns of the observation, e.g. x_position y_position, or 0 1. They become part of the state,
    # and the first two of the map. (default: what the library knows of the robot)
    position: tuple[str, ...] = ()
    # Lowest and highest value on the two axes of the map, e.g. -5 5 -5 5. (default: those of the
    # observation's columns where finite, else ten times as far as random actions get)
    bounds: tuple[tuple[float, float], ...] = ()
    # Units of the states that ELEMENT, RE3 and RISE compare: the environment's own (raw), or taken
    # from 2,000 random steps before the run, so that a bandwidth means the same everywhere
    # (calibrated). (default: raw on Hopper, Walker2d, Ant and PointMaze, calibrated elsewhere)
    state_units: Literal["raw", "calibrated"] | None = None
    # Who is told where on the coverage map the agent is, beside what it observes: nobody (none),
    # the critics (critic), or critics and actor (both). Rewards see what they see without it.
    tell_position: TellPosition = "none"
    # Algorithm that learns from the reward: soft actor-critic (sac) or TD3 (td3).
    agent: Literal["sac", "td3"] = "sac"
    # The learner of --agent sac, soft actor-critic.
    sac: SACConfig = field(default_factory=SACConfig)
    # The learner of --agent td3, twin delayed deep deterministic policy gradient.
    td3: TD3Config = field(default_factory=TD3Config)

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
        if self.physics != "host" and self.workers is not None:
            raise ValueError(
                "--workers are processes that step environments on the host; with --physics "
                f"{self.physics} there are none: leave it out."
            )
        if self.updates_per_step is not None and not 0 < self.updates_per_step < math.inf:
            raise ValueError(
                f"--updates-per-step must be a positive number, got {self.updates_per_step}."
            )
        check_name(self.reward, TRAINING_NAMES)
        if not self.env:
            raise ValueError("Name the environment to explore, such as Hopper-v5.")

    def as_begun(self) -> "ExploreConfig":
        """The settings of a run, read from its folder, with what older runs do not say."""
        return dataclasses.replace(self, reward_options=_said(self, older=True))

    def as_written(self) -> "ExploreConfig":
        """The settings of a new run, with what must be written down since older runs have it
        otherwise."""
        return dataclasses.replace(self, reward_options=_said(self), pool=_pool(self))

    @property
    def learner(self) -> SACConfig | TD3Config:
        """The settings of the agent that learns."""
        own: SACConfig | TD3Config = getattr(self, self.agent)
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
        usual = 1.0 if self.physics == "host" else UPDATES_PER_WORLD_STEP
        per_step = usual if self.updates_per_step is None else self.updates_per_step
        return max(round(per_step * self.chunk_steps), 1)

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
        said_then = with_missing(config.reward_options, reward_options(begun))
        config = dataclasses.replace(config, reward_options=said_then)
    options = parsed_options(config)
    spec = describe(config.env, config.position, config.bounds, "vectors", **options)
    if config.physics != "host":
        make_worlds(config.physics, spec, options)  # refuses what it cannot take
    config = _with_falls(spec.name, config)
    view_of(config, spec)  # refuses to tell places where there is no map
    element = _element_options(spec.name, config, planned_steps)
    config = dataclasses.replace(
        config.as_written(),
        env=spec.name,
        update_interval=element["update_interval"],
        update_steps=element["update_steps"],
        envs_per_agent=config.num_envs,
        chunk_steps=_chunk_steps(planned_steps, _wanted_chunk(config), config.num_envs),
        batch_size=_batch_size(config),
        log_every=config.log_every or usual_log_every(planned_steps),
        checkpoint_every=config.checkpoint_every
        or min(element["update_interval"], update_window(planned_steps)["update_interval"]),
        beta=element["lifelong_weight"],
        estimator=element["estimator"],
        bandwidth=element["bandwidth"],
        bounds=(spec.coverage_bounds or ()) if config.position else config.bounds,
        state_units=config.state_units or usual_units(spec.name),
    )
    reward = _make_reward(spec.name, config, planned_steps)
    memory = memory_kind(reward) or config.memory
    return Resolved(dataclasses.replace(config, memory=memory), spec, reward)


def begun_settings(run: RunFolder) -> ExploreConfig:
    """The settings that a run was begun with.

    Older runs stored the memory as "auto"; which one that came to follows from their steps. They
    say nothing of units and pools: their states are raw, and their pools were sampled. What a fall
    did there, the environment's options say.
    """
    stored = stored_settings(run, "explore", ExploreConfig)
    pool = stored.pool or ("sample" if stored.reward in POOLED else None)
    stored = dataclasses.replace(
        _with_falls(stored.env, stored), state_units=stored.state_units or "raw", pool=pool
    )
    if stored.reward != "element" or stored.memory != "auto":
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
    usual: Falls = "end" if config.reward == "extrinsic" else "ignore"
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


def described(settings: Mapping[str, Any], env_options: Mapping[str, Any]) -> EnvSpec:
    """The environment of a run by its stored settings, with these options; older runs say nothing
    of positions."""
    position, bounds = settings.get("position", ()), settings.get("bounds", ())
    return describe(settings["env"], position, bounds, "vectors", **env_options)


def map_note(given: ExploreConfig, spec: EnvSpec) -> str:
    """What a user should know of the map before the run begins; nothing where it is as asked."""
    if not spec.position_dim:
        return (
            f"{spec.name} has no coverage map: --position says where the agent is, by entries of "
            "info (--position x_position y_position) or by columns of the observation "
            "(--position 0 1)."
        )
    if spec.coverage_bounds is None or spec.coverage_axes is None:
        return "Coverage is not counted: a map has two axes, and --position has one coordinate."
    if not given.position or given.bounds:
        return ""
    pairs = zip(spec.coverage_axes, spec.coverage_bounds, strict=True)
    ranges = " and ".join(f"{axis} from {low:g} to {high:g}" for axis, (low, high) in pairs)
    return f"Coverage is counted on {ranges}; --bounds takes others."


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
    return named_values("--reward-options", config.reward_options, "learning_rate=1e-3")


def _said(config: ExploreConfig, older: bool = False) -> tuple[str, ...]:
    options = said(config.reward, reward_options(config), older)
    return with_missing(config.reward_options, options)


def _pool(config: ExploreConfig) -> Literal["whole", "sample"] | None:
    """Where RE3 and RISE look for neighbours; for all others as it was given, to be refused."""
    if config.reward not in POOLED:
        return config.pool
    options = reward_options(config)
    # RISE keeps no observations to look among
    raw = config.reward == "rise" and options.get("space") == "observation"
    sampled = raw or "pool_size" in options
    return config.pool or ("sample" if sampled else "whole")


def _make_reward(env: str, config: ExploreConfig, planned_steps: int) -> Reward | None:
    options = reward_options(config)
    if config.pool and config.reward not in POOLED:
        raise ValueError(f"--pool is of {' and '.join(POOLED)}; {config.reward} has none.")
    if config.inputs == "state" and config.reward in ("random", "extrinsic"):
        raise ValueError(
            f"--inputs is what an intrinsic reward sees, and {config.reward} is none: leave it out."
        )
    if options and config.reward in ("random", "extrinsic"):
        raise ValueError(
            f"--reward-options are for other rewards than {config.reward}: see --help."
        )
    if config.recent_scale and config.reward in (*ELEMENTS, "random"):
        raise ValueError(
            f"--recent-scale is for other rewards than {config.reward}: ELEMENT's terms are within "
            "[0, 1]."
        )
    if config.extrinsic_weight and config.reward in ("random", "extrinsic"):
        raise ValueError(
            "--extrinsic-weight adds the environment's reward to an intrinsic one, and "
            f"{config.reward} is none: leave it out."
        )
    if config.reward == "random":
        return None
    if config.reward == "extrinsic":
        options = {"scale": config.reward_scale}
    own: dict[str, Any] = {"pool": config.pool} if config.pool else {}
    if config.reward in ELEMENTS:
        own = _element_options(env, config, planned_steps)
    if clash := sorted(set(own) & set(options)):
        if config.reward == PRINTED:
            raise ValueError(f"{PRINTED} has {clash[0]} as printed: --reward element takes others.")
        flags = {"lifelong_weight": "--beta"}
        raise ValueError(
            f"{clash[0]} has an option of its own: "
            f"{flags.get(clash[0], '--' + clash[0].replace('_', '-'))}."
        )
    return make_replay_reward(
        config.reward,
        env=env,
        total_steps=planned_steps,
        options=own | options,
        recent_scale=config.recent_scale,
    )


def _element_options(env: str, config: ExploreConfig, planned_steps: int) -> dict[str, Any]:
    if config.reward == PRINTED:
        return _printed_options(env, config)
    paper = preset(env)
    estimator = config.estimator or paper.estimator
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
        "length_weighted": config.length_weighted,
    }
    return options | update_window(planned_steps, config.update_interval, config.update_steps)


def _wanted_chunk(config: ExploreConfig) -> int:
    """Steps of an agent in a chunk: on the device so many that the host has little to do."""
    least = 0 if config.physics == "host" else SHORTEST_SCAN * config.num_envs
    return max(config.chunk_steps, least)


def _batch_size(config: ExploreConfig) -> int | None:
    usual = None if config.physics == "host" else WORLDS_BATCH_SIZE
    return usual if config.batch_size is None else config.batch_size


def _printed_options(env: str, config: ExploreConfig) -> dict[str, Any]:
    """What the paper prints; the window, the only setting that can be asked for, is its own
    whatever the length of the run."""
    paper = printed(env)
    interval = config.update_interval or paper.update_interval
    steps = config.update_steps or min(paper.update_steps, max(interval // 10, 1))
    names = ("lifelong_weight", "estimator", "bandwidth")
    options = {name: getattr(paper, name) for name in names}
    return options | {"update_interval": interval, "update_steps": steps}


def _chunk_steps(steps: int, wanted: int, num_envs: int) -> int:
    """The largest divisor of the steps up to `wanted` that all environments of an agent can share
    evenly.

    So a run ends where it was told to. Where there is no fair one, the largest multiple up to
    `wanted`.
    """
    most = max(min(wanted, steps) // num_envs, 1)  # steps of each environment
    fair = min(-(-SMALLEST_CHUNK // num_envs), most)
    divisors = [d for d in range(most, 0, -1) if steps % (d * num_envs) == 0]
    return num_envs * (divisors[0] if divisors and divisors[0] >= fair else most)
