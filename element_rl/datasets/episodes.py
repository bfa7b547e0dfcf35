"""Episodes in memory: what a dataset is read into, and what offline agents learn from.

Every observation is stored once. An episode of T steps has T + 1 rows in time order; the last holds
the last observation and nothing else. So row i of a transition is followed by row i + 1, and
`transitions` lists the rows that are one:

    observation[i], action[i], reward[i], terminated[i]  →  observation[i + 1]

for every i in `transitions`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped


@dataclass(frozen=True)
class Episodes:
    """Whole episodes of one environment, one after the other, in R rows."""

    observation: Shaped[np.ndarray, "R ..."]  # float32, or uint8 for images
    # float32 [R, A] on the policy's own scale, [-1, 1]; int32 [R] of a choice; where a dataset is
    # read as it was recorded, in the environment's own units
    action: Shaped[np.ndarray, "R ..."]
    reward: Float32[np.ndarray, " R"]  # of the task
    terminated: Bool[np.ndarray, " R"]  # the task ended with this step
    truncated: Bool[np.ndarray, " R"]  # time ran out, or the recording stopped
    position: Float32[np.ndarray, "R C"] | None  # where the agent was, if the dataset says so
    lengths: Int64[np.ndarray, " E"]  # steps of each episode
    metadata: tuple[Mapping[str, Any], ...]  # of each episode: what its dataset says of it

    def __post_init__(self) -> None:
        rows = int(np.sum(self.lengths + 1))
        fits = len(self.metadata) == len(self.lengths)
        if not fits or any(len(array) != rows for array in self._rows().values()):
            raise ValueError(f"Episodes of {rows:,} rows were given arrays of another length.")

    @property
    def transitions(self) -> Int64[np.ndarray, " N"]:
        """The rows that are steps, which are all but the last of each episode."""
        is_step = np.ones(int(np.sum(self.lengths + 1)), bool)
        is_step[np.cumsum(self.lengths + 1) - 1] = False
        return np.flatnonzero(is_step)

    @property
    def returns(self) -> Float32[np.ndarray, " E"]:
        """The sum of rewards of each episode."""
        starts = np.cumsum(self.lengths + 1) - (self.lengths + 1)
        return (
            np.add.reduceat(self.reward, starts).astype(np.float32)
            if len(starts)
            else np.zeros(0, np.float32)
        )

    def chosen(self, episodes: Sequence[int]) -> "Episodes":
        """Some of the episodes, in the order given."""
        starts = np.cumsum(self.lengths + 1) - (self.lengths + 1)
        parts = [np.arange(starts[e], starts[e] + self.lengths[e] + 1) for e in episodes]
        rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        arrays = {name: array[rows] for name, array in self._rows().items()}
        metadata = tuple(self.metadata[e] for e in episodes)
        return dataclasses.replace(
            self, **arrays, lengths=self.lengths[list(episodes)], metadata=metadata
        )

    @staticmethod
    def joined(parts: Sequence["Episodes"]) -> "Episodes":
        """All episodes of several sets of one environment."""
        if len(parts) == 1:
            return parts[0]  # images are large: no copy
        names = parts[0]._rows().keys()
        if any(part._rows().keys() != names for part in parts):
            raise ValueError("Episodes with positions cannot be joined with episodes without.")
        arrays = {name: np.concatenate([part._rows()[name] for part in parts]) for name in names}
        return dataclasses.replace(
            parts[0],
            **arrays,
            lengths=np.concatenate([part.lengths for part in parts]),
            metadata=tuple(entry for part in parts for entry in part.metadata),
        )

    def _rows(self) -> dict[str, np.ndarray]:
        """The arrays with one entry per row."""
        names = ("observation", "action", "reward", "terminated", "truncated", "position")
        return {name: array for name in names if (array := getattr(self, name)) is not None}
