"""Acting with the policies of checkpoints, kept on the disk part by part.

A part holds the episodes that ended in a fixed number of chunks, and what there is of those still
running, so that the part after it can begin from it alone: running episodes are re-enacted
(`Collector.resume`). So a collection that was killed goes on with the part it was at, and what
comes out is the same.

Rows of episodes are those of `datasets.episodes.Episodes`: T + 1 per episode, the last with its
last observation only. This module loads no JAX: the environment's processes import its policy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from element_rl.acting.collector import Chunk, Collector
from element_rl.acting.host_policy import policy_action
from element_rl.storage.files import read_arrays, write_arrays

ROW_FIELDS = ("observation", "action", "extrinsic_reward", "terminated", "truncated", "position")
LONGEST_CHUNK = 200  # steps
PART_STEPS = 5_000  # of every agent in a part, at most: what a kill may cost
PART_BYTES = 32_000_000  # of a part, about: what is in memory
STRIDE = 1_000_000  # more chunks and episodes than a checkpoint contributes

Rows = dict[str, np.ndarray]


class Share(NamedTuple):
    """What one checkpoint contributes."""

    checkpoint: int  # its step
    steps: int  # per agent
    # [P, ...]; None: uniformly random actions, or read later
    parameters: Mapping[str, np.ndarray] | None


class Finished(NamedTuple):
    """An episode that ended, or that the end of its share cut off."""

    agent: int
    number: int  # of the episode; `episode_seed` tells how it was reset
    rows: Rows


class Division(NamedTuple):
    """How a collection is divided; it follows from the environment and the steps alone."""

    chunk_steps: int
    part_chunks: int


def divide(steps: int, agents: int, row_width: int) -> Division:
    """For shares of at most `steps` steps per agent, and rows of `row_width` numbers."""
    # one step more: its observation is the last of the share
    chunks = -(-(steps + 1) // LONGEST_CHUNK)
    chunk_steps = -(-(steps + 1) // chunks)
    part_steps = min(PART_STEPS, PART_BYTES // (4 * row_width * agents))
    return Division(chunk_steps, max(part_steps // chunk_steps, 1))


def mean_action(
    parameters: Mapping[str, np.ndarray],
    observation: Float[np.ndarray, " O"],
    noise: Float[np.ndarray, " A"],
) -> Float[np.ndarray, " A"]:
    """The policy's action without its noise."""
    return policy_action(parameters, observation, np.zeros_like(noise))


@dataclass
class Running:
    """An agent's episode that has not ended: its rows so far, in pieces."""

    index: int
    pieces: list[Rows] = field(default_factory=list)

    def rows(self) -> Rows:
        return {name: np.concatenate([piece[name] for piece in self.pieces]) for name in ROW_FIELDS}


@dataclass(frozen=True)
class Parts:
    """The parts of a collection in a folder."""

    folder: Path
    shares: Sequence[Share]
    agents: int
    division: Division

    def missing(self) -> list[tuple[int, int]]:
        """The parts that are not on the disk yet, as (share, part) in the order in which they are
        made."""
        numbers = [
            (share, part)
            for share in range(len(self.shares))
            for part in range(len(self._chunks(share)))
        ]
        return [number for number in numbers if not self._path(*number).exists()]

    def steps_done(self) -> int:
        """Steps per agent on the disk."""
        missing = self.missing()
        if not missing:
            return sum(share.steps for share in self.shares)
        share, part = missing[0]
        begun = self._chunks(share)[part].start * self.division.chunk_steps
        return sum(entry.steps for entry in self.shares[:share]) + begun

    def record(
        self,
        collector: Collector,
        measure: Callable[[int, Rows], float],
        watch: Callable[[int, list[Finished]], None],
    ) -> None:
        """Makes what is missing. `watch` is told after every chunk of its steps and of the episodes
        that ended."""
        running: list[Running] = []
        share_begun = -1
        for share_number, part in self.missing():
            share = self.shares[share_number]
            if share_number != share_begun:
                running = self._begin(collector, share_number, part)
                share_begun = share_number
            kept: list[tuple[Finished, float]] = []
            for chunk_index, chunk in _acted(collector, share, self._chunks(share_number)[part]):
                left = share.steps - chunk_index * self.division.chunk_steps
                finished = take(chunk, running, left if left < self.division.chunk_steps else None)
                kept += [(episode, measure(episode.agent, episode.rows)) for episode in finished]
                watch(min(left, self.division.chunk_steps), finished)
            _write_part(self._path(share_number, part), kept, running)

    def episodes(self) -> Iterator[tuple[Share, Finished, float]]:
        """All episodes with their entropies, when nothing is missing; a part at a time is in
        memory."""
        for share_number, share in enumerate(self.shares):
            for part in range(len(self._chunks(share_number))):
                for finished, entropy in _read_part(self._path(share_number, part)):
                    yield share, finished, entropy

    def _begin(self, collector: Collector, share_number: int, part: int) -> list[Running]:
        """Brings every agent to where the part before ended, or to the first episode of a share."""
        share = self.shares[share_number]
        running = [Running(share.checkpoint * STRIDE) for _ in range(self.agents)]
        if part > 0:
            running = _read_running(self._path(share_number, part - 1), self.agents)
        nothing = np.zeros((0, collector.spec.action_dim), np.float32)
        actions = [entry.rows()["action"] if entry.pieces else nothing for entry in running]
        collector.resume([entry.index for entry in running], actions)
        if share.parameters is not None:
            collector.set_parameters(share.parameters)
        return running

    def _chunks(self, share_number: int) -> list[range]:
        """The chunks of each part of a share."""
        chunks = self.shares[share_number].steps // self.division.chunk_steps + 1
        firsts = range(0, chunks, self.division.part_chunks)
        return [range(first, min(first + self.division.part_chunks, chunks)) for first in firsts]

    def _path(self, share_number: int, part: int) -> Path:
        return self.folder / f"part_{share_number:03d}_{part:06d}.safetensors"


def take(chunk: Chunk, running: list[Running], limit: int | None) -> list[Finished]:
    """Adds a chunk to the running episodes; those that ended in it. After `limit` steps an agent's
    episode is cut off."""
    finished = []
    for agent, episode in enumerate(running):
        count, final = int(chunk.count[agent]), chunk.final[agent]
        if limit is not None:
            count = int(np.searchsorted(np.cumsum(~final[:count]), limit)) + 1 if limit else 0
            count += bool(final[count])  # a last observation belongs to the step before it
        first = 0
        for last in np.flatnonzero(final[:count]):
            episode.pieces.append(_rows(chunk, agent, first, int(last) + 1))
            finished.append(Finished(agent, episode.index, episode.rows()))
            episode.index, episode.pieces, first = episode.index + 1, [], int(last) + 1
        if count > first:
            episode.pieces.append(_rows(chunk, agent, first, count))
        if limit is not None and episode.pieces:
            finished.append(
                Finished(
                    agent, episode.index, _cut_off(episode, _rows(chunk, agent, count, count + 1))
                )
            )
            episode.pieces = []
    return finished


def _cut_off(episode: Running, following: Rows) -> Rows:
    """The rows of an episode whose recording stops: truncated, and the observation that followed."""
    rows = episode.rows()
    rows["truncated"][-1] = True
    last = {
        name: array if name in ("observation", "position") else np.zeros_like(array)
        for name, array in following.items()
    }
    return {name: np.concatenate([rows[name], last[name]]) for name in ROW_FIELDS}


def _rows(chunk: Chunk, agent: int, first: int, last: int) -> Rows:
    return {name: np.array(getattr(chunk, name)[agent, first:last]) for name in ROW_FIELDS}


def _acted(collector: Collector, share: Share, indices: range) -> Iterator[tuple[int, Chunk]]:
    """Chunks one after the other; while one is looked at, the next is under way."""

    def start(index: int) -> None:
        collector.start(
            share.checkpoint * STRIDE + index, None if share.parameters is None else "as set"
        )

    start(indices[0])
    for index in indices:
        chunk = collector.wait()
        if index + 1 in indices:
            start(index + 1)
        yield index, chunk


def _write_part(
    path: Path, kept: Sequence[tuple[Finished, float]], running: Sequence[Running]
) -> None:
    arrays = {
        "lengths": np.array([len(episode.rows["action"]) - 1 for episode, _ in kept], np.int64),
        "agent": np.array([episode.agent for episode, _ in kept], np.int64),
        "index": np.array([episode.number for episode, _ in kept], np.int64),
        "entropy": np.array([entropy for _, entropy in kept], np.float64),
        "running_index": np.array([entry.index for entry in running], np.int64),
    }
    if kept:
        arrays |= {
            name: np.concatenate([episode.rows[name] for episode, _ in kept]) for name in ROW_FIELDS
        }
    for agent, entry in enumerate(running):
        if entry.pieces:
            arrays |= {f"running_{agent}/{name}": array for name, array in entry.rows().items()}
    write_arrays(path, arrays)


def _read_part(path: Path) -> Iterator[tuple[Finished, float]]:
    arrays, _ = read_arrays(path)
    start = 0
    for episode, length in enumerate(arrays["lengths"].tolist()):
        rows = {name: arrays[name][start : start + length + 1] for name in ROW_FIELDS}
        start += length + 1
        finished = Finished(int(arrays["agent"][episode]), int(arrays["index"][episode]), rows)
        yield finished, float(arrays["entropy"][episode])


def _read_running(path: Path, agents: int) -> list[Running]:
    arrays, _ = read_arrays(path)
    running = [Running(int(index)) for index in arrays["running_index"]]
    for agent in range(agents):
        if f"running_{agent}/action" in arrays:
            running[agent].pieces = [
                {name: arrays[f"running_{agent}/{name}"] for name in ROW_FIELDS}
            ]
    return running
