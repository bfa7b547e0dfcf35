"""The settings of `element pretrain-encoder`."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from element_rl.cores import own_cores
from element_rl.encoders.frozen import SPREAD
from element_rl.encoders.stdim import NetworkConfig

PROCESSES = 8  # of the paper's table


@dataclass(frozen=True)
class PretrainConfig:
    """What to collect and how to train. `None` means: as fits the machine."""

    # mario, Rooms-v0, or any Gymnasium environment with images and Discrete actions
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    steps: int = 100_000  # environment steps of the random policy; a frame takes 7 kB of disk
    seed: int = 0  # of the actions, the split of the episodes and the network
    workers: int | None = None  # environment processes (one per core, at most 8); 0 steps in this process
    hold_steps: int = 1  # steps for which the random policy keeps an action; more take it further
    entropy_threshold: float = 0.6  # episodes whose frames vary less are left out: share of the most they could, 0 to 1
    learning_rate: float = 3e-4  # of Adam
    batch_size: int = 64  # pairs of consecutive frames; each is told from the others of its batch
    epoch_updates: int = 200  # updates between two looks at the validation episodes, at most once through the data
    epochs: int = 20  # at most; 4,000 updates, about five minutes on two cores
    patience: int = 15  # epochs without a better validation loss after which training ends
    spread: float = SPREAD  # root-mean-square distance of the states of training frames from their mean
    probe_frames: int = 20_000  # at most as many, of each split, are used to see what states know of positions
    keep_frames: bool = False  # leave the frames on disk when all is done
    env_options: tuple[str, ...] = ()  # NAME=VALUE pairs for the environment
    network: NetworkConfig = field(default_factory=NetworkConfig)  # sizes of the encoder

    def __post_init__(self) -> None:
        for name in ("steps", "hold_steps", "epoch_updates", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}.")
        if self.seed < 0 or (self.workers or 0) < 0:
            raise ValueError(f"--seed and --workers must not be negative, got {self.seed} and {self.workers}.")
        if self.batch_size < 2:
            raise ValueError(f"--batch-size must be at least 2 (pairs are told apart), got {self.batch_size}.")
        if self.probe_frames < 100:
            raise ValueError(f"--probe-frames must be at least 100, got {self.probe_frames}.")
        if not 0 <= self.entropy_threshold < 1:
            raise ValueError(f"--entropy-threshold is a share from 0 to below 1, got {self.entropy_threshold}.")
        if not self.learning_rate > 0 or not self.spread > 0:
            raise ValueError(
                f"--learning-rate and --spread must be above 0, got {self.learning_rate} and {self.spread}."
            )


def processes(config: PretrainConfig) -> int:
    """Environment processes of a run on this machine."""
    if config.workers is not None:
        return config.workers
    return min(own_cores(), PROCESSES)
