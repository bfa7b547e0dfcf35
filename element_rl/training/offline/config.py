"""The settings of a run of `element offline`."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.discrete_cql import DiscreteCQLConfig
from element_rl.agents.iql import IQLConfig
from element_rl.agents.td3_bc import TD3BCConfig
from element_rl.training.offline.algorithms import AlgorithmName, algorithms_help
from element_rl.training.settings import refuse_too_many


@dataclass(frozen=True)
class OfflineConfig:
    """What to learn from, how and for how long. `None` means: as fits the dataset or the run."""

    # Datasets to learn from, all of one environment: Minari ids, or folders of Minari datasets.
    # (required, unless --resume is given)
    datasets: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="DATASET ...")]]
    algorithm: Annotated[AlgorithmName, tyro.conf.arg(help=algorithms_help())] = "cql"
    # Updates of each agent.
    steps: int = 100_000
    # How many agents learn from each dataset, trained at once with all others.
    seeds: int = 1
    # Seed of the first agent; the others count up from it, dataset by dataset.
    seed: int = 0
    # Give each agent that made episodes (their metadata `agent`) learners of its own.
    by_agent: bool = False
    # Folder of the datasets. (default: Minari's own)
    root: str | None = None
    # Environment to evaluate in. (default: the one that the datasets name)
    env: str | None = None
    # Settings of that environment as NAME=VALUE pairs, beside or instead of those that the datasets
    # name. (default: none)
    env_options: tuple[str, ...] = ()
    # Act in the environment while learning; without this only losses are logged.
    evaluate: bool = True
    # Updates between two lines of metrics, each with an evaluation. (default: a 20th of --steps)
    evaluate_every: int | None = None
    # Episodes of each agent in an evaluation, with the deterministic policy.
    episodes: int = 10
    # Returns of a random policy and of an expert, which score 0 and 1.
    # (default: returns are not made into scores)
    score_range: tuple[float, float] | None = None
    # Grey frames [H, W] seen at once, the newest last: with one, nothing tells how things move.
    frame_stack: int = 1
    # Scale observations by mean and standard deviation of what an agent learns from; images never.
    standardise: bool = True
    # Factor of the rewards that are learned from, not of the returns that are reported; iql has one
    # of its own besides (--iql.return-range).
    reward_scale: float = 1.0
    # Updates between two checkpoints. (default: a fifth of --steps)
    checkpoint_every: int | None = None
    # Updates in one call of the device.
    chunk_updates: int = 50
    # Processes that evaluate; 0 evaluates in the command's own process. (default: one per core but
    # one)
    workers: int | None = None
    # Settings of --algorithm cql.
    cql: CQLConfig = field(default_factory=CQLConfig)
    # Settings of --algorithm td3-bc.
    td3_bc: TD3BCConfig = field(default_factory=TD3BCConfig)
    # Settings of --algorithm iql.
    iql: IQLConfig = field(default_factory=IQLConfig)
    # Settings of --algorithm bc.
    bc: CloningConfig = field(default_factory=CloningConfig)
    # Settings of --algorithm cql where actions are choices.
    discrete_cql: DiscreteCQLConfig = field(default_factory=DiscreteCQLConfig)

    def __post_init__(self) -> None:
        if not self.datasets:
            raise ValueError(
                "Name at least one dataset to learn from: a Minari id such as hopper/element-v0."
            )
        if len(set(self.datasets)) < len(self.datasets):
            raise ValueError(
                f"A dataset is named twice in {', '.join(self.datasets)}: use --seeds for several "
                "agents."
            )
        for name in (
            "steps",
            "seeds",
            "episodes",
            "frame_stack",
            "chunk_updates",
            "evaluate_every",
            "checkpoint_every",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        refuse_too_many(self)
        if self.seed < 0 or (self.workers or 0) < 0:
            raise ValueError(
                f"--seed and --workers must not be negative, got {self.seed} and {self.workers}."
            )
        if self.score_range is not None and self.score_range[0] == self.score_range[1]:
            raise ValueError(
                f"--score-range needs two different returns, got {self.score_range[0]} twice."
            )
