"""The settings of `element pretrain-encoder`."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from element_rl.acting.cores import own_cores
from element_rl.encoders.frozen import SPREAD
from element_rl.encoders.stdim import NetworkConfig

PROCESSES = 8  # of the paper's table


@dataclass(frozen=True)
class PretrainConfig:
    """What to collect and how to train. `None` means: as fits the machine."""

    # Environment to encode the frames of: mario, Rooms-v0, or any Gymnasium environment with images
    # and Discrete actions. (required, unless --resume is given)
    env: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
    # Environment steps of the random policy; a frame takes 7 kB of disk.
    steps: int = 100_000
    # Seed of the actions, of the split of the episodes and of the network.
    seed: int = 0
    # Processes that step the environment; 0 steps it in the command's own process.
    # (default: one per core, at most 8)
    workers: int | None = None
    # Steps for which the random policy keeps an action; more take it further.
    hold_steps: int = 1
    # Least entropy of an episode's frames, as a share of the most it could be, 0 to 1; episodes
    # that vary less are left out.
    entropy_threshold: float = 0.6
    # Learning rate (Adam).
    learning_rate: float = 3e-4
    # Pairs of consecutive frames in the batch of one update; each is told from the others of its
    # batch.
    batch_size: int = 64
    # Updates between two looks at the validation episodes, at most once through the data.
    epoch_updates: int = 200
    # Most epochs; 20 are 4,000 updates, about five minutes on two cores.
    epochs: int = 20
    # Epochs without a better validation loss after which training ends.
    patience: int = 15
    # Root-mean-square distance of the states of training frames from their mean.
    spread: float = SPREAD
    # Most frames of each split that are used to see what states know of positions.
    probe_frames: int = 20_000
    # Leave the frames on disk when all is done.
    keep_frames: bool = False
    # Settings of the environment as NAME=VALUE pairs. (default: none)
    env_options: tuple[str, ...] = ()
    # Sizes of the encoder.
    network: NetworkConfig = field(default_factory=NetworkConfig)

    def __post_init__(self) -> None:
        if not self.env:
            raise ValueError("Name the environment to encode, such as Rooms-v0.")
        for name in ("steps", "hold_steps", "epoch_updates", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}."
                )
        if self.seed < 0 or (self.workers or 0) < 0:
            raise ValueError(
                f"--seed and --workers must not be negative, got {self.seed} and {self.workers}."
            )
        if self.batch_size < 2:
            raise ValueError(
                f"--batch-size must be at least 2 (pairs are told apart), got {self.batch_size}."
            )
        if self.probe_frames < 100:
            raise ValueError(f"--probe-frames must be at least 100, got {self.probe_frames}.")
        if not 0 <= self.entropy_threshold < 1:
            raise ValueError(
                f"--entropy-threshold is a share from 0 to below 1, got {self.entropy_threshold}."
            )
        if not self.learning_rate > 0 or not self.spread > 0:
            raise ValueError(
                f"--learning-rate and --spread must be above 0, got {self.learning_rate} and "
                f"{self.spread}."
            )


def processes(config: PretrainConfig) -> int:
    """Environment processes of a run on this machine."""
    if config.workers is not None:
        return config.workers
    return min(own_cores(), PROCESSES)
