"""Episodes that have not ended yet, one per environment."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64


class Running(NamedTuple):
    """The transitions of one episode, in time order; `before` and `after` are vectors or frames."""

    ids: Int64[np.ndarray, " T"]
    before: np.ndarray
    action: Float[np.ndarray, "T A"]
    after: np.ndarray
    extrinsic_reward: Float[np.ndarray, " T"]
    terminated: Bool[np.ndarray, " T"]


class RunningEpisodes:
    """What the environments have done since their last reset."""

    def __init__(self, num_envs: int, longest: int) -> None:
        # an episode with so many transitions is cut there, and the rest is another
        self.longest = longest
        self.rows: list[list[tuple[np.generic | np.ndarray, ...]]] = [[] for _ in range(num_envs)]

    def add(
        self,
        ids: Int64[np.ndarray, " E"],
        before: np.ndarray,
        action: Float[np.ndarray, "E A"],
        after: np.ndarray,
        extrinsic_reward: Float[np.ndarray, " E"],
        terminated: Bool[np.ndarray, " E"],
        ended: Bool[np.ndarray, " E"],
    ) -> Iterator[Running]:
        """One step of every environment; the episodes it ended."""
        for env, row in enumerate(
            zip(ids, before, action, after, extrinsic_reward, terminated, strict=True)
        ):
            self.rows[env].append(row)
            if ended[env] or len(self.rows[env]) >= self.longest:
                yield self._taken(env)

    def cut(self) -> Iterator[Running]:
        """All episodes, ended as they stand."""
        for env, rows in enumerate(self.rows):
            if rows:
                yield self._taken(env)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a file."""
        arrays: dict[str, np.ndarray] = {}
        for env, rows in enumerate(self.rows):
            if rows:
                arrays |= {f"{env}/{name}": part for name, part in _stacked(rows)._asdict().items()}
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        for env in range(len(self.rows)):
            parts = [arrays.get(f"{env}/{name}") for name in Running._fields]
            self.rows[env] = [] if parts[0] is None else list(zip(*parts, strict=True))

    def _taken(self, env: int) -> Running:
        rows, self.rows[env] = self.rows[env], []
        return _stacked(rows)


def _stacked(rows: list[tuple[np.generic | np.ndarray, ...]]) -> Running:
    return Running(*(np.stack(part) for part in zip(*rows, strict=True)))
