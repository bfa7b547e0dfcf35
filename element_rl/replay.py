"""The replay: a ring of records with notes, on the device, and its ledger, on the host.

Arrays carry the population axis P. Records arrive in chunks, in time order; an observation is stored once, the record
after it holds its successor, and each episode ends with one record (`final`) that has a last observation and no action.

    slot      i       i+1      i+2      i+3
    record    o0 a0   o1 a1    o2 –     o0 a0 …       an episode of two transitions, then the next one

Transition i is (o_i, a_i, o_{i+1}), and its *notes* (what an intrinsic reward wrote down about it) stand in slot i. It can
be sampled once its episode has ended. The ledger knows which slots belong to which episode, and so which transitions
may be drawn; whole episodes are dropped, oldest first, before their slots are written again.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

NoteShapes = Mapping[str, tuple[int, ...]]


class Replay(NamedTuple):
    """Device arrays of all agents; everything about slot i of an agent is in row i."""

    observation: Float[Array, "P N O"]
    action: Float[Array, "P N A"]
    extrinsic_reward: Float[Array, "P N"]
    terminated: Bool[Array, "P N"]
    state: Float[Array, "P N D"]  # the encoded observation
    sampleable: Int[Array, "P N"]  # a ring of the slots that may be drawn, in the order their episodes ended
    notes: dict[str, Array]  # each [P, N, ...]


class Records(NamedTuple):
    """New records of every agent and the slots they go to; slot N means padding."""

    observation: Float[Array, "P R O"]
    action: Float[Array, "P R A"]
    extrinsic_reward: Float[Array, "P R"]
    terminated: Bool[Array, "P R"]
    state: Float[Array, "P R D"]
    slot: Int[Array, "P R"]


class Transitions(NamedTuple):
    """A batch for one agent: what a reward may look at. `state` is that of the next observation."""

    observation: Float[Array, "B O"]
    action: Float[Array, "B A"]
    next_observation: Float[Array, "B O"]
    extrinsic_reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    state: Float[Array, "B D"]
    notes: dict[str, Array]  # each [B, ...]


class Episode(NamedTuple):
    """A finished episode of one agent, padded: row t is its t-th transition, `state` that of the next observation."""

    observation: Float[Array, "T O"]
    action: Float[Array, "T A"]
    next_observation: Float[Array, "T O"]
    extrinsic_reward: Float[Array, " T"]
    terminated: Bool[Array, " T"]
    state: Float[Array, "T D"]
    mask: Bool[Array, " T"]  # False for padding
    step: Int[Array, " T"]  # environment steps the agent had taken before each transition


def create(
    num_agents: int, capacity: int, observation_dim: int, action_dim: int, state_dim: int, note_shapes: NoteShapes
) -> Replay:
    """An empty replay of `capacity` slots per agent."""
    shape = (num_agents, capacity)
    return Replay(
        observation=jnp.zeros((*shape, observation_dim)),
        action=jnp.zeros((*shape, action_dim)),
        extrinsic_reward=jnp.zeros(shape),
        terminated=jnp.zeros(shape, bool),
        state=jnp.zeros((*shape, state_dim)),
        sampleable=jnp.zeros(shape, jnp.int32),
        notes={name: jnp.zeros((*shape, *rest)) for name, rest in note_shapes.items()},
    )


def add(replay: Replay, records: Records) -> Replay:
    """Write records into their slots. They cannot be sampled yet."""
    agent = jnp.arange(replay.observation.shape[0])[:, None]

    def write(stored: Array, new: Array) -> Array:
        return stored.at[agent, records.slot].set(new, mode="drop")

    return replay._replace(
        observation=write(replay.observation, records.observation),
        action=write(replay.action, records.action),
        extrinsic_reward=write(replay.extrinsic_reward, records.extrinsic_reward),
        terminated=write(replay.terminated, records.terminated),
        state=write(replay.state, records.state),
    )


def read_episode(
    replay: Replay,
    agent: Int[Array, ""],
    start: Int[Array, ""],
    length: Int[Array, ""],
    step: Int[Array, ""],
    rows: int,
) -> Episode:
    """The episode of `length` transitions that begins at slot `start`, padded to `rows`."""
    row = jnp.arange(rows, dtype=jnp.int32)
    slot = (start + row) % replay.observation.shape[1]
    next_slot = (slot + 1) % replay.observation.shape[1]
    return Episode(
        observation=replay.observation[agent, slot],
        action=replay.action[agent, slot],
        next_observation=replay.observation[agent, next_slot],
        extrinsic_reward=replay.extrinsic_reward[agent, slot],
        terminated=replay.terminated[agent, slot],
        state=replay.state[agent, next_slot],
        mask=row < length,
        step=step + row,
    )


def release_episode(
    replay: Replay,
    agent: Int[Array, ""],
    start: Int[Array, ""],
    length: Int[Array, ""],
    sample_head: Int[Array, ""],
    notes: Mapping[str, Array],
    rows: int,
) -> Replay:
    """Note what the reward said of a finished episode, and let its transitions be sampled."""
    capacity = replay.observation.shape[1]
    row = jnp.arange(rows, dtype=jnp.int32)
    present = row < length
    slot = jnp.where(present, (start + row) % capacity, capacity)  # padding is dropped
    position = jnp.where(present, (sample_head + row) % capacity, capacity)
    written = {name: stored.at[agent, slot].set(notes[name], mode="drop") for name, stored in replay.notes.items()}
    return replay._replace(sampleable=replay.sampleable.at[agent, position].set(slot, mode="drop"), notes=written)


def sample(
    replay: Replay, key: PRNGKeyArray, batch_size: int, sample_tail: Int[Array, ""], sample_count: Int[Array, ""]
) -> Transitions:
    """Transitions drawn uniformly, with replacement, from those released. One agent: no array has the axis P here."""
    capacity = replay.observation.shape[0]
    drawn = jax.random.randint(key, (batch_size,), 0, jnp.maximum(sample_count, 1))
    slot = replay.sampleable[(sample_tail + drawn) % capacity]
    next_slot = (slot + 1) % capacity
    return Transitions(
        observation=replay.observation[slot],
        action=replay.action[slot],
        next_observation=replay.observation[next_slot],
        extrinsic_reward=replay.extrinsic_reward[slot],
        terminated=replay.terminated[slot],
        state=replay.state[next_slot],
        notes={name: stored[slot] for name, stored in replay.notes.items()},
    )


class FinishedEpisode(NamedTuple):
    """Where a finished episode stands in the ring of one agent."""

    agent: int
    start: int  # slot of its first transition
    length: int  # transitions
    step: int  # environment steps the agent had taken before it
    sample_head: int  # where its slots go in the ring of sampleable slots


class Ledger:
    """Which slots of each agent's ring hold what. Plain integers, mirrored nowhere on the device."""

    def __init__(self, num_agents: int, capacity: int, longest_episode: int, chunk_records: int) -> None:
        needed = 2 * (longest_episode + 1) + chunk_records
        if capacity < needed:
            raise ValueError(
                f"A replay of {capacity} transitions is too small: with episodes of up to {longest_episode} steps "
                f"it needs at least {needed}."
            )
        self.capacity = capacity
        self.head = np.zeros(num_agents, np.int64)  # next slot to write
        self.used = np.zeros(num_agents, np.int64)  # slots in use, the running episode's included
        self.written = np.zeros(num_agents, np.int64)  # records ever written
        self.running_start = np.zeros(num_agents, np.int64)  # slot where the running episode began
        self.running_length = np.zeros(num_agents, np.int64)  # its transitions so far
        self.steps = np.zeros(num_agents, np.int64)  # environment steps of all finished episodes
        self.sample_tail = np.zeros(num_agents, np.int64)  # oldest entry of the ring of sampleable slots
        self.sample_count = np.zeros(num_agents, np.int64)
        self._lengths: list[deque[int]] = [deque() for _ in range(num_agents)]  # of the finished episodes stored

    def place(
        self, final: Bool[np.ndarray, "P R"], count: Int[np.ndarray, " P"]
    ) -> tuple[Int[np.ndarray, "P R"], list[FinishedEpisode]]:
        """Slots for new records, dropping the oldest episodes to make room, and the episodes that end among them."""
        num_agents, rows = final.shape
        for agent in range(num_agents):
            self._make_room(agent, int(count[agent]))
        row = np.arange(rows)[None, :]
        slots = np.where(row < count[:, None], (self.head[:, None] + row) % self.capacity, self.capacity)
        finished = []
        for agent in range(num_agents):
            finished += self._advance(agent, np.flatnonzero(final[agent, : count[agent]]), int(count[agent]))
        return slots.astype(np.int32), finished

    def filled(self, agent: int) -> int:
        """Slots from 0 on that may hold something: all of them once the ring has come round."""
        return int(self.head[agent]) if self.written[agent] < self.capacity else self.capacity

    def running_slots(self, agent: int) -> Int[np.ndarray, " T"]:
        """Slots of the running episode's transitions."""
        return (self.running_start[agent] + np.arange(self.running_length[agent])) % self.capacity

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        fields = ("head", "used", "written", "running_start", "running_length", "steps", "sample_tail", "sample_count")
        arrays = {name: getattr(self, name) for name in fields}
        lengths = {f"lengths_{agent}": np.array(kept, np.int64) for agent, kept in enumerate(self._lengths)}
        return arrays | lengths

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        for name, array in arrays.items():
            if name.startswith("lengths_"):
                self._lengths[int(name.removeprefix("lengths_"))] = deque(array.tolist())
            else:
                getattr(self, name)[:] = array

    def _make_room(self, agent: int, count: int) -> None:
        while self.used[agent] + count > self.capacity:
            length = self._lengths[agent].popleft()
            self.used[agent] -= length + 1
            self.sample_tail[agent] = (self.sample_tail[agent] + length) % self.capacity
            self.sample_count[agent] -= length

    def _advance(self, agent: int, final_rows: Int[np.ndarray, " F"], count: int) -> list[FinishedEpisode]:
        finished = []
        first = 0
        for row in [*final_rows.tolist(), None]:
            length = int(self.running_length[agent]) + (count if row is None else row) - first
            if row is None:
                self.running_length[agent] = length
                break
            start = int(self.running_start[agent])
            sample_head = int((self.sample_tail[agent] + self.sample_count[agent]) % self.capacity)
            finished.append(FinishedEpisode(agent, start, length, int(self.steps[agent]), sample_head))
            self.steps[agent] += length
            self.sample_count[agent] += length
            self._lengths[agent].append(length)
            self.running_start[agent] = (start + length + 1) % self.capacity
            self.running_length[agent] = 0
            first = row + 1
        self.head[agent] = (self.head[agent] + count) % self.capacity
        self.used[agent] += count
        self.written[agent] += count
        return finished
