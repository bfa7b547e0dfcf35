"""An intrinsic reward for a replay buffer that is not ours: NumPy in, NumPy out.

    bonus = IntrinsicReward("element", env.observation_space, env.action_space)
    batch = (observations, actions, next_observations)
    ids = bonus.observe(*batch, terminated, truncated, infos)      every step
    ids = bonus.sample(256, rng)                                   every update
    metrics, rewards = bonus.update_and_reward(ids, *batch)

Transitions are numbered 0, 1, 2, … in the order they are observed; `id % capacity` is the place of
one in a ring of that size. The caller keeps the transitions. Here are kept, per transition, its
state and its *notes*, as in the replay of `element explore`: what a reward wrote down when the
episode ended, and what is merged as the lifelong memory grows. With the same data and seeds rewards
are those of the library's own learner.

Several environments belong to one agent: they share the memory, and t of the update windows counts
the steps of all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int

from element_rl.integrations.noted_states import NotedStates, programs
from element_rl.integrations.observations import (
    Infos,
    StateFunction,
    flat_width,
    flattened,
)
from element_rl.integrations.stored_bonus import StoredBonus, under
from element_rl.memory.hnsw import HnswMemory
from element_rl.rewards import Reward, RewardSpec, make_replay_reward
from element_rl.rewards.element_config import USUAL_STEPS
from element_rl.rewards.interface import enters_on_host, remembering
from element_rl.storage.trees import arrays_to_tree, as_long_as, tree_to_arrays

# padded lengths, so that few programs are compiled
EPISODE_BUCKETS = (128, 256, 512, 1024, 2048, 4096)
FEWEST_ROWS = 32  # encoded at once
# what is known of a transition while its episode runs; names of arrays in stored folders
RUNNING = ("ids", "before", "action", "after", "extrinsic_reward", "terminated")


class IntrinsicReward(StoredBonus):
    """A reward of the library beside somebody's replay buffer."""

    def __init__(
        self,
        reward: str,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        num_envs: int = 1,
        capacity: int = 1_000_000,
        total_steps: int | None = None,
        max_episode_steps: int = 1000,
        env_id: str | None = None,
        position: Sequence[str] | Sequence[int] | None = None,
        states: StateFunction | None = None,
        recent_scale: bool = False,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """
        reward: one of `element_rl.rewards.INTRINSIC_NAMES`, FILE.py:FUNCTION, or a sum of them,
        such as "element + 0.5*rnd".
        observation_space, action_space: of one environment. capacity: transitions kept; the
        buffer's size.
        total_steps: environment steps of the run, all environments together; sizes update windows
        and memory. None: the windows grow with the run, from step 1,000 on. max_episode_steps: a
        longer episode is taken for several. env_id: a robot the library knows,
        "Ant-v5": its position, orientation and ELEMENT's settings for it. position: entries of the
        infos, or columns of the observation, that say where the agent is. states: a function of
        observations [B, ...] and infos that returns states [B, D]. recent_scale: divide the reward
        by its recent standard deviation. options: of the reward's configuration, such as
        {"lifelong_weight": 1.0}.
        """
        settings = {
            name: value for name, value in locals().items() if name not in ("self", "states")
        }
        self._prepare(settings, states)
        _check_capacity(capacity, num_envs, max_episode_steps)
        self.capacity = capacity
        fit: dict[str, Any] = {"env": env_id, "total_steps": total_steps, "options": options}
        self.rewarder: Reward = make_replay_reward(reward, recent_scale=recent_scale, **fit)
        self._check_latent()
        self._memory = remembering(self.rewarder)
        self.updates = 0
        # of each environment, the transitions since its last reset
        self.running: list[list[tuple[Any, ...]]] = [[] for _ in range(num_envs)]
        self._warn_of_closed_windows()
        self._waits_for_end = bool(self.rewarder.note_shapes())
        self._ready = np.zeros(capacity, bool)
        # places, observations, what is beside
        self._unwritten: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.noted: NotedStates
        self._programs = programs(self.rewarder)
        if self.source.state_dim is not None:
            self._start(self.source.state_dim)

    def observe(
        self,
        observations: Any,
        actions: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
        infos: Infos = None,
        rewards: Any = None,
    ) -> Int[np.ndarray, " E"]:
        """One step of every environment; the numbers of its transitions.

        `next_observations` and `infos` are those the actions led to, also where an episode ended,
        before any reset.
        """
        before = self.source.raw(observations)
        after, beside = self.source.read(next_observations, infos)
        if self.state is None:
            self._start(beside.shape[1])
        chosen = flattened(self.action_space, actions)
        ended, died = (np.asarray(end, bool).reshape(-1) for end in (truncated, terminated))
        extrinsic = self._extrinsic(rewards, self.num_envs)
        self._check_step(before, after, chosen, ended, died)
        ids = self.observed + np.arange(self.num_envs, dtype=np.int64)
        places = ids % self.capacity
        self._ready[places] = not self._waits_for_end
        self._unwritten.append((places, after, beside))
        self.observed += self.num_envs
        rows = zip(ids, before, chosen, after, extrinsic, died, strict=True)
        for env, row in enumerate(rows):
            self.running[env].append(row)
            if ended[env] or died[env] or len(self.running[env]) >= self.max_episode_steps:
                self._finish(env)
        return ids

    def end_episodes(self) -> None:
        """Ends the running episodes here, as when environments are reset between two calls of
        somebody's `learn`."""
        for env, rows in enumerate(self.running):
            if rows:
                self._finish(env)

    def ready(self, ids: Any) -> Bool[np.ndarray, " B"]:
        """Whether transitions are kept and, for rewards that note what an episode was like, whether
        theirs has ended."""
        ids = np.asarray(ids, np.int64)
        there = (ids >= max(self.observed - self.capacity, 0)) & (ids < self.observed)
        return there & self._ready[ids % self.capacity]

    def sample(
        self, batch_size: int, rng: np.random.Generator | np.random.RandomState | None = None
    ) -> Any:
        """Numbers of transitions that are ready, drawn uniformly and with replacement."""
        rng = np.random.default_rng() if rng is None else rng
        filled = min(self.observed, self.capacity)
        if not self._ready[:filled].any():
            raise ValueError(
                "No episode has ended yet, so no transition can be drawn: observe more steps first."
            )
        drawn = np.zeros(0, np.int64)
        # those that are not ready are few: they belong to running episodes
        while len(drawn) < batch_size:
            more = (rng.random(2 * batch_size) * filled).astype(np.int64)
            drawn = np.concatenate([drawn, more[self._ready[more]]])
        newest = self.observed - 1
        return newest - (newest - drawn[:batch_size]) % self.capacity

    def update_and_reward(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any = None,
        terminated: Any = None,
    ) -> tuple[dict[str, float], Float[np.ndarray, " B"]]:
        """`update`, then `reward` of the same batch, which is read once for both."""
        batch = jax.device_put(
            self._batch(ids, observations, actions, next_observations, rewards, terminated)
        )
        return self._update(batch), self._reward(batch)

    def update(self, *batch: Any, **named: Any) -> dict[str, float]:
        """One learning step of rewards that learn, from a batch; what they report.

        Arguments as of `update_and_reward`.
        """
        return self._update(self._batch(*batch, **named))

    def reward(self, *batch: Any, **named: Any) -> Float[np.ndarray, " B"]:
        """The intrinsic reward of a batch of transitions; changes nothing.

        Arguments as of `update_and_reward`.
        """
        return self._reward(self._batch(*batch, **named))

    def reward_terms(self, *batch: Any, **named: Any) -> dict[str, Float[np.ndarray, " B"]]:
        """The named parts of the reward, before their weights.

        Arguments as of `update_and_reward`.
        """
        read = self._batch(*batch, **named)
        terms = self._programs.terms(self.state, self.noted, self.source.encoding, *read)
        return {name: np.array(term) for name, term in terms.items()}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that has changed since the beginning, but for a memory on the host."""
        self._write_states()
        filled = min(self.observed, self.capacity)
        arrays = self._encoding_arrays(updates=self.updates)
        for env, rows in enumerate(self.running):
            parts = zip(RUNNING, _columns(rows), strict=True) if rows else ()
            arrays |= {f"running/{env}/{name}": part for name, part in parts}
        if self.state is not None:
            noted = jax.tree.map(lambda leaf: leaf[:filled], self.noted)
            arrays |= tree_to_arrays(self.state, "state") | tree_to_arrays(noted, "kept")
            arrays |= {
                "ready": self._ready[:filled],
                "state_dim": np.asarray(self.noted.state.shape[1]),
            }
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None:
        """The opposite of `to_arrays`."""
        self._restore_encoding(arrays)
        self.updates = int(arrays["updates"])
        for env in range(self.num_envs):
            parts = [arrays.get(f"running/{env}/{name}") for name in RUNNING]
            self.running[env] = [] if parts[0] is None else list(zip(*parts, strict=True))
        if "state_dim" not in arrays:
            return
        self._start(int(arrays["state_dim"]))
        stored = under(arrays, "state")
        # a memory may have outgrown its first size
        self.state = arrays_to_tree(as_long_as(self.state, stored, "state"), stored, "state")
        filled = len(arrays["ready"])
        self._ready[:filled] = arrays["ready"]
        noted = jax.tree.map(lambda leaf: leaf[:filled], self.noted)
        kept = arrays_to_tree(noted, under(arrays, "kept"), "kept")
        self.noted = jax.tree.map(lambda leaf, rows: leaf.at[:filled].set(rows), self.noted, kept)
        self.host_memory = memory if memory is not None else self.host_memory

    def _start(self, state_dim: int) -> None:
        spec = RewardSpec(
            self.source.observation_dim,
            flat_width(self.action_space),
            state_dim,
            self.max_episode_steps,
            self.total_steps or USUAL_STEPS,
        )
        made = self.rewarder.init(jax.random.fold_in(self._key, 1), spec)
        self.state = jax.tree.map(jnp.copy, made)  # leaves that are one array could not be donated
        notes = {
            name: jnp.zeros((self.capacity, *shape))
            for name, shape in self.rewarder.note_shapes().items()
        }
        self.noted = NotedStates(jnp.zeros((self.capacity, state_dim)), notes)
        if self._memory is not None and self._memory.memory_on_host:
            self.host_memory = HnswMemory(state_dim)

    def _check_step(self, before: np.ndarray, after: np.ndarray, *others: np.ndarray) -> None:
        names = ("observations", "next_observations", "actions", "truncated", "terminated")
        for name, array in zip(names, (before, after, *others), strict=True):
            if len(array) != self.num_envs:
                raise ValueError(
                    f"One step of {self.num_envs} environments was expected, got {len(array)} "
                    f"{name}."
                )
            if not np.isfinite(array).all():
                raise ValueError(
                    f"Step {self.observed // self.num_envs} has {name} that are not finite."
                )

    def _write_states(self) -> None:
        """Encodes what was observed since the last time; in one call, because a call costs more
        than what it computes."""
        if not self._unwritten:
            return
        places, raw, beside = (
            np.concatenate(parts) for parts in zip(*self._unwritten, strict=True)
        )
        self._unwritten = []
        if not self.source.fitted:
            self.source.fit(raw)
        # powers of two: few programs are compiled
        rows = 1 << max(len(places) - 1, FEWEST_ROWS - 1).bit_length()
        padded = (
            _padded(places.astype(np.int32), rows, self.capacity),
            _padded(raw, rows),
            _padded(beside, rows),
        )
        self.noted = self._programs.write(self.noted, self.source.encoding, *padded)

    def _finish(self, env: int) -> None:
        """An episode has ended: the reward observes it, and its notes are written."""
        self._write_states()
        ids, *told = _columns(self.running[env])
        self.running[env] = []
        length = len(ids)
        bucket = next((bucket for bucket in EPISODE_BUCKETS if bucket >= length), length)
        rows = min(bucket, self.max_episode_steps)
        places = _padded((ids % self.capacity).astype(np.int32), rows, self.capacity)
        remembers, distances = False, None
        if self._memory is not None:
            enters = self._memory.enters(ids)
            remembers = bool(enters.any())
            distances = self._ask_host_memory(places[:length], ids, rows)
            if remembers:
                size = int(self._memory.memory_size(self.state)) + int(enters.sum())
                self.state = self._memory.with_room(self.state, size)
        self.state, self.noted = self._programs.observe(
            self.state,
            self.noted,
            self.source.encoding,
            *(_padded(part, rows) for part in told),
            places,
            _padded(ids.astype(np.int32), rows),
            np.int32(length),
            np.int32(min(self.observed, self.capacity)),
            distances,
            remembers=remembers,
        )
        self._ready[ids[ids >= self.observed - self.capacity] % self.capacity] = True

    def _ask_host_memory(
        self, places: np.ndarray, steps: np.ndarray, rows: int
    ) -> Float[np.ndarray, "T K"] | None:
        if self.host_memory is None or self._memory is None:
            return None
        k = self._memory.num_neighbours
        states = np.asarray(self.noted.state[places])
        distances = np.full((rows, k), np.inf, np.float32)
        if len(self.host_memory):
            distances[: len(places)] = self.host_memory.query(states, k)[0]
        if (enters := enters_on_host(self._memory, steps)).any():
            self.host_memory.insert(states[enters])
        return distances

    def _update(self, batch: tuple[Any, ...]) -> dict[str, float]:
        number = np.uint32(self.updates)
        self.state, metrics = self._programs.update(
            self.state, self.noted, self.source.encoding, *batch, self._key, number
        )
        self.updates += 1
        return {name: float(value) for name, value in metrics.items()}

    def _reward(self, batch: tuple[Any, ...]) -> Float[np.ndarray, " B"]:
        return np.array(self._programs.reward(self.state, self.noted, self.source.encoding, *batch))

    def _batch(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any = None,
        terminated: Any = None,
    ) -> tuple[np.ndarray, ...]:
        ids = np.asarray(ids, np.int64)
        if not self.ready(ids).all():
            missing = int(ids[~self.ready(ids)][0])
            raise ValueError(
                f"Transition {missing} has no reward: it is no longer kept, or its episode has not "
                "ended; ask `ready`, or draw with `sample`."
            )
        self._write_states()
        before, after = self.source.raw(observations), self.source.raw(next_observations)
        chosen = flattened(self.action_space, actions)
        extrinsic = self._extrinsic(rewards, len(ids))
        ends = np.zeros(len(ids)) if terminated is None else np.asarray(terminated).reshape(-1)
        names = ("observations", "actions", "next_observations")
        for name, array in zip(names, (before, chosen, after), strict=True):
            if len(array) != len(ids):
                raise ValueError(f"{len(ids)} transitions were named, got {len(array)} {name}.")
        places = (ids % self.capacity).astype(np.int32)
        return places, before, chosen, after, extrinsic, ends.astype(bool)


def _check_capacity(capacity: int, num_envs: int, max_episode_steps: int) -> None:
    fewest = num_envs * (max_episode_steps + 1)
    if capacity < fewest or capacity % num_envs:
        raise ValueError(
            f"A capacity of {capacity} does not do for {num_envs} environments with episodes of up "
            f"to {max_episode_steps} steps: it must be a multiple of {num_envs} and at least "
            f"{fewest}; or lower max_episode_steps, which takes longer episodes for several."
        )


def _columns(rows: list[tuple[Any, ...]]) -> list[np.ndarray]:
    return [np.stack(part) for part in zip(*rows, strict=True)]


def _padded(rows: np.ndarray, number: int, fill: int = 0) -> np.ndarray:
    return np.pad(
        rows, [(0, number - len(rows))] + [(0, 0)] * (rows.ndim - 1), constant_values=fill
    )
