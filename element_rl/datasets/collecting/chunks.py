"""Acting with policies on vectors: all agents at once, chunk by chunk (`acting.collector`).

A part holds the episodes that ended in a fixed number of chunks, and what there is of those still
running, so that the part after it can begin from it alone: running episodes are re-enacted
(`Collector.resume`).

Rows of episodes are those of `datasets.episodes.Episodes`: T + 1 per episode, the last with its
last observation only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from element_rl.acting.actors import episode_seed
from element_rl.acting.collector import Chunk, Collector, ProcessCollector
from element_rl.acting.host_policy import mean_action, policy_action
from element_rl.datasets.collecting.agents import TrainedAgents
from element_rl.datasets.collecting.parts import (
    STRIDE,
    AfterActing,
    Contribution,
    FinishedEpisode,
    Measure,
    write_part,
)
from element_rl.envs.spec import EnvSpec
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_arrays

ROW_FIELDS = ("observation", "action", "extrinsic_reward", "terminated", "truncated", "position")
LONGEST_CHUNK = 200  # steps
PART_STEPS = 5_000  # of every agent in a part, at most: what a kill may cost
PART_BYTES = 32_000_000  # of a part, about: what is in memory

EpisodeRows = dict[str, np.ndarray]
"""The arrays of `ROW_FIELDS`, of one episode or of a piece of one"""


class Division(NamedTuple):
    """How a collection is divided; it follows from the environment and the steps alone."""

    chunk_steps: int
    part_chunks: int


def divide(steps: int, agents: int, row_width: int) -> Division:
    """For contributions of at most `steps` steps per agent, and rows of `row_width` numbers."""
    # one step more: its observation is the last of the contribution
    chunks = -(-(steps + 1) // LONGEST_CHUNK)
    chunk_steps = -(-(steps + 1) // chunks)
    part_steps = min(PART_STEPS, PART_BYTES // (4 * row_width * agents))
    return Division(chunk_steps, max(part_steps // chunk_steps, 1))


@dataclass
class RunningEpisode:
    """An agent's episode that has not ended: its rows so far, in pieces."""

    index: int
    pieces: list[EpisodeRows] = field(default_factory=list)

    def rows(self) -> EpisodeRows:
        return {name: np.concatenate([piece[name] for piece in self.pieces]) for name in ROW_FIELDS}


@dataclass(frozen=True)
class ChunkCollection:
    """See `datasets.collecting.parts.Collection`."""

    folder: Path
    agents: TrainedAgents
    contributions: Sequence[Contribution]
    seeds: Sequence[int]  # of the agents, while they act
    deterministic: bool
    workers: int | None

    @property
    def spec(self) -> EnvSpec:
        return self.agents.spec

    @property
    def division(self) -> Division:
        width = self.spec.observation_dim + self.spec.action_dim + self.spec.position_dim + 3
        most = max((contribution.steps for contribution in self.contributions), default=1)
        return divide(most, len(self.seeds), width)

    @property
    def settings(self) -> dict[str, Any]:
        return {"division": self.division._asdict()}

    def steps_done(self) -> int:
        done, missing = sum(entry.steps for entry in self.contributions), self._missing()
        if missing:
            number, part = missing[0]
            begun = self._chunks(number)[part].start * self.division.chunk_steps
            done = sum(entry.steps for entry in self.contributions[:number]) + begun
        return done * len(self.seeds)

    def act(self, measure: Measure, after: AfterActing, stop: Callable[[], bool]) -> None:
        missing = self._missing()
        if not missing:
            return
        parameters = self.agents.parameters(self.contributions[0].checkpoint)
        with ProcessCollector(
            self.spec,
            list(self.seeds),
            self.division.chunk_steps,
            (mean_action if self.deterministic else policy_action) if parameters else None,
            {name: array.shape[1:] for name, array in parameters.items()},
            env_options=self.agents.env_options,
            num_workers=self.workers,
        ) as collector:
            running: list[RunningEpisode] = []
            begun = -1
            for number, part in missing:
                if number != begun:
                    running, begun = self._begin(collector, number, part), number
                self._act_part(collector, number, part, running, measure, after, stop)

    def parts(self) -> Iterator[tuple[Contribution, Path]]:
        for number, contribution in enumerate(self.contributions):
            for part in range(len(self._chunks(number))):
                yield contribution, self._path(number, part)

    def _act_part(
        self,
        collector: Collector,
        number: int,
        part: int,
        running: list[RunningEpisode],
        measure: Measure,
        after: AfterActing,
        stop: Callable[[], bool],
    ) -> None:
        contribution, chunk_steps = self.contributions[number], self.division.chunk_steps
        episodes: list[FinishedEpisode] = []
        for index, chunk in self._acted(collector, contribution, self._chunks(number)[part]):
            left = contribution.steps - index * chunk_steps
            finished = [
                finished_episode(agent, episode_seed(self.seeds[agent], episode), rows, measure)
                for agent, episode, rows in take(
                    chunk, running, left if left < chunk_steps else None
                )
            ]
            episodes += finished
            after(min(left, chunk_steps) * len(self.seeds), finished)
            is_last = number == len(self.contributions) - 1 and left <= chunk_steps
            if stop() and not is_last:
                raise Interrupted(self.steps_done() // len(self.seeds))
        to_go_on = {"running_index": np.array([entry.index for entry in running], np.int64)}
        for agent, entry in enumerate(running):
            if entry.pieces:
                rows = entry.rows()
                to_go_on |= {f"running_{agent}/{name}": array for name, array in rows.items()}
        write_part(self._path(number, part), episodes, to_go_on)

    def _begin(self, collector: Collector, number: int, part: int) -> list[RunningEpisode]:
        """Brings every agent to where the part before ended, or to the first episode."""
        checkpoint = self.contributions[number].checkpoint
        running = [RunningEpisode(checkpoint * STRIDE) for _ in self.seeds]
        if part > 0:
            arrays, _ = read_arrays(self._path(number, part - 1))
            for agent, index in enumerate(arrays["running_index"].tolist()):
                running[agent] = RunningEpisode(index)
                if f"running_{agent}/action" in arrays:
                    rows = {name: arrays[f"running_{agent}/{name}"] for name in ROW_FIELDS}
                    running[agent].pieces = [rows]
        nothing = np.zeros((0, self.spec.action_dim), np.float32)
        actions = [entry.rows()["action"] if entry.pieces else nothing for entry in running]
        collector.resume([entry.index for entry in running], actions)
        if not self.agents.act_at_random:
            collector.set_parameters(self.agents.parameters(checkpoint))
        return running

    def _acted(
        self, collector: Collector, contribution: Contribution, indices: range
    ) -> Iterator[tuple[int, Chunk]]:
        """Chunks one after the other; while one is looked at, the next is under way."""

        def start(index: int) -> None:
            number = contribution.checkpoint * STRIDE + index
            collector.start(number, None if self.agents.act_at_random else "as set")

        start(indices[0])
        for index in indices:
            chunk = collector.wait()
            if index + 1 in indices:
                start(index + 1)
            yield index, chunk

    def _missing(self) -> list[tuple[int, int]]:
        """The parts that are not on the disk yet, as (contribution, part), in order."""
        numbers = [
            (number, part)
            for number in range(len(self.contributions))
            for part in range(len(self._chunks(number)))
        ]
        return [number for number in numbers if not self._path(*number).exists()]

    def _chunks(self, number: int) -> list[range]:
        """The chunks of each part of a contribution."""
        chunks = self.contributions[number].steps // self.division.chunk_steps + 1
        firsts = range(0, chunks, self.division.part_chunks)
        return [range(first, min(first + self.division.part_chunks, chunks)) for first in firsts]

    def _path(self, number: int, part: int) -> Path:
        return self.folder / f"part_{number:03d}_{part:06d}.safetensors"


def take(
    chunk: Chunk, running: Sequence[RunningEpisode], limit: int | None
) -> list[tuple[int, int, EpisodeRows]]:
    """Adds a chunk to the running episodes; agent, index and rows of those that ended in it.

    After `limit` steps an agent's episode is cut off.
    """
    finished = []
    for agent, episode in enumerate(running):
        count, final = int(chunk.count[agent]), chunk.final[agent]
        if limit is not None:
            count = int(np.searchsorted(np.cumsum(~final[:count]), limit)) + 1 if limit else 0
            count += bool(final[count])  # a last observation belongs to the step before it
        first = 0
        for last in np.flatnonzero(final[:count]):
            episode.pieces.append(_rows(chunk, agent, first, int(last) + 1))
            finished.append((agent, episode.index, episode.rows()))
            episode.index, episode.pieces, first = episode.index + 1, [], int(last) + 1
        if count > first:
            episode.pieces.append(_rows(chunk, agent, first, count))
        if limit is not None and episode.pieces:
            rows = _cut_off(episode, _rows(chunk, agent, count, count + 1))
            finished.append((agent, episode.index, rows))
            episode.pieces = []
    return finished


def finished_episode(
    agent: int, seed: int | None, rows: EpisodeRows, measure: Measure
) -> FinishedEpisode:
    """An episode by its rows."""
    return FinishedEpisode(
        agent=agent,
        seed=seed,
        observations=rows["observation"],
        actions=rows["action"][:-1],
        rewards=rows["extrinsic_reward"][:-1],
        positions=rows["position"],
        terminated=bool(rows["terminated"][-2]),
        truncated=bool(rows["truncated"][-2]),
        task_return=float(rows["extrinsic_reward"].sum()),
        entropy=measure(agent, rows["observation"], rows["position"]),
    )


def _cut_off(episode: RunningEpisode, following: EpisodeRows) -> EpisodeRows:
    """The rows of an episode whose recording stops: truncated, and the observation after it."""
    rows = episode.rows()
    rows["truncated"][-1] = True
    last = {
        name: array if name in ("observation", "position") else np.zeros_like(array)
        for name, array in following.items()
    }
    return {name: np.concatenate([rows[name], last[name]]) for name in ROW_FIELDS}


def _rows(chunk: Chunk, agent: int, first: int, last: int) -> EpisodeRows:
    return {name: np.array(getattr(chunk, name)[agent, first:last]) for name in ROW_FIELDS}
