"""The device side of training: replay, rewards and agents of a population.

Every program (`programs`) is compiled once per shape and donates what it replaces. Numbers that
change (slots, counts, agents) are arguments; nothing is traced again while training. Agents may be
shared out over several devices (`population`), each with all that is its agents'.
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
from element_rl.population import Devices
from element_rl.replay import ring
from element_rl.replay.ledger import Ledger, StoredEpisode
from element_rl.replay.ring import Replay
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.interface import Inputs, enters_on_host, remembering
from element_rl.training.off_policy import programs
from element_rl.training.off_policy.view import PLAIN, View, telling

# Padded lengths of episodes; longer ones take the environment's limit. Each is a program of its
# own, and to compile one for an accelerator takes longer than what padding costs there.
EPISODE_BUCKETS = (128, 256, 512)
BUCKETS_ON_DEVICE = (128,)
# An episode of the longest length that is learned from while it runs is noted so often.
NOTED_TIMES = 8


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
        on_device: bool = False,  # worlds there make the chunks
        devices: Devices | None = None,  # that share the agents; one, unless told
        from_running: bool = False,  # learn from episodes while they run
    ) -> None:
        agent = telling(agent, view)
        self.devices = devices = Devices.of(len(agent_seeds), 1) if devices is None else devices
        self.spec, self.reward, self.agent, self.view = spec, reward, agent, view
        self.num_updates = chunk_steps if num_updates is None else num_updates
        self.seeds = devices.put(jnp.asarray(agent_seeds, jnp.uint32))
        capacity -= capacity % num_envs
        self.num_envs, self.inputs, self.on_device = num_envs, inputs, on_device
        self.from_running = from_running
        self._cut_off = on_device and from_running  # first episodes, which count as if they ran
        self._buckets = BUCKETS_ON_DEVICE if on_device else EPISODE_BUCKETS
        records = 2 * chunk_steps // num_envs  # of an environment in a chunk, at most
        self.ledger = Ledger(len(agent_seeds), capacity, spec.max_episode_steps, records, num_envs)
        encoders = [
            make_state_encoder(seed, spec.task_dim, spec.orientation_slice, warm_up=warm_up)
            for seed in agent_seeds
        ]
        self._encoders = devices.put(_stacked(encoders))
        state_dim = 5 + spec.position_dim + spec.orientation_dim
        seen_dim = spec.observation_dim if inputs == "own" else state_dim + spec.latent_dim
        reward_spec = RewardSpec(
            seen_dim,
            spec.action_dim,
            state_dim,
            spec.max_episode_steps,
            total_steps,
            spec.chooses,
        )
        keys = jax.vmap(jax.random.key)(jnp.asarray(agent_seeds, jnp.uint32))
        begun = jax.vmap(lambda key: reward.init(jax.random.fold_in(key, 1), reward_spec))(keys)
        sizes = (len(agent_seeds), capacity, spec.observation_dim, spec.action_dim, state_dim)
        places, notes = view.told is not None, reward.note_shapes()
        # transitions between two looks at a running episode; without notes each chunk is one
        self._look_every = max(spec.max_episode_steps // NOTED_TIMES, 1) if notes else 1
        self._noted, self._chunk_rows = bool(notes), chunk_steps // num_envs + 1
        self.state = LearnerState(
            agents=devices.put(jax.vmap(agent.create)(keys)),
            rewards=devices.put(begun),
            replay=devices.made(lambda: ring.create(*sizes, notes, places=places)),
        )
        self.sees = programs.Sees(inputs, spec.latent_dim)
        self._memory = remembering(reward)
        on_host = self._memory is not None and self._memory.memory_on_host
        self.host_memories = [HnswMemory(state_dim) for _ in agent_seeds] if on_host else []
        self.updates = 0
        self.critic_warmup = 0  # updates, from the first, in which the critics learn alone
        self.anchor_weight = 0.0  # what leaving `state.anchor` costs
        self.anchor_halflife = inf  # updates in which that halves
        self._compile(reward, agent, extrinsic_weight)

    def _compile(self, reward: Reward, agent: Agent, extrinsic_weight: float) -> None:
        """Says which programs there are; each is compiled when it is first called."""
        program, num_envs, view = self.devices.program, self.num_envs, self.view
        self._records = program(partial(programs.as_records, num_envs=num_envs), (0, 0, 0, 0))
        ingest = partial(programs.ingest, view=view)
        self._ingest = program(ingest, (0, 0, 0, 0), donate=(0,))
        self._finish = program(
            partial(programs.finish_all, reward, self._memory, self.sees, num_envs),
            (0, 0, 0, 0, 0),
            donate=(0, 1),
            static=("rows", "remembers", "together"),
        )
        self._finish_rounds = program(
            partial(programs.finish_rounds, reward, self.sees, num_envs),
            (0, 0, 1, None, 1),
            donate=(0, 1),
            static=("rows", "running"),
        )
        update = partial(
            programs.update,
            reward,
            agent,
            self.num_updates,
            extrinsic_weight=extrinsic_weight,
            view=view,
            sees=self.sees,
        )
        self._update = program(update, (0, 0, 0, 0, 0, None, None, 0, None, None), donate=(0, 1))
        entropies = partial(programs.evaluation_entropies, num_envs)
        self._entropies = program(entropies, (0, 0, 0), static=("rows",))
        # of one agent, on the device of that agent
        self._episode_states = jax.jit(
            partial(programs.episode_states, num_envs), static_argnames="rows"
        )

    def ingest(self, chunk: Chunk) -> list[StoredEpisode]:
        """Store a chunk and observe the episodes that ended in it."""
        finished = self._store(chunk)
        for round_ in _rounds(finished, self.num_envs):
            kinds = sorted({self._kind(episode) for episode in round_})
            for kind in kinds:
                self._observe([episode for episode in round_ if self._kind(episode) == kind], *kind)
        if self.from_running:
            self._observe_running()
        return finished

    def _store(self, chunk: Chunk) -> list[StoredEpisode]:
        slots, finished = self.ledger.place(chunk.final, chunk.count)
        flags = np.stack([chunk.extrinsic_reward, chunk.terminated], axis=-1, dtype=np.float32)
        records = (chunk.observation, chunk.action, flags, chunk.position)
        agents = len(self.seeds)
        if isinstance(chunk.observation, np.ndarray):
            # on the host for one transfer instead of five
            together = np.concatenate(records, axis=-1, dtype=np.float32)
            together = together.reshape(agents, -1, together.shape[-1])
        else:
            together = self._records(*records)
        slots = slots.reshape(agents, -1)
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

    def states_of(
        self, agent: int, start: int, length: int, rows: int | None = None
    ) -> Float[np.ndarray, "T D"]:
        """The states that an episode of an agent led to, on the host; the program that reads them
        is one for `rows` states."""
        rows = self.spec.max_episode_steps if rows is None else rows
        device, own = self.devices.place_of(agent, len(self.seeds))
        local = self.devices.parts(self.state.replay.state)[device]
        states = self._episode_states(local, np.int32(own), np.int32(start), rows=rows)
        return np.asarray(states)[:length]

    def running_actions(self) -> list[Float[np.ndarray, "T A"]]:
        """Of the episode that runs in each environment, on the host."""
        found: list[np.ndarray] = []
        for part in self.devices.parts(self.state.replay.action):
            for own in range(len(part) * self.num_envs):
                slots = self.ledger.running_slots(len(found))
                found.append(np.asarray(part[own // self.num_envs, slots]))
        return found

    def save_memories(self, folder: Path) -> None:
        """Write the memories that live on the host."""
        for agent, memory in enumerate(self.host_memories):
            memory.save(folder / f"memory_{agent}")

    def load_memories(self, folder: Path) -> None:
        self.host_memories = [
            HnswMemory.load(folder / f"memory_{i}") for i in range(len(self.host_memories))
        ]

    def _kind(self, episode: StoredEpisode) -> tuple[int, bool]:
        """What a program that observes the episode is compiled for: its padded length, and whether
        states enter the memory."""
        return self._padded(episode.length), bool(self._enters(episode).any())

    def _padded(self, length: int) -> int:
        """Rows of the program for an episode of this length."""
        longest = self.spec.max_episode_steps
        rows = next((bucket for bucket in self._buckets if bucket >= length), longest)
        return min(rows, longest)

    def _whole(self, episode: StoredEpisode) -> int:
        """Transitions that a finished episode would have come to. Worlds on the device cut their
        first one off, so that they do not all end together."""
        first = self._cut_off and episode.step < self.num_envs
        usual = self.ledger.usual_length(episode.agent) if first else 0
        return max(episode.length, usual)

    def _enters(self, episode: StoredEpisode) -> Bool[np.ndarray, " T"]:
        """Which states of an episode enter a memory."""
        if self._memory is None:
            return np.zeros(episode.length, bool)
        return self._memory.enters(self._steps(episode))

    def _steps(self, episode: StoredEpisode) -> Int[np.ndarray, " T"]:
        """Of the agent, before each transition of an episode."""
        return episode.step + self.num_envs * np.arange(episode.length)

    def _observe(self, episodes: Sequence[StoredEpisode], rows: int, remembers: bool) -> None:
        """Observe episodes of one kind, of different environments, in one call: a call costs more
        than what it computes."""
        if self.on_device and not remembers and not self.host_memories:
            self._observe_rounds(episodes, rows)
            return
        agents = len(self.seeds) // len(self.devices)  # of each device
        sizes = (len(self.devices), agents * self.num_envs)
        where, number = np.zeros((*sizes, 7), np.int32), np.zeros(len(self.devices), np.int32)
        distances = None
        if self.host_memories:
            k = remembering(self.reward).num_neighbours  # type: ignore[union-attr]
            distances = np.full((*sizes, rows, k), np.inf, np.float32)
        for episode in episodes:
            device, own = self.devices.place_of(episode.agent, len(self.seeds))
            place = device, number[device]
            filled = self.ledger.filled(episode.agent)
            where[place] = (own, *episode[1:], self._whole(episode), filled)
            if distances is not None:
                distances[place] = self._ask_host_memory(episode, rows)
            number[device] += 1
        replay, rewards = self._finish(
            self.state.replay,
            self.state.rewards,
            where,
            number,
            distances,
            rows=rows,
            remembers=remembers,
            # on the host's own processor one after the other is as fast
            together=agents if self.on_device else 1,
        )
        self.state = self.state._replace(replay=replay, rewards=rewards)

    def _observe_rounds(
        self, episodes: Sequence[StoredEpisode], rows: int, running: bool = False
    ) -> None:
        """Observe episodes that feed no memory, one of every agent at a time. Those that are
        `running` are noted, and their transitions may be sampled; the reward does not learn of
        them."""
        where = np.zeros((self.num_envs, len(self.seeds), 6), np.int32)
        distances = None
        if self.host_memories:
            k = remembering(self.reward).num_neighbours  # type: ignore[union-attr]
            distances = np.full((*where.shape[:2], rows, k), np.inf, np.float32)
        had: Counter[int] = Counter()
        for episode in episodes:
            place = had[episode.agent], episode.agent
            whole = self._usual(episode) if running else self._whole(episode)
            where[place] = (*episode, whole)
            if distances is not None:
                distances[place] = self._asked_host_memory(episode, rows)[0]
            had[episode.agent] += 1
        replay, rewards = self._finish_rounds(
            self.state.replay,
            self.state.rewards,
            where,
            np.int32(max(had.values())),
            distances,
            rows=rows,
            running=running,
        )
        self.state = self.state._replace(replay=replay, rewards=rewards)

    def _observe_running(self) -> None:
        """Note the episodes that run, as they are so far, and let them be sampled."""
        released = self.ledger.release_running(self._look_every)
        if not self._noted:
            # nothing is written but which slots are new
            capacity = self.ledger.capacity * self.num_envs
            new = [episode.rest(before, capacity, self.num_envs) for episode, before in released]
            if new:
                self._observe_rounds(new, self._chunk_rows, running=True)
            return
        padded = [self._padded(episode.length) for episode, _ in released]
        for rows in sorted(set(padded)):
            alike = [
                episode for (episode, _), size in zip(released, padded, strict=True) if size == rows
            ]
            self._observe_rounds(alike, rows, running=True)

    def _usual(self, episode: StoredEpisode) -> int:
        """Transitions that a running episode will come to, as far as one can tell."""
        return max(episode.length, self.ledger.usual_length(episode.agent))

    def _ask_host_memory(self, episode: StoredEpisode, rows: int) -> Float[np.ndarray, "T K"]:
        """Its answer about the states of an episode, which enter then."""
        assert self._memory is not None
        distances, states = self._asked_host_memory(episode, rows)
        entering = states[enters_on_host(self._memory, self._steps(episode))]
        self.host_memories[episode.agent].insert(entering)
        return distances

    def _asked_host_memory(
        self, episode: StoredEpisode, rows: int
    ) -> tuple[Float[np.ndarray, "R K"], Float[np.ndarray, "T D"]]:
        """Its answer about the states of an episode, and these."""
        assert self._memory is not None
        k = self._memory.num_neighbours
        states = self.states_of(episode.agent, episode.start, episode.length, rows)
        distances = np.full((rows, k), np.inf, np.float32)
        distances[: episode.length] = self.host_memories[episode.agent].query(states, k)[0]
        return distances, states


def _rounds(finished: Sequence[StoredEpisode], num_envs: int) -> list[list[StoredEpisode]]:
    """The first episode of every environment, then the second of those that have one, and so on."""
    rounds: list[list[StoredEpisode]] = []
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
