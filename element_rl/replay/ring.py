"""The replay: a ring of records with notes, on the device; `replay.ledger` keeps its books.

Arrays carry the population axis P. Records arrive in chunks, in time order; an observation is
stored once, the record after it holds its successor, and each episode ends with one record
(`final`) that has a last observation and no action.

    slot      i       i+1      i+2      i+3
    record    o0 a0   o1 a1    o2 –     o0 a0 …    an episode of two transitions, then the next one

Transition i is (o_i, a_i, o_{i+1}), and its *notes* (what an intrinsic reward wrote down about it)
stand in slot i. It can be sampled once its episode has ended or, where that is wanted, while it
runs: then it is noted as the episode is so far, and again when it has ended. The ledger knows which
slots belong to which episode, and so which transitions may be drawn; whole episodes are dropped,
oldest first, before their slots are written again.

An agent may act in E environments. Each has every E-th slot of the agent's ring, from slot e on,
for a ring of its own: what is said above of slots i and i + 1 then holds of slots i and i + E. With
E = 1 they are the same. The step of a transition counts those of all environments, which take
turns: the t-th of environment e is step t E + e of the agent.

The record after a `final` one begins the environment's next episode. So where the return of a
transition goes on in the next episode (`--falls reset`), its beginning is found without any index:
`next_beginning`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

NoteShapes = Mapping[str, tuple[int, ...]]
Seen = TypeVar("Seen", "Transitions", "Episode")


class Replay(NamedTuple):
    """Device arrays of all agents; everything about slot i of an agent is in row i."""

    observation: Float[Array, "P N O"]
    action: Float[Array, "P N A"]
    extrinsic_reward: Float[Array, "P N"]
    terminated: Bool[Array, "P N"]
    state: Float[Array, "P N D"]  # the encoded observation
    # rings of the slots that may be drawn, in the order their episodes ended
    sampleable: Int[Array, "P N"]
    notes: dict[str, Array]  # each [P, N, ...]
    # where each observation was made, as learners are told it; None where they are told nothing
    place: Float[Array, "P N 2"] | None = None


class Records(NamedTuple):
    """New records of every agent and the slots they go to; slot N means padding."""

    observation: Float[Array, "P R O"]
    action: Float[Array, "P R A"]
    extrinsic_reward: Float[Array, "P R"]
    terminated: Bool[Array, "P R"]
    state: Float[Array, "P R D"]
    slot: Int[Array, "P R"]
    place: Float[Array, "P R 2"] | None = None


class Transitions(NamedTuple):
    """A batch for one agent: what a reward may look at. `state` is that of the next observation,
    `state_before` that of the observation, where it is known."""

    observation: Float[Array, "B O"]
    action: Float[Array, "B A"]
    next_observation: Float[Array, "B O"]
    extrinsic_reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    state: Float[Array, "B D"]
    notes: dict[str, Array]  # each [B, ...]
    state_before: Float[Array, "B D"] | None = None


class Episode(NamedTuple):
    """A finished episode of one agent, padded: row t is its t-th transition, `state` that of the
    next observation, `state_before` that of the observation, where it is known."""

    observation: Float[Array, "T O"]
    action: Float[Array, "T A"]
    next_observation: Float[Array, "T O"]
    extrinsic_reward: Float[Array, " T"]
    terminated: Bool[Array, " T"]
    state: Float[Array, "T D"]
    mask: Bool[Array, " T"]  # False for padding
    step: Int[Array, " T"]  # environment steps the agent had taken before each transition
    state_before: Float[Array, "T D"] | None = None
    # transitions that it would come to in all, if it is seen while it runs or was cut off early
    whole: Int[Array, ""] | None = None


def create(
    num_agents: int,
    capacity: int,
    observation_dim: int,
    action_dim: int,
    state_dim: int,
    note_shapes: NoteShapes,
    places: bool = False,
) -> Replay:
    """An empty replay of `capacity` slots per agent; with room for `places` where learners are told
    them."""
    shape = (num_agents, capacity)
    return Replay(
        observation=jnp.zeros((*shape, observation_dim)),
        action=jnp.zeros((*shape, action_dim)),
        extrinsic_reward=jnp.zeros(shape),
        terminated=jnp.zeros(shape, bool),
        state=jnp.zeros((*shape, state_dim)),
        sampleable=jnp.zeros(shape, jnp.int32),
        notes={name: jnp.zeros((*shape, *rest)) for name, rest in note_shapes.items()},
        place=jnp.zeros((*shape, 2)) if places else None,
    )


def add(replay: Replay, records: Records) -> Replay:
    """Write records into their slots. They cannot be sampled yet."""
    agent = jnp.arange(replay.observation.shape[0])[:, None]

    def write(stored: Array | None, new: Array) -> Array:
        assert stored is not None  # places are told from the first record on, or never
        return stored.at[agent, records.slot].set(new, mode="drop")

    return replay._replace(
        observation=write(replay.observation, records.observation),
        action=write(replay.action, records.action),
        extrinsic_reward=write(replay.extrinsic_reward, records.extrinsic_reward),
        terminated=write(replay.terminated, records.terminated),
        state=write(replay.state, records.state),
        place=None if records.place is None else write(replay.place, records.place),
    )


def read_episode(
    replay: Replay,
    agent: Int[Array, ""] | None,
    start: Int[Array, ""],
    length: Int[Array, ""],
    step: Int[Array, ""],
    rows: int,
    num_envs: int = 1,
    whole: Int[Array, ""] | None = None,
) -> Episode:
    """The episode of `length` transitions that begins at slot `start`, padded to `rows`. No
    `agent`: the arrays are those of one, without the axis P."""
    capacity = replay.sampleable.shape[-1]
    row = jnp.arange(rows, dtype=jnp.int32)
    slot = (start + num_envs * row) % capacity
    here, there = _of_agent(agent, slot), _of_agent(agent, (slot + num_envs) % capacity)
    return Episode(
        observation=replay.observation[here],
        action=replay.action[here],
        next_observation=replay.observation[there],
        extrinsic_reward=replay.extrinsic_reward[here],
        terminated=replay.terminated[here],
        state=replay.state[there],
        mask=row < length,
        step=step + num_envs * row,
        state_before=replay.state[here],
        whole=whole,
    )


def release_episode(
    replay: Replay,
    agent: Int[Array, ""] | None,
    start: Int[Array, ""],
    length: Int[Array, ""],
    sample_head: Int[Array, ""],
    notes: Mapping[str, Array],
    rows: int,
    num_envs: int = 1,
) -> Replay:
    """Note what the reward said of an episode, and let its transitions be sampled; `agent` as in
    `read_episode`."""
    capacity = replay.sampleable.shape[-1]
    row = jnp.arange(rows, dtype=jnp.int32)
    present = row < length
    slot = jnp.where(present, (start + num_envs * row) % capacity, capacity)  # padding is dropped
    position = jnp.where(present, (sample_head + num_envs * row) % capacity, capacity)
    written = {
        name: stored.at[_of_agent(agent, slot)].set(notes[name], mode="drop")
        for name, stored in replay.notes.items()
    }
    entries = _of_agent(agent, position)
    return replay._replace(
        sampleable=replay.sampleable.at[entries].set(slot, mode="drop"), notes=written
    )


def _of_agent(agent: Int[Array, ""] | None, slot: Int[Array, " T"]) -> Any:
    """The index of these slots of an agent."""
    return slot if agent is None else (agent, slot)


class Drawn(NamedTuple):
    """Transitions by where they stand in the ring of one agent."""

    slot: Int[Array, " B"]
    next_slot: Int[Array, " B"]  # of the next observation
    env: Int[Array, " B"]


def sample(
    replay: Replay,
    key: PRNGKeyArray,
    batch_size: int,
    sample_tail: Int[Array, " E"],
    sample_count: Int[Array, " E"],
) -> Transitions:
    """Transitions drawn uniformly, with replacement, from those released. One agent: no array has
    the axis P here."""
    return transitions(replay, draw(replay, key, batch_size, sample_tail, sample_count))


def draw(
    replay: Replay,
    key: PRNGKeyArray,
    batch_size: int,
    sample_tail: Int[Array, " E"],
    sample_count: Int[Array, " E"],
) -> Drawn:
    """Which transitions `sample` draws."""
    capacity, num_envs = replay.observation.shape[0], sample_tail.shape[0]
    ends = jnp.cumsum(sample_count)
    drawn = jax.random.randint(key, (batch_size,), 0, jnp.maximum(ends[-1], 1))
    # the environment it falls to
    env = jnp.sum(drawn[:, None] >= ends[None, :-1], axis=1, dtype=jnp.int32)
    nth = drawn - (ends - sample_count)[env]
    slot = replay.sampleable[(sample_tail[env] + num_envs * nth) % capacity]
    return Drawn(slot, (slot + num_envs) % capacity, env)


def transitions(replay: Replay, drawn: Drawn) -> Transitions:
    """What stands there, of one agent."""
    slot, next_slot, _ = drawn
    return Transitions(
        observation=replay.observation[slot],
        action=replay.action[slot],
        next_observation=replay.observation[next_slot],
        extrinsic_reward=replay.extrinsic_reward[slot],
        terminated=replay.terminated[slot],
        state=replay.state[next_slot],
        notes={name: stored[slot] for name, stored in replay.notes.items()},
        state_before=replay.state[slot],
    )


def next_beginning(
    replay: Replay, drawn: Drawn, heads: Int[Array, " E"], latest: Int[Array, " E"]
) -> Int[Array, " B"]:
    """Slots where the episodes after those of the drawn transitions begin, if these were the last
    of theirs; of one agent.

    It is the slot after the last observation. Only one may not be written yet, that of an episode
    which ended with the last record of all (`heads`); until it is, the episode's own first slot
    (`latest`) stands for it: another draw of the same resets.
    """
    slot = (drawn.next_slot + heads.shape[0]) % replay.observation.shape[0]
    return jnp.where(slot == heads[drawn.env], latest[drawn.env], slot)


def seen_as_states(seen: Seen, latent_dim: int = 0) -> Seen:
    """The same transitions, or episode, with states where the observations were. The last
    `latent_dim` columns of these, which no state holds, stay after the state."""
    if seen.state_before is None:
        raise ValueError("The states of the observations are not known, only those of the next.")
    before, after = seen.state_before, seen.state
    if latent_dim:
        before, after = (
            jnp.concatenate([state, observed[..., -latent_dim:]], axis=-1)
            for state, observed in ((before, seen.observation), (after, seen.next_observation))
        )
    return seen._replace(observation=before, next_observation=after)


def without_latent(seen: Seen, latent_dim: int) -> Seen:
    """The same transitions, or episode, without the last `latent_dim` columns of the observations:
    for a reward that needs no latent, beside one that does."""
    width = seen.observation.shape[-1] - latent_dim
    return seen._replace(
        observation=seen.observation[..., :width],
        next_observation=seen.next_observation[..., :width],
    )
