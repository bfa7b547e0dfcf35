"""The settings of fine-tuning, and the settings of SAC on a robot's task that follow from them
(screens: `training.finetune.screens`)."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from element_rl.acting.host_policy import policy_widths
from element_rl.agents.a3c import A3CConfig
from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.envs.robots import HEALTH_OPTION
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunError, RunFolder
from element_rl.training.off_policy.config import (
    ExploreConfig,
    Resolved,
    config_from_json,
    parsed_options,
    resolved,
)

# A run has to be named unless one is resumed, which tyro cannot know.
RUN = tyro.conf.arg(metavar="RUN", help_behavior_hint="(required, unless --resume is given)")


@dataclass(frozen=True)
class FinetuneConfig:
    """What to transfer, and how to train on. `None` means: as in the run."""

    # Folder of the run whose policies are transferred, made by element explore, on-policy or mario.
    run: tyro.conf.Positional[Annotated[Path, RUN]]
    # Environment steps of each agent on the task.
    steps: int = 100_000
    # Checkpoint whose policy is transferred: best (each agent's own, by task return), last, or the
    # step of one.
    checkpoint: str = "best"
    # How many checkpoints `best` chooses from, evenly spaced if there are more.
    candidates: int = 10
    # Episodes of each checkpoint and agent to choose by, and as many again for the zero-shot
    # return.
    episodes: int = 10
    # Act in these episodes with the policy's mean or likeliest action instead of sampling.
    deterministic: bool = False
    # Whether the critics begin anew (fresh) or as they are in the run, where they have learned the
    # value of its own reward (kept).
    critics: Literal["fresh", "kept"] = "fresh"
    # Factor of the reward that is learned from. (default: with SAC the run's; on Mario 0.1;
    # otherwise 1)
    reward_scale: float | None = None
    # Whether SAC's temperature begins at --sac.initial-temperature (fresh) or as it is in the run
    # (kept).
    temperature: Literal["fresh", "kept"] = "fresh"
    # Whether SAC's replay begins empty (fresh) or with the run's experience, under the task's
    # reward (kept).
    replay: Literal["fresh", "kept"] = "fresh"
    # First updates of SAC in which only the critics learn; 0 for none (docs/finetuning.md).
    critic_warmup: int = 1_000
    # Cost to SAC's actor of leaving the transferred policy, in mean values per nat; 0 for none.
    anchor: float = 0.0
    # Updates in which the cost of --anchor halves. (default: it stays)
    anchor_halflife: float | None = None
    # Train agents from scratch too, with the same steps, seeds and settings, for comparison.
    compare: bool = True
    # How many of the run's agents are transferred, from the first. (default: all)
    seeds: int | None = None
    # Seed of the first agent's training; the others count up from it. (default: the run's)
    seed: int | None = None
    # Transitions that SAC keeps for each agent to learn from. (default: as in the run)
    replay_size: int | None = None
    # Steps between two refreshes of SAC's acting policy; lowered to divide --steps.
    # (default: as in the run)
    chunk_steps: int | None = None
    # Steps between two lines of metrics. (default: a hundredth of --steps, from 500 to 10,000)
    log_every: int | None = None
    # Steps between two checkpoints. (default: a tenth of --steps)
    checkpoint_every: int | None = None
    # Processes that step the environments, on screens those of each agent; 0 steps them in the
    # command's own process. (default: as in the run)
    workers: int | None = None
    # Settings of the environment as NAME=VALUE pairs, beside the run's or instead of them.
    # (default: none)
    env_options: tuple[str, ...] = ()
    # The learner of robots; None: as in the run.
    sac: Annotated[SACConfig | None, tyro.conf.Suppress] = None
    # The learner of robots that explored with TD3; None: as in the run.
    td3: Annotated[TD3Config | None, tyro.conf.Suppress] = None
    # The learner on screens; None: as in the run.
    a3c: Annotated[A3CConfig | None, tyro.conf.Suppress] = None

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
            raise ValueError(
                f"--checkpoint takes best, last or a number of steps, got {self.checkpoint!r}."
            )


def task_settings(config: FinetuneConfig, source: RunFolder) -> Resolved:
    """Settings of SAC on the task of a run, from scratch; refused where the run's policies do not
    fit."""
    explored = _explored(source)
    others = tuple({"sac", "td3", "a3c"} - {explored.agent})
    refuse_given(config, others, f"{source.path} is a run of {explored.agent.upper()}")
    policy, seeds = fitting_policy(config, source, explored.reward, explored.seeds)
    learner: Any = getattr(config, explored.agent) or explored.learner
    if (sizes := policy_widths(policy)[1:-1]) != tuple(learner.hidden_sizes):
        raise ValueError(
            f"The policies of {source.path} have hidden layers of {' '.join(map(str, sizes))} "
            "units, not "
            f"{' '.join(map(str, learner.hidden_sizes))}: leave --{explored.agent}.hidden-sizes "
            "away."
        )
    own: dict[str, Any] = {explored.agent: learner}
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
        agent=explored.agent,
        **own,
    )
    settings = resolved(task)
    _refuse_other_spaces(source, policy, settings.spec)
    return settings


def fitting_policy(
    config: FinetuneConfig, source: RunFolder, reward: str, agents: int
) -> tuple[dict[str, np.ndarray], int]:
    """A policy of a run with this reward and so many agents, for its shapes, and how many agents
    are transferred."""
    if reward == "random":
        raise RunError(f"The run {source.path} acted at random: it has no policy to transfer.")
    seeds = agents if config.seeds is None else config.seeds
    if seeds > agents:
        raise ValueError(
            f"--seeds is {seeds}, but the run {source.path} has {agents} agents: take at most "
            "these."
        )
    return source.load_policy(
        int(config.checkpoint) if config.checkpoint.isdecimal() else None
    ), seeds


def refuse_given(config: FinetuneConfig, names: tuple[str, ...], reason: str) -> None:
    """Complain of settings that mean nothing for this kind of run."""
    for field in dataclasses.fields(config):
        if field.name in names and getattr(config, field.name) != field.default:
            raise ValueError(
                f"--{field.name.replace('_', '-')} means nothing here: {reason}. Leave it away."
            )


def _explored(source: RunFolder) -> ExploreConfig:
    try:
        return config_from_json(source.config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{source.path} is not a run of element explore (its config.json has other settings): "
            "give the folder of one."
        ) from error


def _task_options(explored: ExploreConfig, given: tuple[str, ...]) -> tuple[str, ...]:
    """The run's options without the one that exploring adds by itself, under those given."""
    added = f"{HEALTH_OPTION}=false" if explored.reward != "extrinsic" else None
    # complains of what is no NAME=VALUE
    parsed_options(dataclasses.replace(explored, env_options=given))
    return merged_options((pair for pair in explored.env_options if pair != added), given)


def merged_options(ours: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """NAME=VALUE pairs, those given instead of ours of the same name."""
    return tuple({pair.partition("=")[0]: pair for pair in (*ours, *given)}.values())


def _refuse_other_spaces(source: RunFolder, policy: dict[str, np.ndarray], spec: EnvSpec) -> None:
    takes, *_, gives = policy_widths(policy)
    if (takes, gives) != (spec.observation_dim, spec.action_dim):
        raise ValueError(
            f"The policies of {source.path} take {takes} observations and give {gives} actions, "
            f"but {spec.name} with these "
            f"options has {spec.observation_dim} and {spec.action_dim}: use the environment "
            "options of the run."
        )
