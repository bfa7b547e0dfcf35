"""The ledger of a replay, on the host: which slots of the ring hold what (`replay.ring`)."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int


class FinishedEpisode(NamedTuple):
    """Where a finished episode stands in the ring of one agent."""

    agent: int
    start: int  # slot of its first transition
    length: int  # transitions
    step: int  # the step of the agent that its first transition was
    sample_head: int  # where its slots go in the ring of sampleable slots


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
        self.head = np.zeros(rows, np.int64)  # next slot to write
        self.used = np.zeros(rows, np.int64)  # slots in use, the running episode's included
        self.written = np.zeros(rows, np.int64)  # records ever written
        self.running_start = np.zeros(rows, np.int64)  # slot where the running episode began
        self.running_length = np.zeros(rows, np.int64)  # its transitions so far
        self.steps = np.zeros(rows, np.int64)  # steps of all finished episodes
        self.sample_tail = np.zeros(rows, np.int64)  # oldest entry of the ring of sampleable slots
        self.sample_count = np.zeros(rows, np.int64)
        # of the finished episodes stored
        self._lengths: list[deque[int]] = [deque() for _ in range(rows)]

    def place(
        self, final: Bool[np.ndarray, "L R"], count: Int[np.ndarray, " L"]
    ) -> tuple[Int[np.ndarray, "L R"], list[FinishedEpisode]]:
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

    def filled(self, agent: int) -> int:
        """Slots of an agent, from 0 on, that may hold something: all of them once a ring has come
        round."""
        own = slice(agent * self.num_envs, (agent + 1) * self.num_envs)
        round_ = (self.written[own] >= self.capacity).any()
        return self.num_envs * (self.capacity if round_ else int(self.head[own].max()))

    def sampleable(self) -> Int[np.ndarray, "P 2 E"]:
        """Tails and counts of each agent's rings of sampleable slots, for `sample`."""
        tails = self.sample_tail * self.num_envs + self._env()
        return np.stack(
            [part.reshape(-1, self.num_envs) for part in (tails, self.sample_count)], axis=1
        ).astype(np.int32)

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
            "steps",
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
    ) -> list[FinishedEpisode]:
        agent, env = divmod(row, self.num_envs)
        finished = []
        first = 0
        for record in [*final_records.tolist(), None]:
            length = int(self.running_length[row]) + (count if record is None else record) - first
            if record is None:
                self.running_length[row] = length
                break
            start = int(self.running_start[row])
            sample_head = int((self.sample_tail[row] + self.sample_count[row]) % self.capacity)
            placed = (i * self.num_envs + env for i in (start, int(self.steps[row]), sample_head))
            start_slot, step, sample_slot = placed
            finished.append(FinishedEpisode(agent, start_slot, length, step, sample_slot))
            self.steps[row] += length
            self.sample_count[row] += length
            self._lengths[row].append(length)
            self.running_start[row] = (start + length + 1) % self.capacity
            self.running_length[row] = 0
            first = record + 1
        return finished
