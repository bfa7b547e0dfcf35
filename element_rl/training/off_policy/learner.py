"""The device side of training: replay, rewards and agents of a population, and the few programs
that change them.

    ingest     new records are encoded and written to the replay; once per chunk
    finish     episodes ended: the reward observes them, their notes are written, and where states
               entered a memory all stored notes of the agent are merged; once per kind of episode
    update     K × (sample, reward, learn) for all agents in one call; once per chunk

Every program is compiled once per shape and donates what it replaces. Numbers that change (slots,
counts, agents) are arguments; nothing is traced again while training.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from element_rl.acting.collector import Chunk
from element_rl.agents.contract import Agent, Anchor, Batch
from element_rl.agents.networks import over_population
from element_rl.encoders.state import make_state_encoder
from element_rl.entropy import evaluation_entropy
from element_rl.envs.robots import EnvSpec
from element_rl.memory.exact import NO_NODE
from element_rl.memory.hnsw import HnswMemory
from element_rl.replay import ring
from element_rl.replay.ring import FinishedEpisode, Ledger, Records, Replay
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.interface import Remembers, remembering

EPISODE_BUCKETS = (128, 256, 512)  # padded lengths; longer episodes take the environment's limit
# Where the environment's reward is added: its mean over the batch, before its weight, and that of
# what SAC learns from.
REWARD_COLUMNS = ("reward_extrinsic", "reward_learned")


class LearnerState(NamedTuple):
    """Everything on the device that training changes; each leaf has the population axis P first."""

    agents: Any
    rewards: Any
    replay: Replay
    anchor: Any = None  # policies that the actors are held near, where they are


class Learner:
    """A population of agents that learn from one kind of reward, each from its own replay."""

    def __init__(
        self,
        spec: EnvSpec,
        reward: Reward,
        agent: Agent,
        agent_seeds: Sequence[int],
        capacity: int,
        chunk_steps: int,
        total_steps: int,
        num_envs: int = 1,
        extrinsic_weight: float = 0.0,
    ) -> None:
        self.spec, self.reward, self.agent, self.chunk_steps = spec, reward, agent, chunk_steps
        self.seeds = jnp.asarray(agent_seeds, jnp.uint32)
        capacity -= capacity % num_envs
        self.num_envs = num_envs
        records = 2 * chunk_steps // num_envs  # of an environment in a chunk, at most
        self.ledger = Ledger(len(agent_seeds), capacity, spec.max_episode_steps, records, num_envs)
        self._encoders = _stacked(
            [
                make_state_encoder(seed, spec.observation_dim, spec.orientation_slice)
                for seed in agent_seeds
            ]
        )
        state_dim = 5 + spec.position_dim + spec.orientation_dim
        reward_spec = RewardSpec(
            spec.observation_dim, spec.action_dim, state_dim, spec.max_episode_steps, total_steps
        )
        keys = jax.vmap(jax.random.key)(self.seeds)
        self.state = LearnerState(
            agents=jax.vmap(agent.create)(keys),
            rewards=jax.vmap(lambda key: reward.init(jax.random.fold_in(key, 1), reward_spec))(
                keys
            ),
            replay=ring.create(
                len(agent_seeds),
                capacity,
                spec.observation_dim,
                spec.action_dim,
                state_dim,
                reward.note_shapes(),
            ),
        )
        self._memory = remembering(reward)
        on_host = self._memory is not None and self._memory.memory_on_host
        self.host_memories = [HnswMemory(state_dim) for _ in agent_seeds] if on_host else []
        self.updates = 0
        self.critic_warmup = 0  # updates, from the first, in which the critics learn alone
        self.anchor_weight = 0.0  # what leaving `state.anchor` costs
        self.anchor_halflife = inf  # updates in which that halves
        self._ingest = jax.jit(_ingest, donate_argnums=0)
        self._finish = jax.jit(
            partial(_finish_all, reward, self._memory, num_envs),
            static_argnames=("rows", "remembers"),
            donate_argnums=(0, 1),
        )
        update = partial(_update, reward, agent, chunk_steps, extrinsic_weight=extrinsic_weight)
        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._entropies = jax.jit(partial(_evaluation_entropies, num_envs), static_argnames="rows")
        self._episode_states = jax.jit(partial(_episode_states, num_envs), static_argnames="rows")

    def ingest(self, chunk: Chunk) -> list[FinishedEpisode]:
        """Store a chunk and observe the episodes that ended in it."""
        finished = self._store(chunk)
        for round_ in _rounds(finished, self.num_envs):
            kinds = sorted({self._kind(episode) for episode in round_})
            for kind in kinds:
                self._observe([episode for episode in round_ if self._kind(episode) == kind], *kind)
        return finished

    def _store(self, chunk: Chunk) -> list[FinishedEpisode]:
        slots, finished = self.ledger.place(chunk.final, chunk.count)
        flags = np.stack([chunk.extrinsic_reward, chunk.terminated], axis=-1)
        records = [chunk.observation, chunk.action, flags, chunk.position]
        together = np.concatenate(records, axis=-1, dtype=np.float32)  # one transfer, not five
        agents = len(self.seeds)
        together, slots = (
            together.reshape(agents, -1, together.shape[-1]),
            slots.reshape(agents, -1),
        )
        replay = self._ingest(self.state.replay, self._encoders, together, slots)
        self.state = self.state._replace(replay=replay)
        return finished

    def update(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """K updates of every agent; their mean metrics and the new policy parameters, still on
        their way."""
        agents, rewards, metrics, parameters = self._update(
            self.state.agents,
            self.state.rewards,
            self.state.replay,
            self.ledger.sampleable(),
            self.seeds,
            np.uint32(self.updates),
            # None once it is over: then, and where there was none, the program is the ordinary one.
            np.uint32(self.critic_warmup) if self.updates < self.critic_warmup else None,
            self.state.anchor,
            np.float32(self.anchor_weight),
            np.float32(self.anchor_halflife),
        )
        self.state = self.state._replace(agents=agents, rewards=rewards)
        self.updates += self.chunk_steps
        return metrics, parameters

    def parameters(self) -> dict[str, np.ndarray]:
        """The policies as the environment workers take them, [P, ...]."""
        return jax.device_get(self.agent.policy(self.state.agents))

    def memory_sizes(self) -> Int[np.ndarray, " P"]:
        """Remembered states per agent."""
        if self._memory is None:
            return np.zeros(len(self.seeds), np.int64)
        return np.asarray(self._memory.memory_size(self.state.rewards)).astype(np.int64)

    def evaluation_entropies(
        self, start: Int[np.ndarray, " P"], length: Int[np.ndarray, " P"]
    ) -> Float[Array, " P"]:
        """`evaluation_entropy` of one episode per agent."""
        rows = self.spec.max_episode_steps
        return self._entropies(
            self.state.replay.state, start.astype(np.int32), length.astype(np.int32), rows=rows
        )

    def states_of(self, agent: int, start: int, length: int) -> Float[np.ndarray, "T D"]:
        """The states that an episode of an agent led to, on the host."""
        rows = self.spec.max_episode_steps
        states = self._episode_states(
            self.state.replay.state, np.int32(agent), np.int32(start), rows=rows
        )
        return np.asarray(states)[:length]

    def save_memories(self, folder: Path) -> None:
        """Write the memories that live on the host."""
        for agent, memory in enumerate(self.host_memories):
            memory.save(folder / f"memory_{agent}")

    def load_memories(self, folder: Path) -> None:
        self.host_memories = [
            HnswMemory.load(folder / f"memory_{i}") for i in range(len(self.host_memories))
        ]

    def _kind(self, episode: FinishedEpisode) -> tuple[int, bool]:
        """What a program that observes the episode is compiled for: its padded length, and whether
        states enter the memory."""
        rows = next(
            (bucket for bucket in EPISODE_BUCKETS if bucket >= episode.length),
            self.spec.max_episode_steps,
        )
        return min(rows, self.spec.max_episode_steps), bool(self._enters(episode).any())

    def _enters(self, episode: FinishedEpisode) -> Bool[np.ndarray, " T"]:
        """Which states of an episode enter the memory."""
        if self._memory is None:
            return np.zeros(episode.length, bool)
        return self._memory.enters(episode.step + self.num_envs * np.arange(episode.length))

    def _observe(self, episodes: Sequence[FinishedEpisode], rows: int, remembers: bool) -> None:
        """Observe episodes of one kind, of different environments, in one call: a call costs more
        than what it computes."""
        most = len(self.seeds) * self.num_envs
        where = np.zeros((most, 6), np.int32)
        where[: len(episodes)] = [
            (*episode, self.ledger.filled(episode.agent)) for episode in episodes
        ]
        distances = None
        if self.host_memories:
            asked = [self._ask_host_memory(episode, rows) for episode in episodes]
            distances = np.stack(asked + [np.full_like(asked[0], np.inf)] * (most - len(asked)))
        replay, rewards = self._finish(
            self.state.replay,
            self.state.rewards,
            where,
            np.int32(len(episodes)),
            distances,
            rows=rows,
            remembers=remembers,
        )
        self.state = self.state._replace(replay=replay, rewards=rewards)

    def _ask_host_memory(self, episode: FinishedEpisode, rows: int) -> Float[np.ndarray, "T K"]:
        assert self._memory is not None
        k = self._memory.num_neighbours
        states = self._episode_states(
            self.state.replay.state, episode.agent, episode.start, rows=rows
        )
        states = np.asarray(states)[: episode.length]
        memory = self.host_memories[episode.agent]
        distances = np.full((rows, k), np.inf, np.float32)
        distances[: episode.length] = memory.query(states, k)[0]
        memory.insert(states[self._enters(episode)])
        return distances


def _ingest(
    replay: Replay, encoders: Any, records: Float[Array, "P R F"], slot: Int[Array, "P R"]
) -> Replay:
    """`records`: observation, action, extrinsic reward, terminated and position side by side."""
    widths = (replay.observation.shape[-1], replay.action.shape[-1], 1, 1)
    observation, action, extrinsic_reward, terminated, position = jnp.split(
        records, np.cumsum(widths), axis=-1
    )
    # over agents, then over their records
    encode = jax.vmap(lambda encoder, o, p: jax.vmap(encoder)(o, p))
    state = encode(encoders, observation, position)
    return ring.add(
        replay,
        Records(observation, action, extrinsic_reward[..., 0], terminated[..., 0] > 0, state, slot),
    )


def _rounds(finished: Sequence[FinishedEpisode], num_envs: int) -> list[list[FinishedEpisode]]:
    """The first episode of every environment, then the second of those that have one, and so on."""
    rounds: list[list[FinishedEpisode]] = []
    seen: Counter[tuple[int, int]] = Counter()
    for episode in finished:
        environment = (episode.agent, episode.start % num_envs)
        if seen[environment] == len(rounds):
            rounds.append([])
        rounds[seen[environment]].append(episode)
        seen[environment] += 1
    return rounds


def _finish_all(
    reward: Reward,
    memory: Remembers | None,
    num_envs: int,
    replay: Replay,
    rewards: Any,
    where: Int[Array, "L 6"],
    number: Int[Array, ""],
    neighbour_distances: Float[Array, "L T K"] | None,
    rows: int,
    remembers: bool,
) -> tuple[Replay, Any]:
    """The first `number` episodes of `where`, one after the other."""

    def finish(index: Array, carry: tuple[Replay, Any]) -> tuple[Replay, Any]:
        distances = None if neighbour_distances is None else neighbour_distances[index]
        return _finish(reward, memory, num_envs, *carry, where[index], distances, rows, remembers)

    return jax.lax.fori_loop(0, number, finish, (replay, rewards))


def _finish(
    reward: Reward,
    memory: Remembers | None,
    num_envs: int,
    replay: Replay,
    rewards: Any,
    where: Int[Array, "6"],
    neighbour_distances: Float[Array, "T K"] | None,
    rows: int,
    remembers: bool,
) -> tuple[Replay, Any]:
    """One agent's episode, by index: slicing the whole population for it would copy every replay."""
    # a `FinishedEpisode` and how much of the ring is filled
    agent, start, length, step, sample_head, filled = where
    episode = ring.read_episode(replay, agent, start, length, step, rows, num_envs)
    state = jax.tree.map(lambda leaf: leaf[agent], rewards)
    if neighbour_distances is None:
        new_state, notes = reward.observe(state, episode)
    else:
        assert memory is not None
        new_state, notes = memory.observe(state, episode, neighbour_distances)
    replay = ring.release_episode(replay, agent, start, length, sample_head, notes, rows, num_envs)
    if remembers:
        assert memory is not None
        replay = _merge_notes(memory, num_envs, replay, episode, agent, start, filled, rows)
    # Networks are large and no episode changes them: what `observe` has left alone is not written
    # back.
    rewards = jax.tree.map(
        lambda leaf, old, new: leaf if new is old else leaf.at[agent].set(new),
        rewards,
        state,
        new_state,
    )
    return replay, rewards


def _merge_notes(
    memory: Remembers,
    num_envs: int,
    replay: Replay,
    episode: ring.Episode,
    agent: Int[Array, ""],
    start: Int[Array, ""],
    filled: Int[Array, ""],
    rows: int,
) -> Replay:
    """Merge every stored note of the agent with the states that have just entered its memory."""
    capacity = replay.observation.shape[1]
    entering = memory.entering(episode)
    slot = jnp.where(
        entering.rank == NO_NODE,
        capacity,
        (start + num_envs * jnp.arange(rows, dtype=jnp.int32)) % capacity,
    )
    own = jnp.full(capacity, NO_NODE, jnp.int32).at[slot].set(entering.rank, mode="drop")
    # the note in slot i is about the state in slot i + E
    next_states = jnp.roll(replay.state[agent], -num_envs, axis=0)
    notes = {name: stored[agent] for name, stored in replay.notes.items()}
    merged = memory.refresh(notes, next_states, entering, own, filled)
    return replay._replace(
        notes={name: replay.notes[name].at[agent].set(merged[name]) for name in replay.notes}
    )


def _update(
    reward: Reward,
    functions: Agent,
    num_updates: int,
    agents: Any,
    rewards: Any,
    replay: Replay,
    sampleable: Int[Array, "P 2 E"],  # tails and counts of each agent's rings of sampleable slots
    seeds: UInt[Array, " P"],
    first_update: UInt[Array, ""],
    critic_warmup: UInt[Array, ""] | None = None,
    anchor: Any = None,
    anchor_weight: Float[Array, ""] | float = 0.0,  # at the first update
    anchor_halflife: Float[Array, ""] | float = inf,
    extrinsic_weight: float = 0.0,  # of the environment's reward, beside the other
) -> tuple[Any, Any, dict[str, Array], dict[str, Array]]:
    """The learning part of Algorithm 3, `num_updates` times, for all agents."""

    def learn(
        agent: Any, state: Any, replay: Replay, sampleable: Array, seed: Array, near: Any
    ) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), 2)

        def step(carry: Any, index: Array) -> Any:
            agent, state = carry
            keys = jax.random.split(jax.random.fold_in(key, index), 3)
            batch = ring.sample(replay, keys[0], functions.batch_size, sampleable[0], sampleable[1])
            state, reward_metrics = reward.update(state, batch, keys[1])
            values = reward.reward(state, batch)
            terms = {
                name: jnp.mean(term) for name, term in reward.reward_terms(state, batch).items()
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
            learned = Batch(
                batch.observation, batch.action, values, batch.next_observation, batch.terminated
            )
            actor_learns = None if critic_warmup is None else index >= critic_warmup
            weight = anchor_weight * jnp.exp2(-index.astype(jnp.float32) / anchor_halflife)
            held = None if anchor is None else Anchor(near, weight)
            agent, metrics = functions.update(
                agent, learned, keys[2], actor_learns=actor_learns, anchor=held
            )
            return (agent, state), metrics | reward_metrics | terms

        indices = first_update + jnp.arange(num_updates, dtype=jnp.uint32)
        (agent, state), metrics = jax.lax.scan(step, (agent, state), indices)
        return agent, state, {name: jnp.mean(values) for name, values in metrics.items()}

    mapped = over_population(learn)
    agents, rewards, metrics = mapped(agents, rewards, replay, sampleable, seeds, anchor)
    return agents, rewards, metrics, functions.policy(agents)


def _evaluation_entropies(
    num_envs: int,
    states: Float[Array, "P N D"],
    start: Int[Array, " P"],
    length: Int[Array, " P"],
    rows: int,
) -> Float[Array, " P"]:
    def one(arguments: tuple[Array, Array, Array]) -> Array:
        agent, first, count = arguments
        episode = _episode_states(num_envs, states, agent, first, rows)
        return evaluation_entropy(episode, jnp.arange(rows) < count)

    return jax.lax.map(one, (jnp.arange(states.shape[0]), start, length))


def _episode_states(
    num_envs: int,
    states: Float[Array, "P N D"],
    agent: Int[Array, ""],
    start: Int[Array, ""],
    rows: int,
) -> Float[Array, "T D"]:
    """s_1 … s_T of an episode: the states of its next observations, followed by whatever comes
    after."""
    return states[agent, (start + num_envs * (1 + jnp.arange(rows))) % states.shape[1]]


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
