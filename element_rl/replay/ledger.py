"""The ledger of a replay, on the host: which slots of the ring hold what (`replay.ring`)."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int


class StoredEpisode(NamedTuple):
    """Where an episode stands in the ring of one agent: a finished one, or one that still runs, as
    far as its transitions are whole."""

    agent: int
    start: int  # slot of its first transition
    length: int  # transitions
    step: int  # the step of the agent that its first transition was
    sample_head: int  # where its slots go in the ring of sampleable slots

    def rest(self, first: int, capacity: int, num_envs: int) -> "StoredEpisode":
        """Its transitions from this one on."""
        further = first * num_envs
        return StoredEpisode(
            self.agent,
            (self.start + further) % capacity,
            self.length - first,
            self.step + further,
            (self.sample_head + further) % capacity,
        )


class Ledger:
    """Which slots of each environment's ring hold what. Plain integers, mirrored nowhere on the
    device.

    Rows are environments, those of the first agent first: row p E + e. Here a ring has `capacity /
    E` slots; in what is handed out, slot i of environment e is slot i E + e of its agent.
    """

    def __init__(
        self,
        num_agents: int,
        capacity: int,
        longest_episode: int,
        chunk_records: int,
        num_envs: int = 1,
    ) -> None:
        needed = num_envs * (2 * (longest_episode + 1) + chunk_records)
        if capacity < needed or capacity % num_envs:
            several = f" of {num_envs} environments" if num_envs > 1 else ""
            multiple = f", a multiple of {num_envs}" if num_envs > 1 else ""
            raise ValueError(
                f"A replay of {capacity} transitions{several} is too small: with episodes of up to "
                f"{longest_episode} "
                f"steps it needs at least {needed}{multiple}."
            )
        rows = num_agents * num_envs
        self.num_envs, self.capacity = num_envs, capacity // num_envs
        self.longest_episode = longest_episode
        self.head = np.zeros(rows, np.int64)  # next slot to write
        self.used = np.zeros(rows, np.int64)  # slots in use, the running episode's included
        self.written = np.zeros(rows, np.int64)  # records ever written
        self.running_start = np.zeros(rows, np.int64)  # slot where the running episode began
        self.running_length = np.zeros(rows, np.int64)  # its transitions so far
        self.released = np.zeros(rows, np.int64)  # its transitions that may be drawn already
        self.steps = np.zeros(rows, np.int64)  # steps of all finished episodes
        # steps and number of those but the first, which worlds on the device cut off early
        self.later_steps = np.zeros(rows, np.int64)
        self.later_episodes = np.zeros(rows, np.int64)
        self.sample_tail = np.zeros(rows, np.int64)  # oldest entry of the ring of sampleable slots
        self.sample_count = np.zeros(rows, np.int64)
        # of the finished episodes stored
        self._lengths: list[deque[int]] = [deque() for _ in range(rows)]

    def place(
        self, final: Bool[np.ndarray, "L R"], count: Int[np.ndarray, " L"]
    ) -> tuple[Int[np.ndarray, "L R"], list[StoredEpisode]]:
        """Slots for new records, dropping the oldest episodes to make room, and the episodes that
        end among them."""
        for one in np.flatnonzero(self.used + count > self.capacity).tolist():
            self._make_room(one, int(count[one]))
        row = np.arange(final.shape[1])[None, :]
        own = (self.head[:, None] + row) % self.capacity * self.num_envs + self._env()[:, None]
        written = row < count[:, None]
        slots = np.where(written, own, self.capacity * self.num_envs)
        ends = final & written
        some = ends.any(axis=1)  # of thousands of environments, few end an episode in a chunk
        self.running_length[~some] += count[~some]
        finished = []
        for one in np.flatnonzero(some).tolist():
            finished += self._end_episodes(one, np.flatnonzero(ends[one]), int(count[one]))
        self.head = (self.head + count) % self.capacity
        self.used += count
        self.written += count
        return slots.astype(np.int32), finished

    def release_running(self, every: int) -> list[tuple[StoredEpisode, int]]:
        """Running episodes that have passed another multiple of so many transitions, as they are so
        far, and how many of their transitions could be drawn before. From now on all can.

        The last one has no next observation yet, and is left out.
        """
        whole = np.maximum(self.running_length - 1, 0)
        released = []
        for row in np.flatnonzero(whole // every > self.released // every).tolist():
            before, length = int(self.released[row]), int(whole[row])
            released.append((self._stored(row, length), before))
            self.sample_count[row] += length - before
            self.released[row] = length
        return released

    def usual_length(self, agent: int) -> int:
        """Of an agent's episodes that were not the first of their environment; the time limit where
        there is none."""
        own = self._rows_of(agent)
        number = int(self.later_episodes[own].sum())
        return int(self.later_steps[own].sum()) // number if number else self.longest_episode

    def filled(self, agent: int) -> int:
        """Slots of an agent, from 0 on, that may hold something: all of them once a ring has come
        round."""
        own = self._rows_of(agent)
        round_ = (self.written[own] >= self.capacity).any()
        return self.num_envs * (self.capacity if round_ else int(self.head[own].max()))

    def sampleable(self) -> Int[np.ndarray, "P 2 E"]:
        """Tails and counts of each agent's rings of sampleable slots, for `sample`."""
        tails = self.sample_tail * self.num_envs + self._env()
        return np.stack(
            [part.reshape(-1, self.num_envs) for part in (tails, self.sample_count)], axis=1
        ).astype(np.int32)

    def all_drawable(self) -> bool:
        """Whether every agent has transitions that may be drawn."""
        return bool((self.sample_count.reshape(-1, self.num_envs).sum(axis=1) > 0).all())

    def beginnings(self) -> Int[np.ndarray, "P 2 E"]:
        """For `next_beginning`: the slot that each environment writes next, and the first one of
        its latest finished episode."""
        lengths = np.array([kept[-1] if kept else 0 for kept in self._lengths])
        latest = (self.running_start - lengths - 1) % self.capacity
        slots = (own * self.num_envs + self._env() for own in (self.head, latest))
        return np.stack([part.reshape(-1, self.num_envs) for part in slots], axis=1).astype(
            np.int32
        )

    def running_slots(self, row: int) -> Int[np.ndarray, " T"]:
        """Slots, in its agent's ring, of the transitions of the episode that runs in an
        environment."""
        own = (self.running_start[row] + np.arange(self.running_length[row])) % self.capacity
        return own * self.num_envs + row % self.num_envs

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        fields = (
            "head",
            "used",
            "written",
            "running_start",
            "running_length",
            "released",
            "steps",
            "later_steps",
            "later_episodes",
            "sample_tail",
            "sample_count",
        )
        arrays = {name: getattr(self, name) for name in fields}
        lengths = {
            f"lengths_{row}": np.array(kept, np.int64) for row, kept in enumerate(self._lengths)
        }
        return arrays | lengths

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        for name, array in arrays.items():
            if name.startswith("lengths_"):
                self._lengths[int(name.removeprefix("lengths_"))] = deque(array.tolist())
            else:
                getattr(self, name)[:] = array

    def _env(self) -> Int[np.ndarray, " L"]:
        """Which environment of its agent each row is."""
        return np.arange(len(self.head)) % self.num_envs

    def _make_room(self, row: int, count: int) -> None:
        while self.used[row] + count > self.capacity:
            length = self._lengths[row].popleft()
            self.used[row] -= length + 1
            self.sample_tail[row] = (self.sample_tail[row] + length) % self.capacity
            self.sample_count[row] -= length

    def _end_episodes(
        self, row: int, final_records: Int[np.ndarray, " F"], count: int
    ) -> list[StoredEpisode]:
        finished = []
        first = 0
        for record in final_records.tolist():
            length = int(self.running_length[row]) + record - first
            finished.append(self._stored(row, length))
            if self.steps[row]:
                self.later_steps[row] += length
                self.later_episodes[row] += 1
            self.steps[row] += length
            self.sample_count[row] += length - self.released[row]
            self.released[row] = 0
            self._lengths[row].append(length)
            self.running_start[row] = (self.running_start[row] + length + 1) % self.capacity
            self.running_length[row] = 0
            first = record + 1
        self.running_length[row] += count - first
        return finished

    def _stored(self, row: int, length: int) -> StoredEpisode:
        """So much of the episode that runs in an environment."""
        agent, env = divmod(row, self.num_envs)
        entries = self.sample_tail[row] + self.sample_count[row] - self.released[row]
        places = (self.running_start[row], self.steps[row], entries % self.capacity)
        start, step, sample_head = (int(place) * self.num_envs + env for place in places)
        return StoredEpisode(agent, start, length, step, sample_head)

    def _rows_of(self, agent: int) -> slice:
        return slice(agent * self.num_envs, (agent + 1) * self.num_envs)
