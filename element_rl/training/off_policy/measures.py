"""What is measured while a population trains: coverage, episodes, and the means between two log
lines.

    coverage            unique cells of the 100 × 100 grid the agent has been in, since the beginning
    episodic_entropy    matrix-based entropy of order 1.001 of the agent's latest episode, in bits (the paper's evaluation)
    entropy_saturation  that entropy over log2 T, its ceiling for an episode of T states
    episode_length, extrinsic_return     means over the episodes that ended since the last line
    best_return, best_length    the highest task return of an episode so far and its length; of equal ones the shortest

Everything is plain NumPy on the host and part of a checkpoint, so that a resumed run logs what the
undisturbed one does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from element_rl.acting.collector import Chunk
from element_rl.envs.robots import CELLS_PER_AXIS, EnvSpec, coverage_cell
from element_rl.replay.ring import FinishedEpisode


class Tracker:
    """Running measurements of P agents."""

    def __init__(self, spec: EnvSpec, num_agents: int, num_envs: int = 1) -> None:
        self.spec, self.num_envs = spec, num_envs
        self.visits = np.zeros((num_agents, CELLS_PER_AXIS, CELLS_PER_AXIS), np.int32)
        self.episodes = np.zeros(num_agents, np.int64)
        # slot and length of the latest finished episode
        self.last_start = np.zeros(num_agents, np.int64)
        self.last_length = np.zeros(num_agents, np.int64)
        self.running_return = np.zeros(num_agents * num_envs)  # of the episode in each environment
        # of any episode so far, and the length of that episode
        self.best_return = np.full(num_agents, -np.inf)
        self.best_length = np.zeros(num_agents, np.int64)
        self.window_episodes = np.zeros(num_agents)  # since the last line, as the two below
        self.window_length = np.zeros(num_agents)
        self.window_return = np.zeros(num_agents)
        self._metric_sums: dict[str, np.ndarray] = {}
        self._metric_chunks = 0
        self._pending: list[dict[str, Array]] = []  # metrics still on the device

    def see_chunk(self, chunk: Chunk, finished: Sequence[FinishedEpisode]) -> None:
        """Count visits, returns and episodes of a chunk."""
        environments, rows = chunk.final.shape
        valid = np.arange(rows)[None, :] < chunk.count[:, None]
        if self.spec.coverage_bounds is not None:
            agent = np.arange(environments)[:, None] // self.num_envs
            cells = coverage_cell(self.spec, chunk.position) + agent * CELLS_PER_AXIS**2
            counted = np.bincount(cells[valid], minlength=self.visits.size)
            self.visits += counted.reshape(self.visits.shape).astype(np.int32)
        # environment by environment, as the rows are
        lengths = (episode.length for episode in finished)
        for row in range(environments):
            for task_return in self._see_returns(row, chunk):
                self._see_best(row // self.num_envs, task_return, next(lengths))
        for episode in finished:
            self.episodes[episode.agent] += 1
            self.window_episodes[episode.agent] += 1
            self.window_length[episode.agent] += episode.length
            self.last_start[episode.agent] = episode.start
            self.last_length[episode.agent] = episode.length

    def see_update(self, metrics: dict[str, Array]) -> None:
        """Remember the metrics of an update without waiting for them."""
        self._pending.append(metrics)

    def coverage(self) -> Int[np.ndarray, " P"]:
        """Unique cells visited by each agent."""
        return np.count_nonzero(self.visits, axis=(1, 2))

    def rows(
        self,
        step: int,
        seeds: Sequence[int],
        episodic_entropy: Float[np.ndarray, " P"],
        memory_size: Int[np.ndarray, " P"],
        timing: Mapping[str, float],
    ) -> list[dict[str, Any]]:
        """One line per agent, and a fresh window."""
        self.settle()
        ended = np.maximum(self.window_episodes, 1)
        nothing = np.where(self.window_episodes > 0, 1.0, np.nan)
        has_episode = self.last_length > 0
        columns = {
            "episodes": self.episodes,
            "episode_length": self.window_length / ended * nothing,
            "extrinsic_return": self.window_return / ended * nothing,
            "episodic_entropy": np.where(has_episode, episodic_entropy, np.nan),
            "entropy_saturation": np.where(
                self.last_length > 1,
                episodic_entropy / np.log2(np.maximum(self.last_length, 2)),
                np.nan,
            ),
            "memory_size": memory_size,
        }
        if self.spec.coverage_bounds is not None:
            columns["coverage"] = self.coverage()
        columns |= {
            name: total / max(self._metric_chunks, 1) for name, total in self._metric_sums.items()
        }
        self._start_window()
        return [
            {
                "step": step,
                "seed": seed,
                **{name: values[agent] for name, values in columns.items()},
                **timing,
            }
            for agent, seed in enumerate(seeds)
        ]

    def settle(self) -> None:
        """Wait for the metrics on the device and add them up, always in the same order."""
        for metrics in jax.device_get(self._pending):
            self._metric_chunks += 1
            for name, values in metrics.items():
                self._metric_sums[name] = self._metric_sums.get(name, 0.0) + np.asarray(
                    values, np.float64
                )
        self._pending = []

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        self.settle()
        fields = {name: getattr(self, name) for name in _FIELDS}
        sums = {f"metric/{name}": total for name, total in self._metric_sums.items()}
        return fields | sums | {"metric_chunks": np.array(self._metric_chunks)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        for name in _FIELDS:
            if name in arrays or name not in _NEWER:
                getattr(self, name)[...] = arrays[name]
        self._metric_sums = {
            name.removeprefix("metric/"): array.copy()
            for name, array in arrays.items()
            if name.startswith("metric/")
        }
        self._metric_chunks = int(arrays["metric_chunks"])

    def _see_returns(self, row: int, chunk: Chunk) -> list[float]:
        """Adds up the rewards of one environment; the returns of the episodes that end in the
        chunk."""
        agent, rewards = row // self.num_envs, chunk.extrinsic_reward[row]
        count = int(chunk.count[row])
        first = 0
        ended = []
        for last in np.flatnonzero(chunk.final[row, :count]).tolist():
            ended.append(float(self.running_return[row] + rewards[first:last].sum()))
            self.window_return[agent] += ended[-1]
            self.running_return[row] = 0.0
            first = last + 1
        self.running_return[row] += rewards[first:count].sum()
        return ended

    def _see_best(self, agent: int, task_return: float, length: int) -> None:
        better = task_return > self.best_return[agent]
        if better or (task_return == self.best_return[agent] and length < self.best_length[agent]):
            self.best_return[agent], self.best_length[agent] = task_return, length

    def _start_window(self) -> None:
        self.window_episodes[:] = 0
        self.window_length[:] = 0
        self.window_return[:] = 0
        self._metric_sums, self._metric_chunks = {}, 0


_FIELDS = (
    "visits",
    "episodes",
    "last_start",
    "last_length",
    "running_return",
    "window_episodes",
    "window_length",
    "window_return",
    "best_return",
    "best_length",
)
_NEWER = (
    "best_return",
    "best_length",
)  # older checkpoints do not have them: then the best so far is of what follows
