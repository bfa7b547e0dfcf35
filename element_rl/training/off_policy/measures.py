"""Chunks of a population, measured: visits, returns and episodes, and the metrics of updates."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from element_rl.acting.collector import Chunk
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.replay.ledger import StoredEpisode
from element_rl.training.measures import Measures

_FIELDS = ("last_start", "last_length", "running_return")


class ChunkMeasures:
    """Running measurements of P agents with E environments each."""

    def __init__(self, spec: EnvSpec, num_agents: int, num_envs: int = 1) -> None:
        self.spec, self.num_envs = spec, num_envs
        self.counts = Measures.of(spec, num_agents)
        # slot and length of the latest finished episode
        self.last_start = np.zeros(num_agents, np.int64)
        self.last_length = np.zeros(num_agents, np.int64)
        self.running_return = np.zeros(num_agents * num_envs)  # of the episode in each environment
        self._metric_sums: dict[str, np.ndarray] = {}
        self._metric_chunks = 0
        self._pending: list[dict[str, Array]] = []  # metrics still on the device

    def see_chunk(self, chunk: Chunk, finished: Sequence[StoredEpisode]) -> None:
        """Count visits, returns and episodes of a chunk."""
        rows = chunk.final.shape[1]
        if self.counts.mapped:
            valid = np.arange(rows)[None, :] < chunk.count[:, None]
            agents = np.nonzero(valid)[0] // self.num_envs
            # only then are observations taken from the device, where worlds leave them
            seen = None if self.spec.has_map else np.asarray(chunk.observation)
            self.counts.visit(agents, coverage_cell(self.spec, chunk.position, seen)[valid])
        some = (chunk.final & (np.arange(rows)[None, :] < chunk.count[:, None])).any(axis=1)
        for count in np.unique(chunk.count[~some]).tolist():
            alike = ~some & (chunk.count == count)
            self.running_return[alike] += chunk.extrinsic_reward[alike, :count].sum(axis=1)
        # environment by environment, as the rows are
        episodes = iter(finished)
        for row in np.flatnonzero(some).tolist():
            for task_return in self._returns(row, chunk):
                episode = next(episodes)
                self.counts.end_episode(episode.agent, task_return, episode.length)
                self.last_start[episode.agent] = episode.start
                self.last_length[episode.agent] = episode.length

    def see_update(self, metrics: dict[str, Array]) -> None:
        """Remember the metrics of an update without waiting for them."""
        self._pending.append(metrics)

    def rows(
        self,
        step: int,
        seeds: Sequence[int],
        entropies: Float[np.ndarray, " P"],
        memory_sizes: Int[np.ndarray, " P"],
        timing: Mapping[str, float],
    ) -> list[dict[str, Any]]:
        """One line per agent, with the entropies of their latest episodes; then a fresh window."""
        self._settle()
        means = {name: total / self._metric_chunks for name, total in self._metric_sums.items()}
        self._metric_sums, self._metric_chunks = {}, 0
        return [
            {
                **{"step": step, "seed": seed, "memory_size": memory_sizes[agent]},
                **self.counts.line(agent, entropies[agent], int(self.last_length[agent])),
                **{name: values[agent] for name, values in means.items()},
                **timing,
            }
            for agent, seed in enumerate(seeds)
        ]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        self._settle()
        fields = {name: getattr(self, name) for name in _FIELDS}
        sums = {f"metric/{name}": total for name, total in self._metric_sums.items()}
        own = fields | sums | {"metric_chunks": np.array(self._metric_chunks)}
        return self.counts.to_arrays() | own

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        self.counts.restore(arrays)
        for name in _FIELDS:
            getattr(self, name)[...] = arrays[name]
        self._metric_sums = {
            name.removeprefix("metric/"): array.copy()
            for name, array in arrays.items()
            if name.startswith("metric/")
        }
        self._metric_chunks = int(arrays["metric_chunks"])

    def _settle(self) -> None:
        """Wait for the metrics on the device and add them up, always in the same order."""
        for metrics in jax.device_get(self._pending):
            self._metric_chunks += 1
            for name, values in metrics.items():
                new = np.asarray(values, np.float64)
                self._metric_sums[name] = self._metric_sums.get(name, 0.0) + new
        self._pending = []

    def _returns(self, row: int, chunk: Chunk) -> list[float]:
        """Adds up the rewards of one environment; the returns of the episodes that end in the
        chunk."""
        rewards, count = chunk.extrinsic_reward[row], int(chunk.count[row])
        first = 0
        ended = []
        for last in np.flatnonzero(chunk.final[row, :count]).tolist():
            ended.append(float(self.running_return[row] + rewards[first:last].sum()))
            self.running_return[row] = 0.0
            first = last + 1
        self.running_return[row] += rewards[first:count].sum()
        return ended
