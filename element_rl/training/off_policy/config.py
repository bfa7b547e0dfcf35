"""The settings of a run of `explore`. `resolving` decides those that are left open."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from element_rl.agents.dqn import DQNConfig
from element_rl.agents.sac import SACConfig, temperature_rate
from element_rl.agents.td3 import TD3Config
from element_rl.envs.positions import NONE
from element_rl.envs.robots import HEALTH_OPTION, robot_of
from element_rl.rewards import REWARD_HELP, TRAINING_NAMES, check_name
from element_rl.rewards.element_config import MemoryKind
from element_rl.rewards.expression import names_in, options_of_each, parsed
from element_rl.rewards.interface import Inputs
from element_rl.rewards.making import said
from element_rl.storage.settings import named_values, settings_from_json, with_missing
from element_rl.training.off_policy.choosing import AgentName
from element_rl.training.off_policy.view import Falls, TellPosition
from element_rl.training.settings import check_numbers, check_timeout
from element_rl.worlds.making import Physics

# With worlds on the device, unless the user says it (docs/worlds.md).
WORLDS_PER_AGENT = 64
UPDATES_PER_WORLD_STEP = 1 / 8
LARGEST_TEMPERATURE_RATE = 32 * temperature_rate(SACConfig())
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
    learn_from: Literal["ended", "running"] = "ended"
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
            sac=_with_temperature(self),
        )

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


def stored_position(env: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The position that the settings of a run say. Older runs say none where they had none; then
    nothing is looked for either."""
    position = tuple(settings.get("position") or ())
    return position if position or robot_of(env) is not None else (NONE,)


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
    if not has_reward(config, POOLED):
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


def has_reward(config: ExploreConfig, names: Sequence[str]) -> bool:
    """Whether the reward is one of these, or a sum that has one of them."""
    return not set(names_in(config.reward)).isdisjoint(names)


def is_task_reward(reward: str) -> bool:
    """Whether the agents learn from the task's own reward alone."""
    return set(names_in(reward)) == {"extrinsic"}


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
