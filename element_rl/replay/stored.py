"""The episodes in the replay of a checkpoint."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def stored_episodes(
    running_start: Int[np.ndarray, " L"],
    lengths: Sequence[Int[np.ndarray, " _"]],
    agent: int,
    num_envs: int = 1,
    steps: int | None = None,
) -> list[tuple[int, int]]:
    """First slot and length of the complete episodes of an agent in a checkpoint, each
    environment's oldest first.

    `steps`: the newest only, up to so many steps of all environments. A first slot may be negative:
    it counts from the end of the ring. The newest episode of an environment ends where the running
    one begins, and an episode has one record more than transitions.
    """
    found = []
    for env in range(num_envs):
        own = lengths[env]
        starts = running_start[agent * num_envs + env] - np.cumsum((own + 1)[::-1])[::-1]
        newest = np.cumsum(own[::-1])[::-1] <= (
            steps // num_envs if steps else np.iinfo(np.int64).max
        )
        found += [
            (start * num_envs + env, length)
            for start, length in zip(starts[newest].tolist(), own[newest].tolist(), strict=True)
        ]
    return found
