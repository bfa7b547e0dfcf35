"""The settings of fine-tuning, and the settings of SAC on a robot's task that follow from them (screens: `finetune.screens`)."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from element_rl.agents.a3c import A3CConfig
from element_rl.agents.sac import SACConfig
from element_rl.config import ExploreConfig, Resolved, config_from_json, parsed_options, resolved
from element_rl.envs.robots import HEALTH_OPTION, EnvSpec
from element_rl.runs import RunError, RunFolder


@dataclass(frozen=True)
class FinetuneConfig:
    """What to transfer, and how to train on. `None` means: as in the run."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]  # a run of explore, on-policy or mario
    steps: int = 100_000  # environment steps per seed
    checkpoint: str = "best"  # whose policy: best (each seed its own, by task return), last, or the step of one
    candidates: int = 10  # checkpoints that `best` chooses from, evenly spaced if there are more
    episodes: int = 10  # per checkpoint and seed, to choose by; and as many again for the zero-shot return
    deterministic: bool = False  # act in these episodes with the policy's mean or likeliest action instead of sampling
    critics: Literal["fresh", "kept"] = "fresh"  # kept: the run's, which have learned the value of its own reward
    reward_scale: float | None = None  # factor of the reward that is learned from (SAC: the run's; Mario 0.1; else 1)
    temperature: Literal["fresh", "kept"] = "fresh"  # of SAC, as the next four; fresh: sac.initial_temperature
    replay: Literal["fresh", "kept"] = "fresh"  # kept: begins with the run's experience, under the task's reward
    critic_warmup: int = 1_000  # first updates in which only the critics learn; 0 for none (docs/finetuning.md)
    anchor: float = 0.0  # what it costs the actor to leave the transferred policy: mean values per nat
    anchor_halflife: float | None = None  # updates in which that halves (never)
    compare: bool = True  # also train from scratch, with the same steps, seeds and settings
    seeds: int | None = None  # how many of the run's agents, from the first (all)
    seed: int | None = None  # of the first agent's training; the others count up from it
    replay_size: int | None = None  # transitions kept per agent
    chunk_steps: int | None = None  # steps between two refreshes of the acting policy; lowered to divide the steps
    log_every: int | None = None  # steps between two lines of metrics (a hundredth of the steps, 500 to 10,000)
    checkpoint_every: int | None = None  # steps between two checkpoints (a tenth of the steps)
    workers: int | None = None  # environment processes (on screens: of each agent); 0 steps them in this process
    env_options: tuple[str, ...] = ()  # NAME=VALUE pairs for the environment, beside the run's or instead of them
    sac: Annotated[SACConfig | None, tyro.conf.Suppress] = None  # the learner of robots
    a3c: Annotated[A3CConfig | None, tyro.conf.Suppress] = None  # the learner on screens

    def __post_init__(self) -> None:
        for name in ("steps", "candidates", "episodes", "seeds", "replay_size", "chunk_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.reward_scale is not None and not self.reward_scale > 0:
            raise ValueError(f"--reward-scale must be above 0, got {self.reward_scale}.")
        if self.critic_warmup < 0:
            raise ValueError(f"--critic-warmup must not be negative, got {self.critic_warmup}.")
        if not (self.anchor >= 0 and (self.anchor_halflife is None or self.anchor_halflife > 0)):
            raise ValueError(
                "--anchor must not be negative and --anchor-halflife must be above 0, "
                f"got {self.anchor} and {self.anchor_halflife}."
            )
        if self.checkpoint not in ("best", "last") and not self.checkpoint.isdecimal():
            raise ValueError(f"--checkpoint takes best, last or a number of steps, got {self.checkpoint!r}.")


def task_settings(config: FinetuneConfig, source: RunFolder) -> Resolved:
    """Settings of SAC on the task of a run, from scratch; refused where the run's policies do not fit."""
    explored = _explored(source)
    refuse_given(config, ("a3c",), f"{source.path} is a run of SAC")
    policy, seeds = fitting_policy(config, source, explored.reward, explored.seeds)
    sac = config.sac or explored.sac
    if (sizes := hidden_sizes(policy)) != tuple(sac.hidden_sizes):
        raise ValueError(
            f"The policies of {source.path} have hidden layers of {' '.join(map(str, sizes))} units, not "
            f"{' '.join(map(str, sac.hidden_sizes))}: leave --sac.hidden-sizes away."
        )
    task = ExploreConfig(
        env=explored.env,
        reward="extrinsic",
        steps=config.steps,
        seeds=seeds,
        seed=explored.seed if config.seed is None else config.seed,
        replay_size=config.replay_size or explored.replay_size,
        chunk_steps=config.chunk_steps or explored.chunk_steps,
        log_every=config.log_every,
        checkpoint_every=config.checkpoint_every,
        workers=explored.workers if config.workers is None else config.workers,
        random_seeds=0,
        reward_scale=explored.reward_scale if config.reward_scale is None else config.reward_scale,
        env_options=_task_options(explored, config.env_options),
        position=explored.position,
        bounds=explored.bounds,
        sac=sac,
    )
    settings = resolved(task)
    _refuse_other_spaces(source, policy, settings.spec)
    return settings


def fitting_policy(
    config: FinetuneConfig, source: RunFolder, reward: str, agents: int
) -> tuple[dict[str, np.ndarray], int]:
    """A policy of a run with this reward and so many agents, for its shapes, and how many agents are transferred."""
    if reward == "random":
        raise RunError(f"The run {source.path} acted at random: it has no policy to transfer.")
    seeds = agents if config.seeds is None else config.seeds
    if seeds > agents:
        raise ValueError(f"--seeds is {seeds}, but the run {source.path} has {agents} agents: take at most these.")
    return source.load_policy(int(config.checkpoint) if config.checkpoint.isdecimal() else None), seeds


def refuse_given(config: FinetuneConfig, names: tuple[str, ...], reason: str) -> None:
    """Complain of settings that mean nothing for this kind of run."""
    for field in dataclasses.fields(config):
        if field.name in names and getattr(config, field.name) != field.default:
            raise ValueError(f"--{field.name.replace('_', '-')} means nothing here: {reason}. Leave it away.")


def _explored(source: RunFolder) -> ExploreConfig:
    try:
        return config_from_json(source.config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{source.path} is not a run of element explore (its config.json has other settings): give the folder of one."
        ) from error


def _task_options(explored: ExploreConfig, given: tuple[str, ...]) -> tuple[str, ...]:
    """The run's options without the one that exploring adds by itself, under those given."""
    added = f"{HEALTH_OPTION}=false" if explored.reward != "extrinsic" else None
    parsed_options(dataclasses.replace(explored, env_options=given))  # complains of what is no NAME=VALUE
    return merged_options((pair for pair in explored.env_options if pair != added), given)


def merged_options(ours: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """NAME=VALUE pairs, those given instead of ours of the same name."""
    return tuple({pair.partition("=")[0]: pair for pair in (*ours, *given)}.values())


def _refuse_other_spaces(source: RunFolder, policy: dict[str, np.ndarray], spec: EnvSpec) -> None:
    takes, gives = policy["weight_0"].shape[1], policy[f"bias_{len(policy) // 2 - 1}"].shape[1] // 2
    if (takes, gives) != (spec.observation_dim, spec.action_dim):
        raise ValueError(
            f"The policies of {source.path} take {takes} observations and give {gives} actions, but {spec.name} with these "
            f"options has {spec.observation_dim} and {spec.action_dim}: use the environment options of the run."
        )


def hidden_sizes(policy: dict[str, np.ndarray]) -> tuple[int, ...]:
    """Widths of the hidden layers of stored policies [P, ...]."""
    return tuple(policy[f"bias_{i}"].shape[1] for i in range(len(policy) // 2 - 1))
