"""Which episodes are learned from, which decide when to stop, and which are held out; and the pairs
of frames in them.

Whole episodes are split: neighbouring frames are nearly the same, and would carry what was learned
into what judges it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from element_rl.training.encoder.frames import EpisodeRecord

SHARES = {
    "validation": 0.1,
    "held_out": 0.2,
}  # of the episodes, and at least one; the rest is for training


@dataclass(frozen=True)
class Splits:
    """Episodes of each part."""

    training: tuple[EpisodeRecord, ...]
    validation: tuple[EpisodeRecord, ...]
    held_out: tuple[EpisodeRecord, ...]


def split_episodes(
    episodes: Sequence[EpisodeRecord], seed: int, batch_size: int, threshold: float
) -> Splits:
    """The kept episodes in three parts; a ValueError where they are too few."""
    kept = [episode for episode in episodes if episode.kept]
    if len(kept) < 3:
        most = max((episode.entropy for episode in episodes), default=0.0)
        raise ValueError(
            f"{len(kept)} of {len(episodes)} episodes vary enough to be kept and three are needed "
            "(the highest entropy is "
            f"{most:.2f}, --entropy-threshold {threshold}): collect more --steps, or lower the "
            "threshold."
        )
    order = np.random.default_rng([seed, len(kept)]).permutation(len(kept))
    counts = [max(1, round(share * len(kept))) for share in SHARES.values()]
    ends = [len(kept) - sum(counts), len(kept) - counts[1]]
    parts = [tuple(kept[i] for i in sorted(part)) for part in np.split(order, ends)]
    splits = Splits(*parts)
    for name in ("training", "validation", "held_out"):
        if (pairs := sum(episode.steps for episode in getattr(splits, name))) < batch_size:
            raise ValueError(
                f"There are {pairs} pairs of frames in the {name.replace('_', '-')} episodes and a "
                "batch needs "
                f"{batch_size}: collect more --steps, or lower --batch-size."
            )
    return splits


def pair_indices(episodes: Sequence[EpisodeRecord]) -> Int64[np.ndarray, " N"]:
    """The first frame of every pair of consecutive frames; none spans two episodes."""
    return np.concatenate(
        [np.arange(episode.start, episode.start + episode.steps) for episode in episodes]
    )


def frame_indices(
    episodes: Sequence[EpisodeRecord], most: int, seed: int
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
