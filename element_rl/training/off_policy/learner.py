"""The device side of training: replay, rewards and agents of a population.

Every program (`programs`) is compiled once per shape and donates what it replaces. Numbers that
change (slots, counts, agents) are arguments; nothing is traced again while training.
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
from jaxtyping import Array, Bool, Float, Int

from element_rl.acting.collector import Chunk
from element_rl.agents.contract import Agent
from element_rl.encoders.state import WarmUp, make_state_encoder
from element_rl.envs.spec import EnvSpec
from element_rl.memory.hnsw import HnswMemory
from element_rl.replay import ring
from element_rl.replay.ring import FinishedEpisode, Ledger, Replay
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.interface import Inputs, remembering
from element_rl.training.off_policy import programs
from element_rl.training.off_policy.view import PLAIN, View, telling

EPISODE_BUCKETS = (128, 256, 512)  # padded lengths; longer episodes take the environment's limit


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
        warm_up: WarmUp | None = None,  # of calibrated states
        num_updates: int | None = None,  # after a chunk; as many as it has steps, unless told
        view: View = PLAIN,  # what the agents learn from, beside what the reward sees
        inputs: Inputs = "own",  # what the reward sees where the agent sees observations
    ) -> None:
        agent = telling(agent, view)
        self.spec, self.reward, self.agent, self.view = spec, reward, agent, view
        self.num_updates = chunk_steps if num_updates is None else num_updates
        self.seeds = jnp.asarray(agent_seeds, jnp.uint32)
        capacity -= capacity % num_envs
        self.num_envs, self.inputs = num_envs, inputs
        records = 2 * chunk_steps // num_envs  # of an environment in a chunk, at most
        self.ledger = Ledger(len(agent_seeds), capacity, spec.max_episode_steps, records, num_envs)
        self._encoders = _stacked(
            [
                make_state_encoder(
                    seed, spec.observation_dim, spec.orientation_slice, warm_up=warm_up
                )
                for seed in agent_seeds
            ]
        )
        state_dim = 5 + spec.position_dim + spec.orientation_dim
        seen_dim = spec.observation_dim if inputs == "own" else state_dim
        reward_spec = RewardSpec(
            seen_dim, spec.action_dim, state_dim, spec.max_episode_steps, total_steps
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
                places=view.told is not None,
            ),
        )
        self._memory = remembering(reward)
        on_host = self._memory is not None and self._memory.memory_on_host
        self.host_memories = [HnswMemory(state_dim) for _ in agent_seeds] if on_host else []
        self.updates = 0
        self.critic_warmup = 0  # updates, from the first, in which the critics learn alone
        self.anchor_weight = 0.0  # what leaving `state.anchor` costs
        self.anchor_halflife = inf  # updates in which that halves
        self._ingest = jax.jit(partial(programs.ingest, view=view), donate_argnums=0)
        self._finish = jax.jit(
            partial(programs.finish_all, reward, self._memory, inputs, num_envs),
            static_argnames=("rows", "remembers"),
            donate_argnums=(0, 1),
        )
        settings: dict[str, Any] = {
            "extrinsic_weight": extrinsic_weight,
            "view": view,
            "inputs": inputs,
        }
        update = partial(programs.update, reward, agent, self.num_updates, **settings)
        self._update = jax.jit(update, donate_argnums=(0, 1))
        self._entropies, self._episode_states = (
            jax.jit(partial(program, num_envs), static_argnames="rows")
            for program in (programs.evaluation_entropies, programs.episode_states)
        )

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
        on_host = isinstance(chunk.observation, np.ndarray)
        # on the host for one transfer instead of five
        together = (np if on_host else jnp).concatenate(records, axis=-1, dtype=np.float32)
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
            self._sampleable(),
            self.seeds,
            np.uint32(self.updates),
            # None once it is over: then, and where there was none, the program is the ordinary one.
            np.uint32(self.critic_warmup) if self.updates < self.critic_warmup else None,
            self.state.anchor,
            np.float32(self.anchor_weight),
            np.float32(self.anchor_halflife),
        )
        self.state = self.state._replace(agents=agents, rewards=rewards)
        self.updates += self.num_updates
        return metrics, parameters

    def _sampleable(self) -> Int[np.ndarray, "P S E"]:
        """What the ledger knows of slots that may be drawn."""
        drawable = self.ledger.sampleable()
        if not self.view.resets:
            return drawable
        return np.concatenate([drawable, self.ledger.beginnings()], axis=1)

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

    def make_room(self, number: int) -> None:
        """Let every memory on the device have room for so many states, at least."""
        if self._memory is not None and not self._memory.memory_on_host:
            grow = jax.vmap(partial(self._memory.with_room, number=number))
            self.state = self.state._replace(rewards=grow(self.state.rewards))

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


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
