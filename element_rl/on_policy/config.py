"""The settings of an on-policy run, and how the ones left open are decided."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from jaxtyping import UInt8

from element_rl.agents.a3c import A3CConfig
from element_rl.encoders.frozen import FrozenEncoder, load_encoder, random_encoder
from element_rl.envs.screens import MARIO, ScreenSpec, describe_screen, make_screen
from element_rl.on_policy.bonus import Bonus, make_bonus
from element_rl.rewards import NAMES, is_own_reward
from element_rl.settings import named_values

FRAMES_TO_STANDARDISE = 512
ENCODER_STREAM = 7  # of the seed: an untrained encoder is the same for all agents of a run
# The paper's learner looks ten steps ahead and delivers 300 at a time; with these two changed ELEMENT explores, on Rooms-v0 and
# on Mario (docs/results/on-policy.md).
LEARNER = A3CConfig(discount=0.99, local_steps=50)


@dataclass(frozen=True)
class OnPolicyConfig:
    """What to train, on what, for how long. `None` means: as the paper has it, or as fits the run."""

    env: tyro.conf.Positional[
        str
    ]  # Rooms-v0, SuperMarioBros-1-1, or any Gymnasium environment with images and Discrete actions
    reward: str = (
        "element"  # what the agents learn from: element, rnd, ngu, re3, rise, apt, icm, e3b, extrinsic, random (they
    )
    # act at random and do not learn), or FILE.py:FUNCTION, a function of your own that returns a reward
    reward_options: tuple[str, ...] = ()  # NAME=VALUE pairs for the reward, e.g. estimator=kde or learning_rate=1e-3
    steps: int = 1_000_000  # environment steps per seed, all its workers together
    seeds: int = 1  # how many agents are trained side by side, each with workers of its own
    seed: int = 0  # of the first agent; the others count up from it
    workers: int = 6  # processes per agent; 0 for one worker in this process; with 0 or 1 a run can be repeated exactly
    encoder: Path | None = (
        None  # folder of a trained encoder (element pretrain-encoder); none: a random one, never trained
    )
    state_dim: int = 32  # of a random encoder
    beta: float | None = None  # ELEMENT's weight of the lifelong reward (0.5); 0 for the episodic reward alone
    memory: Literal["auto", "exact", "graph", "hnsw"] | None = None  # ELEMENT's memory of states (auto)
    update_interval: int | None = (
        None  # ELEMENT's U (500,000; a tenth of the steps where the run is shorter than 5 million)
    )
    update_steps: int | None = None  # ELEMENT's T_u (a tenth of U)
    scale_reward: bool = (
        False  # divide the reward by the running standard deviation of its discounted return, as RND does
    )
    extrinsic_weight: float = 0.0  # adds so many times the environment's own reward to an intrinsic one
    begin: Path | None = None  # an on-policy run whose last policies the agents begin with
    log_every: int | None = None  # steps between two lines of metrics (a hundredth of the steps, 500 to 10,000)
    checkpoint_every: int | None = None  # steps between two checkpoints (a tenth of the steps)
    random_seeds: int = 1  # seeds of a random policy run for comparison at the end; 0 for none
    restarts: int = 3  # how often in a row a worker that fails is started again
    env_options: tuple[str, ...] = ()  # NAME=VALUE pairs for the environment
    a3c: A3CConfig = LEARNER  # the learner

    def __post_init__(self) -> None:
        for name in ("steps", "seeds", "state_dim", "log_every", "checkpoint_every", "update_interval", "update_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        for name in ("seed", "workers", "random_seeds", "restarts"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}.")
        if self.reward not in (*NAMES, "random") and not is_own_reward(self.reward):
            raise ValueError(f"There is no reward called {self.reward!r}; choose one of {', '.join(NAMES)}, random.")


def resolved(config: OnPolicyConfig) -> tuple[OnPolicyConfig, ScreenSpec]:
    """The configuration with nothing left open but what the reward decides, and the environment's description."""
    spec = describe_screen(config.env, **env_options(config))
    config = dataclasses.replace(
        config,
        env=spec.name,
        log_every=config.log_every or min(10_000, max(config.steps // 100, 500)),
        checkpoint_every=config.checkpoint_every or max(config.steps // 10, 1),
    )
    return config, spec


def bonus_of(config: OnPolicyConfig, spec: ScreenSpec, encoder: FrozenEncoder) -> Bonus | None:
    """The reward that the settings ask for; None for random actions."""
    options = named_values("--reward-options", config.reward_options, "learning_rate=1e-3")
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
        raise ValueError(f"--beta, --memory and the update window are ELEMENT's; {config.reward} has no such setting.")
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


def encoder_of(config: OnPolicyConfig, spec: ScreenSpec) -> FrozenEncoder:
    """The trained encoder that was asked for, or a random one."""
    if config.encoder is None:
        key = jax.random.fold_in(jax.random.key(config.seed), ENCODER_STREAM)
        return random_encoder(key, spec.frame_shape, config.state_dim, _random_frames(config, spec))
    encoder = load_encoder(config.encoder)
    if encoder.frame_shape != spec.frame_shape:
        raise ValueError(
            f"The encoder {config.encoder} takes frames of {encoder.frame_shape} pixels, {spec.name} has {spec.frame_shape}: "
            "train one for it with element pretrain-encoder."
        )
    return encoder


def _random_frames(config: OnPolicyConfig, spec: ScreenSpec) -> UInt8[np.ndarray, "N H W"]:
    """What a random policy sees: the states of an untrained encoder get the same spread as those of a trained one."""
    generator = np.random.default_rng([config.seed, ENCODER_STREAM])
    env = make_screen(spec.name, **env_options(config))
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
    """The environment's options, their values read as JSON (a word that is no JSON stays a string)."""
    return named_values("--env-options", config.env_options, "goal_distance=20")


def agent_seeds(config: OnPolicyConfig) -> list[int]:
    """One seed per agent."""
    return [config.seed + index for index in range(config.seeds)]


def mario_defaults() -> OnPolicyConfig:
    """What `element mario` begins with: the paper's Mario."""
    return OnPolicyConfig(MARIO)
