"""The settings of a collection."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class CollectConfig:
    """What to collect, and from which run."""

    run: tyro.conf.Positional[Path]  # a folder of `element explore`, `element on-policy` or `element mario`
    dataset: str  # Minari id of the dataset to make, e.g. hopper/element-v0
    steps: int | None = None  # per seed, shared evenly by the checkpoints; with --from-replay: the newest so many (all)
    checkpoints: tuple[int, ...] = ()  # steps of the checkpoints to act with (all that the run planned, and its last)
    from_replay: bool = False  # take the replay of the run's newest checkpoint instead of acting
    deterministic: bool = False  # act with the means (of choices: the likeliest) instead of sampling
    seed: int = 0  # of the noise and of the episodes
    # NAME=VALUE pairs for the environment, beside those of the run. Falling ends an episode as the task has it, also where the
    # run trained without that; terminate_when_unhealthy=false has it not do so
    env_options: tuple[str, ...] = ()
    entropy: bool = True  # measure the entropy of every episode (0.1 s for one of 1000 steps)
    export: Literal["npz", "safetensors", "parquet"] | None = (
        None  # also write flat arrays, for tools that do not read Minari
    )
    out: Path | None = None  # the folder of all datasets (Minari's own)
    workers: int | None = None  # environment processes (one per seed, and on screens always so); 0: this process

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}.")
