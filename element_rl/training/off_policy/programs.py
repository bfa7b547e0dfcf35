"""The programs that change a population on the device; `Learner` compiles and calls them.

ingest         new records are encoded and written to the replay
finish_all     episodes ended: the reward observes them, their notes are written, and where
               states entered a memory all stored notes of the agent are refreshed. What a reward
               makes of an episode alone (`Measures`) is computed for several at once
finish_rounds  the same for episodes that feed no memory, one of every agent at a time: on an
               accelerator one matrix product of many is faster than many. Also for episodes that
               still run: they are noted as they are so far, and the reward forgets that it saw them
update         K × (sample, reward, learn) for all agents

Where agents are shared out over several devices, each device runs these with its own agents alone
(`population`): P is their number, and agents are counted among them.
"""

from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from element_rl.agents.contract import Agent, Anchor
from element_rl.agents.networks import over_population
from element_rl.entropy import evaluation_entropy
from element_rl.replay import ring
from element_rl.replay.ring import Records, Replay
from element_rl.rewards import Reward
from element_rl.rewards.interface import Inputs, Remembers, measuring
from element_rl.training.off_policy.view import PLAIN, View, learned_from, placed

# Where the environment's reward is added: its mean over the batch, before its weight, and that of
# what the agent learns from.
REWARD_COLUMNS = ("reward_extrinsic", "reward_learned")


class Sees(NamedTuple):
    """What a reward sees where the agent sees observations; hashable, so it can be static under
    jit."""

    inputs: Inputs = "own"
    latent_dim: int = 0  # last columns of the observations, which are no part of states


AS_IT_IS = Sees()


def seen_by_reward(seen: Any, sees: Sees) -> Any:
    """Transitions, or an episode, as the reward is given them."""
    return seen if sees.inputs == "own" else ring.seen_as_states(seen, sees.latent_dim)


def as_records(
    observation: Float[Array, "L R O"],
    action: Float[Array, "L R A"],
    flags: Float[Array, "L R 2"],
    position: Float[Array, "L R C"],
    num_envs: int,
) -> Float[Array, "P M F"]:
    """Parts of a chunk of worlds as `ingest` takes them."""
    together = jnp.concatenate([observation, action, flags, position], axis=-1, dtype=jnp.float32)
    return together.reshape(len(together) // num_envs, -1, together.shape[-1])


def ingest(
    replay: Replay,
    encoders: Any,
    records: Float[Array, "P R F"],
    slot: Int[Array, "P R"],
    view: View = PLAIN,
) -> Replay:
    """`records`: observation, action, extrinsic reward, terminated and position side by side."""
    widths = (replay.observation.shape[-1], replay.action.shape[-1], 1, 1)
    observation, action, extrinsic_reward, terminated, position = jnp.split(
        records, np.cumsum(widths), axis=-1
    )
    # over agents, then over their records
    encode = jax.vmap(lambda encoder, o, p: jax.vmap(encoder)(o, p))
    state = encode(encoders, observation, position)
    flags = extrinsic_reward[..., 0], terminated[..., 0] > 0
    place = placed(view, position)
    return ring.add(replay, Records(observation, action, *flags, state, slot, place))


def finish_all(
    reward: Reward,
    memory: Remembers | None,
    sees: Sees,
    num_envs: int,
    replay: Replay,
    rewards: Any,
    # with an axis for the device in front, of length 1
    where: Int[Array, "1 L 7"],
    number: Int[Array, "1"],
    neighbour_distances: Float[Array, "1 L T K"] | None,
    rows: int,
    remembers: bool,
    together: int = 1,
) -> tuple[Replay, Any]:
    """The first `number` episodes of `where`, one after the other.

    What the reward measures of an episode alone it measures of so many `together`, before the first
    of these enters a memory: one product of many matrices is faster than many, one after the other.
    L is a multiple of `together`.
    """
    measure = measuring(reward) if together > 1 else None

    def measured(replay: Replay, group: Int[Array, "G 7"]) -> Any:
        def of_one(where: Int[Array, "7"]) -> Any:
            agent, start, length, step, _, whole, _ = where
            episode = ring.read_episode(replay, agent, start, length, step, rows, num_envs, whole)
            return measure(seen_by_reward(episode, sees)) if measure else None

        return jax.vmap(of_one)(group) if measure else None

    def finish_group(index: Array, carry: tuple[Replay, Any]) -> tuple[Replay, Any]:
        first = index * together
        found = measured(carry[0], jax.lax.dynamic_slice_in_dim(where[0], first, together))

        def finish(place: Array, carry: tuple[Replay, Any]) -> tuple[Replay, Any]:
            row = first + place
            distances = None if neighbour_distances is None else neighbour_distances[0, row]
            own = jax.tree.map(lambda leaf: leaf[place], found)
            known = where[0, row], distances, own
            return _finish(reward, memory, sees, num_envs, *carry, *known, rows, remembers)

        return jax.lax.fori_loop(0, jnp.minimum(number[0] - first, together), finish, carry)

    return jax.lax.fori_loop(0, -(-number[0] // together), finish_group, (replay, rewards))


def finish_rounds(
    reward: Reward,
    sees: Sees,
    num_envs: int,
    replay: Replay,
    rewards: Any,
    where: Int[Array, "R P 6"],
    number: Int[Array, ""],
    # of the episodes, where the memory is on the host
    neighbour_distances: Float[Array, "R P T K"] | None,
    rows: int,
    running: bool = False,
) -> tuple[Replay, Any]:
    """The first `number` rounds of `where`. In each every agent has an episode, or one of no
    transitions, which changes nothing."""

    def of_agent(
        replay: Replay, state: Any, where: Int[Array, "6"], distances: Any
    ) -> tuple[Replay, Any]:
        _, start, length, step, sample_head, whole = where
        episode = ring.read_episode(replay, None, start, length, step, rows, num_envs, whole)
        known = () if distances is None else (distances,)
        new_state, notes = reward.observe(state, seen_by_reward(episode, sees), *known)
        replay = ring.release_episode(
            replay, None, start, length, sample_head, notes, rows, num_envs
        )
        if running:
            return replay, state
        state = jax.tree.map(
            lambda old, new: old if new is old else jnp.where(length > 0, new, old),
            state,
            new_state,
        )
        return replay, state

    def finish(index: Array, carry: tuple[Replay, Any]) -> tuple[Replay, Any]:
        distances = None if neighbour_distances is None else neighbour_distances[index]
        return jax.vmap(of_agent)(*carry, where[index], distances)

    return jax.lax.fori_loop(0, number, finish, (replay, rewards))


def _finish(
    reward: Reward,
    memory: Remembers | None,
    sees: Sees,
    num_envs: int,
    replay: Replay,
    rewards: Any,
    where: Int[Array, "7"],
    neighbour_distances: Float[Array, "T K"] | None,
    measured: Any,  # of the episode alone; None: nothing yet
    rows: int,
    remembers: bool,
) -> tuple[Replay, Any]:
    """One agent's episode, by index: slicing the population for it would copy every replay."""
    # a `StoredEpisode`, what it would come to in all, and how much of the ring is filled
    agent, start, length, step, sample_head, whole, filled = where
    episode = ring.read_episode(replay, agent, start, length, step, rows, num_envs, whole)
    episode = seen_by_reward(episode, sees)
    state = jax.tree.map(lambda leaf: leaf[agent], rewards)
    known: dict[str, Any] = {} if measured is None else {"measured": measured}
    if neighbour_distances is None:
        new_state, notes = reward.observe(state, episode, **known)
    else:
        assert memory is not None
        new_state, notes = memory.observe(state, episode, neighbour_distances, **known)
    replay = ring.release_episode(replay, agent, start, length, sample_head, notes, rows, num_envs)
    if remembers:
        assert memory is not None
        place = (agent, start, filled)
        replay = _refresh_notes(memory, num_envs, replay, state, new_state, episode, *place)
    # Networks are large and no episode changes them: what `observe` has left alone is not written
    # back.
    rewards = jax.tree.map(
        lambda leaf, old, new: leaf if new is old else leaf.at[agent].set(new),
        rewards,
        state,
        new_state,
    )
    return replay, rewards


def _refresh_notes(
    memory: Remembers,
    num_envs: int,
    replay: Replay,
    before: Any,
    after: Any,
    episode: ring.Episode,
    agent: Int[Array, ""],
    start: Int[Array, ""],
    filled: Int[Array, ""],
) -> Replay:
    """Bring every stored note of the agent up to date with its memory, which an episode has fed."""
    capacity = replay.observation.shape[1]
    row = jnp.arange(len(episode.mask), dtype=jnp.int32)
    slots = jnp.where(episode.mask, (start + num_envs * row) % capacity, capacity)

    def refresh(notes: dict[str, Array]) -> dict[str, Array]:
        # the note in slot i is about the state in slot i + E
        next_states = jnp.roll(replay.state[agent], -num_envs, axis=0)
        return memory.refresh(before, after, episode, slots, notes, next_states, filled)

    notes = {name: stored[agent] for name, stored in replay.notes.items()}
    changed = memory.notes_change(before, after)
    refreshed = jax.lax.cond(changed, refresh, lambda same: same, notes)
    return replay._replace(
        notes={name: replay.notes[name].at[agent].set(refreshed[name]) for name in replay.notes}
    )


def update(
    reward: Reward,
    functions: Agent,
    num_updates: int,
    agents: Any,
    rewards: Any,
    replay: Replay,
    # tails and counts of each agent's rings of sampleable slots, and what else the view needs
    sampleable: Int[Array, "P S E"],
    seeds: UInt[Array, " P"],
    first_update: UInt[Array, ""],
    critic_warmup: UInt[Array, ""] | None = None,
    anchor: Any = None,
    anchor_weight: Float[Array, ""] | float = 0.0,  # at the first update
    anchor_halflife: Float[Array, ""] | float = inf,
    extrinsic_weight: float = 0.0,  # of the environment's reward, beside the other
    view: View = PLAIN,  # what the agent learns from, beside what the reward sees
    sees: Sees = AS_IT_IS,
) -> tuple[Any, Any, dict[str, Array], dict[str, Array]]:
    """The learning part of Algorithm 3, `num_updates` times, for all agents."""

    def learn(
        agent: Any, state: Any, replay: Replay, sampleable: Array, seed: Array, near: Any
    ) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), 2)

        def step(carry: Any, index: Array) -> Any:
            agent, state = carry
            keys = jax.random.split(jax.random.fold_in(key, index), 3)
            drawn = ring.draw(replay, keys[0], functions.batch_size, sampleable[0], sampleable[1])
            batch = ring.transitions(replay, drawn)
            seen = seen_by_reward(batch, sees)
            state, reward_metrics = reward.update(state, seen, keys[1])
            values = reward.reward(state, seen)
            terms = {
                name: jnp.mean(term) for name, term in reward.reward_terms(state, seen).items()
            }
            if extrinsic_weight:
                values = values + extrinsic_weight * batch.extrinsic_reward
                terms |= dict(
                    zip(
                        REWARD_COLUMNS,
                        (jnp.mean(batch.extrinsic_reward), jnp.mean(values)),
                        strict=True,
                    )
                )
            learned = learned_from(view, replay, drawn, batch, values, sampleable[2:])
            actor_learns = None if critic_warmup is None else index >= critic_warmup
            if functions.policy_delay > 1:
                due = (index + 1) % functions.policy_delay == 0
                actor_learns = due if actor_learns is None else due & actor_learns
            weight = anchor_weight * jnp.exp2(-index.astype(jnp.float32) / anchor_halflife)
            held = None if anchor is None else Anchor(near, weight)
            agent, metrics = functions.update(
                agent, learned, keys[2], actor_learns=actor_learns, anchor=held
            )
            return (agent, state), metrics | reward_metrics | terms

        indices = first_update + jnp.arange(num_updates, dtype=jnp.uint32)
        (agent, state), metrics = jax.lax.scan(step, (agent, state), indices)
        # of the actor in those updates that were its own
        some = functions.metric_names if functions.policy_delay > 1 else ()
        return (
            agent,
            state,
            {
                name: (jnp.nanmean if name in some else jnp.mean)(values)
                for name, values in metrics.items()
            },
        )

    mapped = over_population(learn)
    agents, rewards, metrics = mapped(agents, rewards, replay, sampleable, seeds, anchor)
    return agents, rewards, metrics, functions.policy(agents)


def evaluation_entropies(
    num_envs: int,
    states: Float[Array, "P N D"],
    start: Int[Array, " P"],
    length: Int[Array, " P"],
    rows: int,
) -> Float[Array, " P"]:
    def one(arguments: tuple[Array, Array, Array]) -> Array:
        agent, first, count = arguments
        episode = episode_states(num_envs, states, agent, first, rows)
        return evaluation_entropy(episode, jnp.arange(rows) < count)

    return jax.lax.map(one, (jnp.arange(states.shape[0]), start, length))


def episode_states(
    num_envs: int,
    states: Float[Array, "P N D"],
    agent: Int[Array, ""],
    start: Int[Array, ""],
    rows: int,
) -> Float[Array, "T D"]:
    """s_1 … s_T of an episode: the states of its next observations, followed by whatever comes
    after."""
    return states[agent, (start + num_envs * (1 + jnp.arange(rows))) % states.shape[1]]
