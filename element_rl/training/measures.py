"""What is measured while agents train: coverage, episodes, and what is logged of them.

    coverage            unique cells that the agent has been in, since the beginning: of the map,
                        or, where there is none, of what the environment shows (`envs.cells`)
    episodic_entropy    `evaluation_entropy` of the agent's latest episode, in bits
    entropy_saturation  that entropy over log2 T, its ceiling for an episode of T states
    episode_length, extrinsic_return     means over the episodes that ended since the last line
    best_return, best_length    the highest task return of an episode so far and its length; of
                                equal ones the shortest

Everything is plain NumPy on the host and part of a checkpoint, so that a resumed run logs what the
undisturbed one does. What chunks and rollouts are measured by besides is in `off_policy.measures`
and `on_policy.measures`.
"""

import contextlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from element_rl.envs.cells import unpacked
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import best_episodes
from element_rl.runs.visits import Bounded, Stored, Unbounded
from element_rl.storage.files import FileError

BETWEEN_MAPS = 2.0  # seconds
_WINDOW = ("window_episodes", "window_length", "window_return")
_BEST = ("best_return", "best_length")


class Measures:
    """Running measurements of P agents; `cells` along both axes of a map with bounds. Where it has
    none, cells have `grown_axes` indices (`envs.cells`); with neither nothing is counted."""

    def __init__(self, num_agents: int, cells: tuple[int, int] | None, grown_axes: int = 0) -> None:
        self.mapped = cells is not None or grown_axes > 0
        self._visits = (
            Unbounded(num_agents, grown_axes, unpacked)
            if grown_axes
            else Bounded(num_agents, cells or (0, 0))
        )
        self.episodes = np.zeros(num_agents, np.int64)
        # of any episode so far, and the length of that episode
        self.best_return = np.full(num_agents, -np.inf)
        self.best_length = np.zeros(num_agents, np.int64)
        self.window_episodes = np.zeros(num_agents)  # since the last line, as the two below
        self.window_length = np.zeros(num_agents)
        self.window_return = np.zeros(num_agents)

    @classmethod
    def of(cls, spec: EnvSpec, num_agents: int) -> "Measures":
        """Of agents in an environment."""
        bounded = spec.coverage_bounds is not None
        return cls(num_agents, spec.coverage_cells if bounded else None, spec.grown_axes)

    @property
    def visits(self) -> Stored:
        """Visits per cell, as they are stored in files."""
        return self._visits.stored

    def visit(self, agents: int | Int[np.ndarray, " N"], cells: Int[np.ndarray, " N"]) -> None:
        """Count that agents have been in these cells."""
        self._visits.visit(agents, cells)

    def end_episode(self, agent: int, task_return: float, length: int) -> None:
        """Count an episode that has ended."""
        self.episodes[agent] += 1
        self.window_episodes[agent] += 1
        self.window_length[agent] += length
        self.window_return[agent] += task_return
        if (task_return, -length) > (self.best_return[agent], -self.best_length[agent]):
            self.best_return[agent], self.best_length[agent] = task_return, length

    def coverage(self) -> Int[np.ndarray, " P"]:
        """Unique cells visited by each agent."""
        return np.array([self._visits.covered(agent) for agent in range(len(self.episodes))])

    def line(self, agent: int, entropy: float | np.floating, length: int) -> dict[str, Any]:
        """What is logged of an agent, and a fresh window; `entropy` is that of its latest episode,
        which has `length` states (0: there was none)."""
        ended = self.window_episodes[agent]
        line = {
            "episodes": self.episodes[agent],
            "episode_length": self.window_length[agent] / ended if ended else np.nan,
            "extrinsic_return": self.window_return[agent] / ended if ended else np.nan,
            "episodic_entropy": entropy if length else np.nan,
            "entropy_saturation": entropy / np.log2(length) if length > 1 else np.nan,
        }
        for name in _WINDOW:
            getattr(self, name)[agent] = 0.0
        return line | ({"coverage": self._visits.covered(agent)} if self.mapped else {})

    def totals(self) -> dict[str, list[Any]]:
        """Coverage and the best episode so far, of each agent."""
        coverage = self.coverage().tolist() if self.mapped else [None] * len(self.episodes)
        best = best_episodes(self.best_return.tolist(), self.best_length.tolist())
        return {"coverage": coverage, **best}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        own = {name: getattr(self, name) for name in ("episodes", *_WINDOW, *_BEST)}
        return self._visits.to_arrays() | own

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`, among other arrays."""
        for name in ("episodes", *_WINDOW):
            getattr(self, name)[...] = arrays[name]
        if self.mapped:
            self._visits.restore(arrays)
        # older checkpoints do not have them: then the best so far is of what follows
        for name in _BEST:
            if name in arrays:
                getattr(self, name)[...] = arrays[name]


class LatestMap:
    """The map of visits in a run's folder, as `element watch` shows it between two checkpoints."""

    def __init__(self, run: RunFolder | None) -> None:
        self._run, self._written = run, -math.inf

    def show(self, step: int, counts: Measures) -> None:
        """Write the visits so far, unless that was done a moment ago. A picture that cannot be
        written is no reason to end a run."""
        now = time.monotonic()
        if self._run is None or not counts.mapped or now < self._written + BETWEEN_MAPS:
            return
        self._written = now
        with contextlib.suppress(FileError):
            self._run.write_latest_visits(step, counts.visits)


class MetricsSink:
    """Takes the metrics of a run: into its folder, or into `rows` where there is none."""

    def __init__(self, run: RunFolder | None, columns: Collection[str] | None = None) -> None:
        self._run, self._columns = run, columns
        self.rows: list[dict[str, Any]] = []
        self.latest: dict[str, float] = {}  # of the last step, averaged over the agents

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Lines of agents, in the order of their steps; names that are no `columns` are left
        out, where those are given."""
        last = [row for row in rows if row["step"] == rows[-1]["step"]]
        names = set(rows[-1]) - {"step", "seed"}
        self.latest = {
            name: float(np.mean([row.get(name, np.nan) for row in last])) for name in names
        }
        columns = self._columns
        kept = [
            {name: value for name, value in row.items() if columns is None or name in columns}
            for row in rows
        ]
        if self._run is not None:
            self._run.append_metrics(kept)
        else:
            self.rows += kept

    def logged(self) -> dict[str, np.ndarray]:
        """All lines so far, by column."""
        if self._run is not None:
            return self._run.read_metrics()
        names = self.rows[0]
        return {
            name: np.array([row.get(name, np.nan) for row in self.rows], np.float64)
            for name in names
        }
