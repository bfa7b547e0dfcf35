"""The settings of an on-policy run, and how the ones left open are decided."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from element_rl.agents import a3c, ppo
from element_rl.agents.a3c import A3CConfig
from element_rl.agents.ppo import PPOConfig, Stream
from element_rl.envs.make import describe
from element_rl.envs.names import MARIO
from element_rl.envs.robots import units_fit
from element_rl.envs.spec import EnvSpec
from element_rl.rewards import REWARD_HELP, TRAINING_NAMES, check_name, make_bonus
from element_rl.rewards.expression import names_in, parsed
from element_rl.rewards.interface import latent_of
from element_rl.rewards.making import needed_latent, said
from element_rl.rewards.on_rollouts import Bonus
from element_rl.storage.settings import named_values, with_missing
from element_rl.training.settings import (
    check_numbers,
    check_timeout,
    refuse_large_agents,
    usual_log_every,
    with_latent,
    written_position,
)

A3C_WORKERS, PPO_WORKERS, PPO_ENVS = 6, 2, 8
# The paper's learner looks ten steps ahead and delivers 300 at a time; with these two changed
# ELEMENT explores, on Rooms-v0 and on Mario (docs/results/rooms.md, mario.md).
LEARNER = A3CConfig(discount=0.99, local_steps=50)
PPO = PPOConfig()
NO_LATENT = (
    "{reward} pays a policy for following a vector that it must be told, and frames cannot carry "
    "one: it is for vectors, with `element explore`, or with IntrinsicCallback and "
    "Stable-Baselines3's PPO on an environment in a LatentObservation (docs/latents.md)."
)


@dataclass(frozen=True)
class OnPolicyConfig:
    """What to train, on what, for how long. `None`: as the paper has it, or as fits the run."""

    # Environment to explore: Rooms-v0, SuperMarioBros-1-1 (or mario), or any of Gymnasium's; A3C
    # takes those with images and Discrete actions, PPO all. One of another package is named
    # package:Env-v0. (required, unless --resume is given)
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    reward: Annotated[str, tyro.conf.arg(help=REWARD_HELP)] = "element"
    # Settings of the reward as NAME=VALUE pairs, e.g. estimator=kde or learning_rate=1e-3; in a
    # sum each names its reward, e.g. rnd.learning_rate=1e-3. (default: none)
    reward_options: tuple[str, ...] = ()
    # Environment steps of each agent, all its workers together.
    steps: int = 1_000_000
    # How many agents are trained side by side, each with a seed and workers of its own.
    seeds: int = 1
    # Seed of the first agent; the others count up from it.
    seed: int = 0
    # Algorithm that learns from the reward: asynchronous advantage actor-critic (a3c), on images
    # with Discrete actions, or proximal policy optimisation (ppo), on all environments.
    agent: Literal["a3c", "ppo"] = "a3c"
    # Processes of each agent; 0 is one worker in the command's own process. Each has an environment
    # of its own with A3C, which can be repeated exactly with 0 or 1; with PPO they share the
    # environments, and every number can be repeated. (default: 6 with A3C, 2 with PPO)
    workers: int | None = None
    # Environments of each agent of PPO. (default: 8)
    envs_per_agent: int | None = None
    # Folder of a trained encoder of frames, made by element pretrain-encoder.
    # (default: a random encoder, never trained)
    encoder: Path | None = None
    # Width of a random encoder's states, on frames.
    state_dim: int = 32
    # Where the agent of PPO is: columns of vectors (obs[0:2], or 0 1), entries of info (x_position
    # y_position), attributes of the environment (env.agent_pos), or FILE.py:FUNCTION. The first two
    # numbers are its place on the map; of vectors all become part of the state. none: nowhere.
    # (default: what the library knows of the robot, or finds)
    position: tuple[str, ...] = ()
    # Lowest and highest value on the two axes of the map, e.g. -5 5 -5 5. (default: the map grows
    # with what is seen)
    bounds: tuple[tuple[float, float], ...] = ()
    # Units of the states of vectors: the environment's own (raw), or taken from 2,000 random steps
    # before the run, so that a bandwidth means the same everywhere (calibrated). (default: raw on
    # Hopper, Walker2d, Ant and PointMaze, calibrated elsewhere)
    state_units: Literal["raw", "calibrated"] | None = None
    # Weight of ELEMENT's lifelong reward; 0 for the episodic reward alone. (default: 0.5)
    beta: float | None = None
    # How ELEMENT finds the nearest of all remembered states: by comparing with every one (exact),
    # with FAISS's index (hnsw), with the paper's graph (graph), or exactly while that is fast and
    # then with hnsw (auto). (default: auto)
    memory: Literal["auto", "exact", "graph", "hnsw"] | None = None
    # Steps from one update window of ELEMENT to the next, the paper's U: states are remembered in
    # these windows only. (default: 500,000, but no more than a tenth of --steps)
    update_interval: int | None = None
    # Steps of one update window of ELEMENT, the paper's T_u. (default: a tenth of
    # --update-interval)
    update_steps: int | None = None
    # Divide the reward by the running standard deviation of its discounted return, as RND does.
    scale_reward: bool = False
    # Weight of the environment's own reward, which is added to an intrinsic one.
    extrinsic_weight: float = 0.0
    # Folder of an on-policy run whose last policies the agents begin with.
    # (default: they begin from nothing)
    begin: Path | None = None
    # Steps between two lines of metrics. (default: a hundredth of --steps, from 500 to 10,000)
    log_every: int | None = None
    # Steps between two checkpoints. (default: a tenth of --steps)
    checkpoint_every: int | None = None
    # Agents that act at random, run for comparison at the end; 0 for none.
    random_seeds: int = 1
    # How many times in a row a worker that fails is started again.
    restarts: int = 3
    # Seconds that a worker may take for one rollout; one that takes longer is ended and started
    # again, as one that fails. (default: a worker is waited for as long as it takes)
    env_timeout: float | None = None
    # Settings of the environment as NAME=VALUE pairs, e.g. goal_distance=20. (default: none)
    env_options: tuple[str, ...] = ()
    # The learner of --agent a3c, asynchronous advantage actor-critic.
    a3c: A3CConfig = LEARNER
    # The learner of --agent ppo, proximal policy optimisation.
    ppo: PPOConfig = PPO

    def __post_init__(self) -> None:
        counts = ("steps", "seeds", "state_dim", "envs_per_agent")
        intervals = ("log_every", "checkpoint_every", "update_interval", "update_steps")
        check_numbers(self, (*counts, *intervals), ("seed", "workers", "random_seeds", "restarts"))
        check_timeout(self.env_timeout)
        check_name(self.reward, TRAINING_NAMES)
        if not self.env:
            raise ValueError("Name the environment to explore, such as Rooms-v0.")

    @property
    def num_workers(self) -> int:
        """Processes of each agent."""
        usual = A3C_WORKERS if self.agent == "a3c" else PPO_WORKERS
        return usual if self.workers is None else self.workers

    def as_begun(self) -> "OnPolicyConfig":
        """The settings of a run, read from its folder, with what older runs do not say."""
        return dataclasses.replace(self, reward_options=_said(self, older=True))

    def as_written(self) -> "OnPolicyConfig":
        """The settings of a new run, with what must be written down since older runs have it
        otherwise."""
        return dataclasses.replace(
            self, reward=parsed(self.reward).text, reward_options=_said(self)
        )


def resolved(config: OnPolicyConfig) -> tuple[OnPolicyConfig, EnvSpec]:
    """The configuration with nothing left open but what the reward decides, and the environment's
    description."""
    if config.agent == "ppo":
        spec = _described(config)
        if not spec.sees_frames:  # frames can carry no latent: `bonus_of` says so
            told = with_latent(config, needed_latent(config.reward, reward_options(config)))
            config, spec = told, spec if told == config else _described(told)
        config = _with_ppo(config, spec)
    else:
        spec = describe(config.env, (), (), "frames", **env_options(config))
        _refuse_settings_of_ppo(config)
        config = dataclasses.replace(config, workers=config.num_workers)
    refuse_large_agents(lambda key: new_agent(key, config, spec), config.seeds)
    config = dataclasses.replace(
        config.as_written(),
        env=spec.name,
        log_every=config.log_every or usual_log_every(config.steps),
        checkpoint_every=config.checkpoint_every or max(config.steps // 10, 1),
    )
    return config, spec


def new_agent(key: Any, config: OnPolicyConfig, spec: EnvSpec) -> Any:
    """The state of an agent that begins, by resolved settings."""
    if config.agent == "a3c":
        return a3c.create(key, spec.frame_shape, spec.actions, config.a3c)
    shape = ppo.network_shape(
        spec.observation_shape,
        spec.action_dim,
        spec.chooses,
        len(streams_of(config)),
        config.ppo,
    )
    return ppo.begin(key, shape, config.ppo)


def streams_of(config: OnPolicyConfig) -> tuple[Stream, ...]:
    """What PPO learns from: one stream of rewards, or the intrinsic and the task's own apart."""
    learner = config.ppo
    if set(names_in(config.reward)) == {"extrinsic"}:
        return (Stream(learner.discount),)
    apart = learner.bonus_discount is not None or not learner.bonus_episodic
    if not apart:
        return (Stream(learner.discount),)
    discount = learner.discount if learner.bonus_discount is None else learner.bonus_discount
    bonus = Stream(discount, episodic=learner.bonus_episodic)
    if not config.extrinsic_weight:
        return (bonus,)
    return bonus, Stream(learner.discount, config.extrinsic_weight)


def _described(config: OnPolicyConfig) -> EnvSpec:
    return describe(config.env, config.position, config.bounds, None, **env_options(config))


def _with_ppo(config: OnPolicyConfig, spec: EnvSpec) -> OnPolicyConfig:
    """The configuration with what PPO decides. A run is made of whole rollouts: `steps` may grow to
    a multiple of them. So a run that is continued to more steps is what it would have been."""
    if spec.sees_frames and config.state_units:
        raise ValueError(
            f"--state-units is of vectors, and {spec.name} shows frames: leave it out."
        )
    if not spec.sees_frames and config.encoder is not None:
        raise ValueError(f"--encoder is of frames, and {spec.name} observes vectors: leave it out.")
    envs = config.envs_per_agent or PPO_ENVS
    units = config.state_units
    if not spec.sees_frames and units is None:
        units = "raw" if units_fit(spec.name) else "calibrated"
    learner = config.ppo.resolved(spec.sees_frames, envs)
    rows = -(-config.steps // envs)  # steps of each environment
    length = min(learner.rollout_steps or rows, rows)
    return dataclasses.replace(
        config,
        steps=-(-rows // length) * length * envs,
        envs_per_agent=envs,
        workers=min(config.num_workers, envs),
        state_units=units,
        # as it was said, or found: a later version may find another
        position=config.position if spec.sees_frames else written_position(config.position, spec),
        bounds=(spec.coverage_bounds or ()) if config.position else config.bounds,
        ppo=dataclasses.replace(learner, rollout_steps=length),
    )


def _refuse_settings_of_ppo(config: OnPolicyConfig) -> None:
    for name in ("envs_per_agent", "position", "bounds", "state_units"):
        if getattr(config, name):
            raise ValueError(
                f"--{name.replace('_', '-')} is a setting of --agent ppo: leave it out, or choose "
                "that agent."
            )


def _said(config: OnPolicyConfig, older: bool = False) -> tuple[str, ...]:
    options = said(config.reward, reward_options(config), older)
    return with_missing(config.reward_options, options)


def reward_options(config: OnPolicyConfig) -> dict[str, Any]:
    """The reward's options."""
    return named_values(
        "--reward-options", config.reward_options, "learning_rate=1e-3", dotted=True
    )


def bonus_of(config: OnPolicyConfig, spec: EnvSpec, state_dim: int) -> Bonus | None:
    """The reward that the settings ask for; None for random actions."""
    options = reward_options(config)
    own = {
        "lifelong_weight": config.beta,
        "memory": config.memory,
        "update_interval": config.update_interval,
        "update_steps": config.update_steps,
    }
    given = {name: value for name, value in own.items() if value is not None}
    rewards = parsed(config.reward)
    if "element" in rewards.names:
        for named in rewards.rewards:
            prefix = "" if rewards.name is not None else f"{named.label}."
            if named.name == "element":
                options = {f"{prefix}{name}": value for name, value in given.items()} | options
    elif given:
        raise ValueError(
            f"--beta, --memory and the update window are ELEMENT's; {config.reward} has no such "
            "setting."
        )
    if config.reward == "random":
        return None
    bonus = make_bonus(
        config.reward,
        state_dim=state_dim,
        actions=spec.action_dim,
        max_episode_steps=spec.max_episode_steps,
        total_steps=config.steps,
        options=options,
        observation_dim=None if spec.sees_frames else spec.observation_dim,
        env=None if spec.sees_frames else spec.name,
    )
    if latent_of(bonus) is not None and spec.sees_frames:
        raise ValueError(NO_LATENT.format(reward=config.reward))
    return bonus


def env_options(config: OnPolicyConfig) -> dict[str, Any]:
    """The environment's options, their values read as JSON (a word that is none stays a string)."""
    return named_values("--env-options", config.env_options, "goal_distance=20")


def mario_defaults() -> OnPolicyConfig:
    """What `element mario` begins with: the paper's Mario."""
    return OnPolicyConfig(MARIO)
