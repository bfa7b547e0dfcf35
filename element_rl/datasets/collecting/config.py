"""The settings of a collection."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class CollectConfig:
    """What to collect, and from which run."""

    # Folder of the run whose policies act, made by element explore, on-policy or mario.
    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    # Minari id of the dataset to make, e.g. hopper/element-v0.
    dataset: str
    # Steps of each seed, shared evenly by the checkpoints; with --from-replay the newest so many.
    # (default: has to be given; with --from-replay all)
    steps: int | None = None
    # Steps of the checkpoints to act with. (default: all that the run planned, and its last)
    checkpoints: tuple[int, ...] = ()
    # Take the replay of the run's newest checkpoint instead of acting.
    from_replay: bool = False
    # Act with the policy's mean or likeliest action instead of sampling.
    deterministic: bool = False
    # Seed of the sampled actions and of the episodes.
    seed: int = 0
    # Settings of the environment as NAME=VALUE pairs, beside those of the run. Falling ends an
    # episode as the task has it, also where the run trained without that;
    # terminate_when_unhealthy=false has it not do so. (default: none)
    env_options: tuple[str, ...] = ()
    # Measure the entropy of every episode (0.1 s for one of 1000 steps).
    entropy: bool = True
    # Write flat arrays too, for tools that do not read Minari. (default: no such file)
    export: Literal["npz", "safetensors", "parquet"] | None = None
    # Folder of all datasets. (default: Minari's own)
    out: Path | None = None
    # Processes that step the environments, on screens always one per seed; 0 steps them in the
    # command's own process. (default: one per seed)
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}.")
