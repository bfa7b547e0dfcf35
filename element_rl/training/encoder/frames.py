"""Frames of a random policy on disk, how varied an episode is, and which frames are learned from.

    frames.bin        uint8 [N, H, W], episode after episode; memory-mapped, never read whole
    positions.bin     float32 [N, 2]
    episodes.jsonl    a line per episode, written after its frames: what is listed is complete

The entropy of an episode is the Shannon entropy of its frames as symbols (16 grey levels of 12 × 12
blocks: what moves by a pixel or flickers is the same), divided by the most that as many frames can
have, log2 of their number. An agent that stands at a wall all the time has about 0, one that never
sees the same again 1. No label is used.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64, UInt8

from element_rl.storage.files import FileError, append

FRAMES, POSITIONS, EPISODES = "frames.bin", "positions.bin", "episodes.jsonl"
BLOCKS, LEVELS = 12, 16  # of the symbols whose entropy is taken
VALIDATION, HELD_OUT = (
    0.1,
    0.2,
)  # shares of the episodes, and at least one; the rest is learned from
NOT_KEPT = -1  # the start of an episode whose frames were left out


@dataclass(frozen=True)
class StoredEpisode:
    """A line of episodes.jsonl."""

    number: int
    steps: int
    entropy: float
    task_return: float
    start: int  # of its steps + 1 frames in frames.bin; NOT_KEPT where it is not there

    @property
    def kept(self) -> bool:
        return self.start != NOT_KEPT


class FrameStore:
    """The frames in a folder, to which episodes are added one after the other."""

    def __init__(self, folder: Path, frame_shape: tuple[int, int]) -> None:
        self.folder = folder
        self.frame_shape = frame_shape
        self.episodes: list[StoredEpisode] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._recover()

    @property
    def steps(self) -> int:
        """Environment steps of all episodes, also of those that were left out."""
        return sum(episode.steps for episode in self.episodes)

    @property
    def kept_frames(self) -> int:
        return sum(episode.steps + 1 for episode in self.episodes if episode.kept)

    def add(
        self,
        frames: UInt8[np.ndarray, "N H W"],
        positions: Float[np.ndarray, "N 2"],
        entropy: float,
        task_return: float,
        keep: bool,
    ) -> None:
        """The next episode; complete on return."""
        start = self.kept_frames if keep else NOT_KEPT
        if keep:
            append(self.folder / FRAMES, np.ascontiguousarray(frames).tobytes())
            append(self.folder / POSITIONS, np.ascontiguousarray(positions, np.float32).tobytes())
        record = StoredEpisode(len(self.episodes), len(frames) - 1, entropy, task_return, start)
        append(self.folder / EPISODES, (json.dumps(asdict(record)) + "\n").encode())
        self.episodes.append(record)

    def frames(self) -> UInt8[np.ndarray, "N H W"]:
        """All kept frames, mapped from the disk."""
        shape = (self.kept_frames, *self.frame_shape)
        return (
            np.memmap(self.folder / FRAMES, np.uint8, "r", shape=shape)
            if shape[0]
            else np.zeros(shape, np.uint8)
        )

    def positions(self) -> Float[np.ndarray, "N 2"]:
        """Where the agent was at each of them."""
        if not self.kept_frames:
            return np.zeros((0, 2), np.float32)
        return np.fromfile(self.folder / POSITIONS, np.float32, 2 * self.kept_frames).reshape(-1, 2)

    def discard(self) -> None:
        """Removes the frames; the list of episodes stays."""
        (self.folder / FRAMES).unlink(missing_ok=True)

    def _recover(self) -> None:
        """Takes up what is complete and cuts off what a kill left half done."""
        path = self.folder / EPISODES
        if not path.exists():
            self._cut(0)
            return
        complete = path.read_bytes().rpartition(b"\n")[0]
        try:
            self.episodes = [StoredEpisode(**json.loads(line)) for line in complete.splitlines()]
        except (ValueError, TypeError) as error:
            raise FileError(
                f"{path} is damaged ({error}): remove the folder {self.folder} to collect anew."
            ) from error
        if len(complete) + 1 < path.stat().st_size:
            with path.open("rb+") as file:
                file.truncate(len(complete) + 1 if complete else 0)
        self._cut(self.kept_frames)

    def _cut(self, frames: int) -> None:
        pixels = int(np.prod(self.frame_shape))
        for name, size in ((FRAMES, frames * pixels), (POSITIONS, frames * 2 * 4)):
            path = self.folder / name
            found = path.stat().st_size if path.exists() else 0
            if found < size:
                raise FileError(
                    f"{path} has {found:,} bytes where {size:,} are listed: remove the folder "
                    f"{self.folder} to collect anew."
                )
            if found > size:
                with path.open("rb+") as file:
                    file.truncate(size)


def frame_entropy(frames: UInt8[np.ndarray, "N H W"]) -> float:
    """Entropy of the frames of an episode as a share of the most it can be, 0 to 1; see the head of
    this file."""
    if len(frames) < 2:
        return 0.0
    counts = np.array(list(Counter(_symbols(frames)).values()), np.float64)
    shares = counts / counts.sum()
    # no minus before zero
    return float(-(shares * np.log2(shares)).sum() / np.log2(len(frames))) + 0.0


def _symbols(frames: UInt8[np.ndarray, "N H W"]) -> list[bytes]:
    """One per frame: the mean of each block, in few levels."""
    count, height, width = frames.shape
    rows, columns = min(BLOCKS, height), min(BLOCKS, width)
    cut = frames[:, : height // rows * rows, : width // columns * columns]
    blocks = cut.reshape(count, rows, height // rows, columns, width // columns).mean(axis=(2, 4))
    return [block.tobytes() for block in (blocks * LEVELS / 256).astype(np.uint8)]


class Splits(NamedTuple):
    """The episodes that are learned from, that decide when to stop, and that are held out.

    Whole episodes are split: neighbouring frames are nearly the same, and would carry what was
    learned into what judges it.
    """

    training: tuple[StoredEpisode, ...]
    validation: tuple[StoredEpisode, ...]
    held_out: tuple[StoredEpisode, ...]


def split_episodes(
    episodes: Sequence[StoredEpisode], seed: int, batch_size: int, threshold: float
) -> Splits:
    """The kept episodes in three parts; a ValueError where they are too few."""
    kept = [episode for episode in episodes if episode.kept]
    if len(kept) < 3:
        most = max((episode.entropy for episode in episodes), default=0.0)
        raise ValueError(
            f"{len(kept)} of {len(episodes)} episodes vary enough to be kept and three are needed "
            f"(the highest entropy is {most:.2f}, --entropy-threshold {threshold}): collect more "
            "--steps, or lower the threshold."
        )
    order = np.random.default_rng([seed, len(kept)]).permutation(len(kept))
    validation, held_out = (max(1, round(s * len(kept))) for s in (VALIDATION, HELD_OUT))
    ends = [len(kept) - validation - held_out, len(kept) - held_out]
    splits = Splits(*(tuple(kept[i] for i in sorted(part)) for part in np.split(order, ends)))
    for name, part in splits._asdict().items():
        if (pairs := sum(episode.steps for episode in part)) < batch_size:
            raise ValueError(
                f"There are {pairs} pairs of frames in the {name.replace('_', '-')} episodes and a "
                f"batch needs {batch_size}: collect more --steps, or lower --batch-size."
            )
    return splits


def pair_indices(episodes: Sequence[StoredEpisode]) -> Int64[np.ndarray, " N"]:
    """The first frame of every pair of consecutive frames; none spans two episodes."""
    return np.concatenate(
        [np.arange(episode.start, episode.start + episode.steps) for episode in episodes]
    )


def frame_indices(
    episodes: Sequence[StoredEpisode], most: int, seed: int
) -> Int64[np.ndarray, " N"]:
    """All frames of the episodes, or `most` of them drawn without favour."""
    every = np.concatenate(
        [np.arange(episode.start, episode.start + episode.steps + 1) for episode in episodes]
    )
    if len(every) <= most:
        return every
    return np.sort(np.random.default_rng(seed).choice(every, most, replace=False))


def batches(
    frames: UInt8[np.ndarray, "N H W"],
    pairs: Int64[np.ndarray, " P"],
    batch_size: int,
    most: int,
    seed: Sequence[int],
) -> Iterator[tuple[UInt8[np.ndarray, "B H W"], UInt8[np.ndarray, "B H W"]]]:
    """Full batches of pairs in a random order, each pair at most once, `most` batches at most."""
    order = np.random.default_rng(list(seed)).permutation(pairs)
    for start in range(0, min(len(order) // batch_size, most) * batch_size, batch_size):
        chosen = np.sort(order[start : start + batch_size])  # in the order of the disk
        yield frames[chosen], frames[chosen + 1]
