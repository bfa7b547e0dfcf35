"""The settings of fine-tuning."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from element_rl.agents.a3c import A3CConfig
from element_rl.agents.dqn import DQNConfig
from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.training.settings import refuse_too_many

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
    # The learner of runs of DQN; None: as in the run.
    dqn: Annotated[DQNConfig | None, tyro.conf.Suppress] = None
    # The learner on screens; None: as in the run.
    a3c: Annotated[A3CConfig | None, tyro.conf.Suppress] = None

    def __post_init__(self) -> None:
        for name in ("steps", "candidates", "episodes", "seeds", "replay_size", "chunk_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        refuse_too_many(self)
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
