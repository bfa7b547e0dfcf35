"""The settings of an on-policy run, and how the ones left open are decided."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from jaxtyping import UInt8

from element_rl.agents.a3c import A3CConfig
from element_rl.encoders.frozen import FrozenEncoder, load_encoder, random_encoder
from element_rl.envs.make import describe, make_env
from element_rl.envs.names import MARIO
from element_rl.envs.spec import EnvSpec
from element_rl.rewards import REWARD_HELP, TRAINING_NAMES, check_name, make_bonus
from element_rl.rewards.making import said
from element_rl.rewards.on_rollouts import Bonus
from element_rl.storage.settings import named_values, with_missing
from element_rl.training.settings import check_numbers, usual_log_every

FRAMES_TO_STANDARDISE = 512
ENCODER_STREAM = 7  # of the seed: an untrained encoder is the same for all agents of a run
# The paper's learner looks ten steps ahead and delivers 300 at a time; with these two changed
# ELEMENT explores, on Rooms-v0 and on Mario (docs/results/rooms.md, mario.md).
LEARNER = A3CConfig(discount=0.99, local_steps=50)


@dataclass(frozen=True)
class OnPolicyConfig:
    """What to train, on what, for how long. `None`: as the paper has it, or as fits the run."""

    # Environment to explore: Rooms-v0, SuperMarioBros-1-1 (or mario), or any Gymnasium environment
    # with images and Discrete actions; one of another package is named package:Env-v0.
    # (required, unless --resume is given)
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    reward: Annotated[str, tyro.conf.arg(help=REWARD_HELP)] = "element"
    # Settings of the reward as NAME=VALUE pairs, e.g. estimator=kde or learning_rate=1e-3.
    # (default: none)
    reward_options: tuple[str, ...] = ()
    # Environment steps of each agent, all its workers together.
    steps: int = 1_000_000
    # How many agents are trained side by side, each with a seed and workers of its own.
    seeds: int = 1
    # Seed of the first agent; the others count up from it.
    seed: int = 0
    # Processes of each agent; 0 is one worker in the command's own process. With 0 or 1 a run can
    # be repeated exactly.
    workers: int = 6
    # Folder of a trained encoder of frames, made by element pretrain-encoder.
    # (default: a random encoder, never trained)
    encoder: Path | None = None
    # Width of a random encoder's states.
    state_dim: int = 32
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
    # The learner, asynchronous advantage actor-critic.
    a3c: A3CConfig = LEARNER

    def __post_init__(self) -> None:
        counts = ("steps", "seeds", "state_dim")
        intervals = ("log_every", "checkpoint_every", "update_interval", "update_steps")
        check_numbers(self, (*counts, *intervals), ("seed", "workers", "random_seeds", "restarts"))
        if self.env_timeout is not None and not self.env_timeout > 0:
            raise ValueError(f"--env-timeout must be above 0 seconds, got {self.env_timeout}.")
        check_name(self.reward, TRAINING_NAMES)
        if not self.env:
            raise ValueError("Name the environment to explore, such as Rooms-v0.")

    def as_begun(self) -> "OnPolicyConfig":
        """The settings of a run, read from its folder, with what older runs do not say."""
        return dataclasses.replace(self, reward_options=_said(self, older=True))

    def as_written(self) -> "OnPolicyConfig":
        """The settings of a new run, with what must be written down since older runs have it
        otherwise."""
        return dataclasses.replace(self, reward_options=_said(self))


def resolved(config: OnPolicyConfig) -> tuple[OnPolicyConfig, EnvSpec]:
    """The configuration with nothing left open but what the reward decides, and the environment's
    description."""
    spec = describe(config.env, (), (), "frames", **env_options(config))
    config = dataclasses.replace(
        config.as_written(),
        env=spec.name,
        log_every=config.log_every or usual_log_every(config.steps),
        checkpoint_every=config.checkpoint_every or max(config.steps // 10, 1),
    )
    return config, spec


def _said(config: OnPolicyConfig, older: bool = False) -> tuple[str, ...]:
    options = said(config.reward, reward_options(config), older)
    return with_missing(config.reward_options, options)


def reward_options(config: OnPolicyConfig) -> dict[str, Any]:
    """The reward's options."""
    return named_values("--reward-options", config.reward_options, "learning_rate=1e-3")


def bonus_of(config: OnPolicyConfig, spec: EnvSpec, encoder: FrozenEncoder) -> Bonus | None:
    """The reward that the settings ask for; None for random actions."""
    options = reward_options(config)
    own = {
        "lifelong_weight": config.beta,
        "memory": config.memory,
        "update_interval": config.update_interval,
        "update_steps": config.update_steps,
    }
    given = {name: value for name, value in own.items() if value is not None}
    if config.reward == "element":
        options = given | options
    elif given:
        raise ValueError(
            f"--beta, --memory and the update window are ELEMENT's; {config.reward} has no such "
            "setting."
        )
    if config.reward == "random":
        return None
    return make_bonus(
        config.reward,
        state_dim=encoder.state_dim,
        actions=spec.actions,
        max_episode_steps=spec.max_episode_steps,
        total_steps=config.steps,
        options=options,
    )


def encoder_of(config: OnPolicyConfig, spec: EnvSpec) -> FrozenEncoder:
    """The trained encoder that was asked for, or a random one."""
    if config.encoder is None:
        key = jax.random.fold_in(jax.random.key(config.seed), ENCODER_STREAM)
        return random_encoder(key, spec.frame_shape, config.state_dim, _random_frames(config, spec))
    encoder = load_encoder(config.encoder)
    if encoder.frame_shape != spec.frame_shape:
        raise ValueError(
            f"The encoder {config.encoder} takes frames of {encoder.frame_shape} pixels, "
            f"{spec.name} has {spec.frame_shape}: "
            "train one for it with element pretrain-encoder."
        )
    return encoder


def _random_frames(config: OnPolicyConfig, spec: EnvSpec) -> UInt8[np.ndarray, "N H W"]:
    """What a random policy sees: the states of an untrained encoder get the same spread as those of
    a trained one."""
    generator = np.random.default_rng([config.seed, ENCODER_STREAM])
    env = make_env(spec.name, **env_options(config))
    frames: list[np.ndarray] = []
    ended = True
    while len(frames) < FRAMES_TO_STANDARDISE:
        if ended:
            (frame, _), ended = env.reset(seed=int(generator.integers(2**31))), False
        else:
            frame, _, terminated, truncated, _ = env.step(int(generator.integers(spec.actions)))
            ended = bool(terminated or truncated)
        frames.append(frame.copy())
    env.close()
    return np.stack(frames)


def env_options(config: OnPolicyConfig) -> dict[str, Any]:
    """The environment's options, their values read as JSON (a word that is none stays a string)."""
    return named_values("--env-options", config.env_options, "goal_distance=20")


def mario_defaults() -> OnPolicyConfig:
    """What `element mario` begins with: the paper's Mario."""
    return OnPolicyConfig(MARIO)
