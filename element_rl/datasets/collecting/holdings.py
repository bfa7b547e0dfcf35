"""What a dataset holds of its environment: cells of the coverage map, and steps upright.

    coverage         cells of the map in which any position of any episode is
    upright_share    steps after which the robot is within the height, and the angle, that Gymnasium
                     calls healthy; in a task where a fall ends an episode only last steps are not

Both are in the metadata of the dataset, under `element_rl`, and on its card. An environment without
a map has no coverage, one that cannot fall no upright share.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from element_rl.datasets.minari_writing import EpisodeRecord
from element_rl.envs.spec import EnvSpec, coverage_cell

# Columns of the observation of Gymnasium's robots: it begins with the height, and of those that
# live in a plane the torso's angle follows.
HEIGHT, ANGLE = 0, 1


class Holdings:
    """Counts while episodes go by."""

    def __init__(self, spec: EnvSpec, ranges: Mapping[int, tuple[float, float]]) -> None:
        """`ranges` are those of the columns of the observation in which the robot is upright."""
        self._spec, self._ranges = spec, ranges
        self._cells: set[int] = set()
        self._steps = self._upright = 0

    def counted(
        self, episodes: Iterable[EpisodeRecord], into: MutableMapping[str, Any]
    ) -> Iterator[EpisodeRecord]:
        """The same episodes, each counted before it is handed on; after the last the facts are
        written down."""
        for episode in episodes:
            self.observe(episode)
            yield episode
        into.update(self.facts())

    def observe(self, episode: EpisodeRecord) -> None:
        positions = episode.infos.get("position")
        if positions is not None and self._spec.coverage_bounds is not None:
            self._cells |= set(np.unique(coverage_cell(self._spec, np.asarray(positions))).tolist())
        self._steps += len(episode.rewards)
        self._upright += int(upright(np.asarray(episode.observations[1:]), self._ranges).sum())

    def facts(self) -> dict[str, Any]:
        """What there is to say of the dataset."""
        facts: dict[str, Any] = {}
        if self._cells:
            facts["coverage"] = len(self._cells)
        if self._ranges and self._steps:
            facts["upright_share"] = self._upright / self._steps
        return facts


def upright(
    observations: Float[np.ndarray, "T O"] | np.ndarray, ranges: Mapping[int, tuple[float, float]]
) -> Bool[np.ndarray, " T"]:
    """Where the columns are within their ranges."""
    within = np.ones(len(observations), bool)
    for column, (low, high) in ranges.items():
        within &= (low < observations[:, column]) & (observations[:, column] < high)
    return within


def healthy_ranges(
    env: gymnasium.Env, options: Mapping[str, Any]
) -> dict[int, tuple[float, float]]:
    """The ranges in which a robot is healthy, by columns of its observation; none of what cannot
    fall, or shows its position before its height."""
    robot = env.unwrapped
    named = {HEIGHT: "_healthy_z_range", ANGLE: "_healthy_angle_range"}
    if options.get("exclude_current_positions_from_observation") is False:
        return {}
    ranges = {}
    for column, name in named.items():
        given = getattr(robot, name, None)
        if given is not None:
            ranges[column] = (float(given[0]), float(given[1]))
    return ranges
