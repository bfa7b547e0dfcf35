"""What the policies of checkpoints did, kept on the disk part by part until all of it is there.

A part is a file of episodes, with what is needed to go on after them. It is written as a whole, so
a collection that was killed goes on after its last part, and the dataset is the same. How agents
act differs: `datasets.collecting.chunks` and `datasets.collecting.rollouts` are the two ways.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped

from element_rl.storage.files import read_arrays, write_arrays

FORMAT = 2  # of a part; an unfinished collection of another format is refused
STRIDE = 1_000_000  # more chunks, rollouts and episodes than a checkpoint contributes
_PER_EPISODE = ("agent", "seed", "terminated", "truncated", "task_return", "entropy")
_PER_STEP = ("actions", "rewards")
_PER_OBSERVATION = ("observations", "positions")  # one more than steps


class Contribution(NamedTuple):
    """What one checkpoint contributes to a dataset."""

    checkpoint: int  # its step
    steps: int  # per agent


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode of T steps that ended, or that the end of a contribution cut off; M = T + 1."""

    agent: int
    seed: int | None  # of its reset; None where it is not known
    observations: Shaped[np.ndarray, "M ..."]
    actions: Shaped[np.ndarray, "T ..."]  # as the policy gave them
    rewards: Float[np.ndarray, " T"]
    positions: Float[np.ndarray, "M C"]
    terminated: bool
    truncated: bool
    task_return: float
    entropy: float  # NaN where it was not measured


Measure = Callable[[int, np.ndarray, np.ndarray], float]
"""The entropy of an episode, of its agent, observations and positions"""
AfterActing = Callable[[int, list[FinishedEpisode]], None]
"""Is told how many steps the agents took together, and which episodes ended with them"""


@runtime_checkable
class Collection(Protocol):
    """A collection in a folder."""

    @property
    def settings(self) -> dict[str, Any]:
        """What, beside the command's own settings, decides what its parts hold."""

    def steps_done(self) -> int:
        """Steps on the disk, of all agents together."""

    def act(self, measure: Measure, after: AfterActing, stop: Callable[[], bool]) -> None:
        """Makes the parts that are missing. Raises `Interrupted` when told to stop."""

    def parts(self) -> Iterator[tuple[Contribution, Path]]:
        """All parts in the order of the dataset, when nothing is missing."""


def write_part(
    path: Path, episodes: Sequence[FinishedEpisode], to_go_on: Mapping[str, np.ndarray]
) -> None:
    """Episodes, and arrays that the part after this one begins with."""
    arrays = dict(to_go_on)
    arrays["lengths"] = np.array([len(episode.actions) for episode in episodes], np.int64)
    for name in _PER_EPISODE:
        arrays[name] = np.array([getattr(episode, name) for episode in episodes])
    if episodes:
        for name in (*_PER_STEP, *_PER_OBSERVATION):
            arrays[name] = np.concatenate([getattr(episode, name) for episode in episodes])
        if arrays["observations"].dtype == np.uint8:  # frames are large, and alike
            frames = arrays.pop("observations")
            arrays["frame_shape"] = np.array(frames.shape[1:])
            arrays["frames"] = np.frombuffer(zlib.compress(frames.tobytes(), 1), np.uint8)
    write_arrays(path, arrays)


def read_part(path: Path) -> Iterator[FinishedEpisode]:
    """The episodes of a part, in order."""
    arrays, _ = read_arrays(path)
    if "frames" in arrays:
        pixels = np.frombuffer(zlib.decompress(arrays["frames"].tobytes()), np.uint8)
        arrays["observations"] = pixels.reshape(-1, *arrays["frame_shape"])
    step = 0
    for index, length in enumerate(arrays["lengths"].tolist()):
        row = step + index  # an episode has one observation more than steps
        fields: dict[str, Any] = {name: arrays[name][index].item() for name in _PER_EPISODE}
        fields |= {name: arrays[name][step : step + length] for name in _PER_STEP}
        fields |= {name: arrays[name][row : row + length + 1] for name in _PER_OBSERVATION}
        yield FinishedEpisode(**fields)
        step += length
