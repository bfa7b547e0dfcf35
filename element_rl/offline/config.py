"""The settings of a run of `element offline`."""

from dataclasses import dataclass, field
from typing import Literal

import tyro

from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.discrete_cql import DiscreteCQLConfig


@dataclass(frozen=True)
class OfflineConfig:
    """What to learn from, how and for how long. `None` means: as fits the dataset or the run."""

    datasets: tyro.conf.Positional[tuple[str, ...]]  # Minari ids, or folders of Minari datasets, of one environment
    algorithm: Literal["cql", "bc"] = "cql"  # conservative Q-learning (discrete where actions are choices) or cloning
    steps: int = 100_000  # updates per agent
    seeds: int = 1  # agents per dataset, trained at once with all others
    seed: int = 0  # of the first agent; the others count up from it, dataset by dataset
    by_agent: bool = False  # each agent that made episodes (their metadata `agent`) gets learners of its own
    root: str | None = None  # folder of the datasets (Minari's own)
    env: str | None = None  # environment to evaluate in (the one the datasets name)
    env_options: tuple[str, ...] = ()  # NAME=VALUE pairs for it, beside or instead of those the datasets name
    evaluate: bool = True  # act in the environment while learning; without this only losses are logged
    evaluate_every: int | None = None  # updates between two lines of metrics, with evaluation (a 20th of the steps)
    episodes: int = 10  # per agent and evaluation, with the deterministic policy
    score_range: tuple[float, float] | None = None  # returns of a random policy and of an expert: scores 0 and 1
    frame_stack: int = 1  # grey frames [H, W] seen at once, the newest last: with one, nothing tells how things move
    standardise: bool = True  # observations by mean and standard deviation of what an agent learns from; images never
    reward_scale: float = 1.0  # multiplies the rewards that are learned from, not the returns that are reported
    checkpoint_every: int | None = None  # updates between two checkpoints (a fifth of the steps)
    chunk_updates: int = 50  # updates per call of the device
    workers: int | None = None  # evaluation processes (one per core but one); 0 evaluates in this process
    cql: CQLConfig = field(default_factory=CQLConfig)  # settings of --algorithm cql
    bc: CloningConfig = field(default_factory=CloningConfig)  # settings of --algorithm bc
    discrete_cql: DiscreteCQLConfig = field(default_factory=DiscreteCQLConfig)  # of cql where actions are choices

    def __post_init__(self) -> None:
        if not self.datasets:
            raise ValueError("Name at least one dataset to learn from: a Minari id such as hopper/element-v0.")
        if len(set(self.datasets)) < len(self.datasets):
            raise ValueError(f"A dataset is named twice in {', '.join(self.datasets)}: use --seeds for several agents.")
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
        if self.seed < 0 or (self.workers or 0) < 0:
            raise ValueError(f"--seed and --workers must not be negative, got {self.seed} and {self.workers}.")
        if self.score_range is not None and self.score_range[0] == self.score_range[1]:
            raise ValueError(f"--score-range needs two different returns, got {self.score_range[0]} twice.")
