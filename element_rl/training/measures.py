"""What is measured while agents train: coverage, episodes, and what is logged of them.

    coverage            unique cells that the agent has been in, since the beginning
    episodic_entropy    `evaluation_entropy` of the agent's latest episode, in bits
    entropy_saturation  that entropy over log2 T, its ceiling for an episode of T states
    episode_length, extrinsic_return     means over the episodes that ended since the last line
    best_return, best_length    the highest task return of an episode so far and its length; of
                                equal ones the shortest

Everything is plain NumPy on the host and part of a checkpoint, so that a resumed run logs what the
undisturbed one does. What chunks and rollouts are measured by besides is in `off_policy.measures`
and `on_policy.measures`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import best_episodes

_WINDOW = ("window_episodes", "window_length", "window_return")
_BEST = ("best_return", "best_length")


class Measures:
    """Running measurements of P agents; `cells` along both axes of the map, None without one."""

    def __init__(self, num_agents: int, cells: tuple[int, int] | None) -> None:
        self.mapped = cells is not None
        self.visits = np.zeros((num_agents, *(cells or (0, 0))), np.int32)
        self.episodes = np.zeros(num_agents, np.int64)
        # of any episode so far, and the length of that episode
        self.best_return = np.full(num_agents, -np.inf)
        self.best_length = np.zeros(num_agents, np.int64)
        self.window_episodes = np.zeros(num_agents)  # since the last line, as the two below
        self.window_length = np.zeros(num_agents)
        self.window_return = np.zeros(num_agents)

    def visit(self, agents: int | Int[np.ndarray, " N"], cells: Int[np.ndarray, " N"]) -> None:
        """Count that agents have been in these cells of the map."""
        flat = self.visits.reshape(-1)  # a view
        np.add.at(flat, agents * self.visits[0].size + cells, 1)

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
        return np.count_nonzero(self.visits, axis=(1, 2))

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
        return line | ({"coverage": np.count_nonzero(self.visits[agent])} if self.mapped else {})

    def totals(self) -> dict[str, list[Any]]:
        """Coverage and the best episode so far, of each agent."""
        coverage = self.coverage().tolist() if self.mapped else [None] * len(self.visits)
        best = best_episodes(self.best_return.tolist(), self.best_length.tolist())
        return {"coverage": coverage, **best}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        return {name: getattr(self, name) for name in ("visits", "episodes", *_WINDOW, *_BEST)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`, among other arrays."""
        for name in ("episodes", *_WINDOW, *(("visits",) if self.mapped else ())):
            getattr(self, name)[...] = arrays[name]
        # older checkpoints do not have them: then the best so far is of what follows
        for name in _BEST:
            if name in arrays:
                getattr(self, name)[...] = arrays[name]


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
