"""An intrinsic reward for a replay buffer that is not ours: NumPy in, NumPy out.

    bonus = IntrinsicReward("element", env.observation_space, env.action_space)
    ids = bonus.observe(observations, actions, next_observations, terminated, truncated, infos)    every step
    ids = bonus.sample(256, rng)                                                                   every update
    metrics, rewards = bonus.update_and_reward(ids, observations, actions, next_observations)

Transitions are numbered 0, 1, 2, … in the order they are observed; `id % capacity` is the place of
one in a ring of that size. The caller keeps the transitions. Here are kept, per transition, its
state and its *notes*, as in the replay of `element explore`: what a reward wrote down when the
episode ended, and what is merged as the lifelong memory grows. With the same data and seeds rewards
are those of the library's own learner.

Several environments belong to one agent: they share the memory, and t of the update windows counts
the steps of all of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from element_rl.integrations.kept import Kept, programs
from element_rl.integrations.making import (
    check_sizes,
    made_reward,
    warn_of_an_empty_memory,
    warn_of_closed_windows,
)
from element_rl.integrations.observations import (
    Infos,
    StateFunction,
    StateSource,
    flat_width,
    flattened,
)
from element_rl.integrations.running import Running, RunningEpisodes
from element_rl.integrations.storage import pickled, read_bonus, under, write_bonus
from element_rl.memory.hnsw import HnswMemory
from element_rl.rewards import RewardSpec
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import USUAL_STEPS
from element_rl.rewards.interface import remembering
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

EPISODE_BUCKETS = (
    128,
    256,
    512,
    1024,
    2048,
    4096,
)  # padded lengths, so that few programs are compiled
FEWEST_ROWS = 32  # encoded at once


class IntrinsicReward:
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
        reward: element, rnd, ngu, re3, rise, apt, icm, e3b, or FILE.py:FUNCTION. observation_space,
        action_space: of one environment. capacity: transitions kept; the buffer's size.
        total_steps: environment steps of the run, all environments together; sizes update windows
        and memory. None: the
            windows grow with the run, from step 1,000 on.
        max_episode_steps: a longer episode is taken for several. env_id: a robot the library knows,
        "Ant-v5": its position, orientation and ELEMENT's settings for it. position: entries of the
        infos, or columns of the observation, that say where the agent is. states: a function of
        observations [B, ...] and infos that returns states [B, D]. recent_scale: divide the reward
        by its recent standard deviation. options: of the reward's configuration, such as
        {"lifelong_weight": 1.0}.
        """
        self.settings = {
            name: value for name, value in locals().items() if name not in ("self", "states")
        }
        check_sizes(num_envs, capacity, max_episode_steps, total_steps)
        self.num_envs, self.capacity, self.total_steps = num_envs, capacity, total_steps
        self.source = StateSource(
            observation_space, env_id=env_id, position=position, states=states, seed=seed
        )
        self.action_space = action_space
        self.rewarder = made_reward(reward, env_id, total_steps, recent_scale, dict(options or {}))
        self._memory = remembering(self.rewarder)
        self.observed = 0  # transitions so far: the number of the next one
        self.updates = 0
        self.running = RunningEpisodes(num_envs, max_episode_steps)
        config = self.rewarder.config if isinstance(self.rewarder, ElementReward) else None
        self._said_empty = config is not None and warn_of_closed_windows(config, total_steps)
        self._waits_for_end = bool(self.rewarder.note_shapes())
        self._ready = np.zeros(capacity, bool)
        # places, observations, what is beside
        self._unwritten: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._key: PRNGKeyArray = jax.random.key(seed)
        self.host_memory: HnswMemory | None = None
        self.state: Any = None
        self.kept: Kept
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
        ended, died = (
            np.asarray(truncated, bool).reshape(-1),
            np.asarray(terminated, bool).reshape(-1),
        )
        extrinsic = (
            np.zeros(self.num_envs, np.float32)
            if rewards is None
            else np.asarray(rewards, np.float32)
        )
        self._check_step(before, after, chosen, ended, died)
        ids = self.observed + np.arange(self.num_envs, dtype=np.int64)
        places = ids % self.capacity
        self._ready[places] = not self._waits_for_end
        self._unwritten.append((places, after, beside))
        self.observed += self.num_envs
        for episode in self.running.add(
            ids, before, chosen, after, extrinsic.reshape(-1), died, ended | died
        ):
            self._finish(episode)
        return ids

    def end_episodes(self) -> None:
        """Ends the running episodes here, as when environments are reset between two calls of
        somebody's `learn`."""
        for episode in self.running.cut():
            self._finish(episode)

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

    def update(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any = None,
        terminated: Any = None,
    ) -> dict[str, float]:
        """One learning step of rewards that learn, from a batch; what they report."""
        return self._update(
            self._batch(ids, observations, actions, next_observations, rewards, terminated)
        )

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
        metrics = self._update(batch)
        return metrics, self._reward(batch)

    def reward(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any = None,
        terminated: Any = None,
    ) -> Float[np.ndarray, " B"]:
        """The intrinsic reward of a batch of transitions. Changes nothing."""
        return self._reward(
            self._batch(ids, observations, actions, next_observations, rewards, terminated)
        )

    def reward_terms(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any = None,
        terminated: Any = None,
    ) -> dict[str, Float[np.ndarray, " B"]]:
        """The named parts of the reward, before their weights."""
        batch = self._batch(ids, observations, actions, next_observations, rewards, terminated)
        terms = self._programs.terms(self.state, self.kept, self.source.encoding, *batch)
        return {name: np.array(term) for name, term in terms.items()}

    @property
    def memory_size(self) -> int:
        """States in the lifelong memory; 0 for rewards that have none."""
        if self._memory is None or self.state is None:
            return 0
        return int(self._memory.memory_size(self.state))

    def warn_if_memory_is_empty(self) -> None:
        """Warns, once, if ELEMENT has remembered nothing so far; for the end of a run. `save` does
        it too."""
        if self._said_empty or self.observed == 0 or self.memory_size > 0:
            return
        if isinstance(self.rewarder, ElementReward) and self.rewarder.config.lifelong_weight > 0:
            self._said_empty = True
            warn_of_an_empty_memory(self.rewarder.config, self.observed)

    def save(self, folder: str | Path) -> None:
        """Writes everything but an own function for the states."""
        self.warn_if_memory_is_empty()
        write_bonus(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, states: StateFunction | None = None) -> "IntrinsicReward":
        """What `save` wrote; `states` is the own function, where there was one."""
        return read_bonus(cls, Path(folder), states)

    def __reduce__(self) -> tuple[Any, ...]:
        self.warn_if_memory_is_empty()
        return pickled(self, self.source.own)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that has changed since the beginning, but for a memory on the host."""
        self._write_states()
        filled = min(self.observed, self.capacity)
        counts = {
            "observed": self.observed,
            "updates": self.updates,
            "fitted": int(self.source.fitted),
        }
        arrays = {name: np.asarray(count, np.int64) for name, count in counts.items()}
        arrays |= {f"running/{name}": part for name, part in self.running.to_arrays().items()}
        arrays |= tree_to_arrays(self.source.encoding, "encoding")
        if self.state is not None:
            rows = jax.tree.map(lambda leaf: leaf[:filled], self.kept)
            arrays |= tree_to_arrays(self.state, "state") | tree_to_arrays(rows, "kept")
            arrays |= {
                "ready": self._ready[:filled],
                "state_dim": np.asarray(self.kept.state.shape[1]),
            }
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None:
        """The opposite of `to_arrays`."""
        self.observed, self.updates = int(arrays["observed"]), int(arrays["updates"])
        self.source.restore(
            arrays_to_tree(self.source.encoding, under(arrays, "encoding"), "encoding"),
            bool(arrays["fitted"]),
        )
        self.running.restore(
            {name.removeprefix("running/"): part for name, part in under(arrays, "running").items()}
        )
        if "state_dim" not in arrays:
            return
        self._start(int(arrays["state_dim"]))
        # it may have outgrown its first size
        if self._memory is not None and not self._memory.memory_on_host:
            self.state = self._memory.with_room(self.state, len(arrays["state/memory/states"]))
        self.state = arrays_to_tree(self.state, under(arrays, "state"), "state")
        filled = len(arrays["ready"])
        self._ready[:filled] = arrays["ready"]
        stored = arrays_to_tree(
            jax.tree.map(lambda leaf: leaf[:filled], self.kept), under(arrays, "kept"), "kept"
        )
        self.kept = jax.tree.map(lambda leaf, rows: leaf.at[:filled].set(rows), self.kept, stored)
        self.host_memory = memory if memory is not None else self.host_memory

    def _start(self, state_dim: int) -> None:
        spec = RewardSpec(
            self.source.observation_dim,
            flat_width(self.action_space),
            state_dim,
            self.running.longest,
            self.total_steps or USUAL_STEPS,
        )
        made = self.rewarder.init(jax.random.fold_in(self._key, 1), spec)
        self.state = jax.tree.map(jnp.copy, made)  # leaves that are one array could not be donated
        notes = {
            name: jnp.zeros((self.capacity, *shape))
            for name, shape in self.rewarder.note_shapes().items()
        }
        self.kept = Kept(jnp.zeros((self.capacity, state_dim)), notes)
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
        for name, array in (
            ("observations", before),
            ("next_observations", after),
            ("actions", others[0]),
        ):
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
        self.kept = self._programs.write(self.kept, self.source.encoding, *padded)

    def _finish(self, episode: Running) -> None:
        """An episode has ended: the reward observes it, and its notes are written."""
        self._write_states()
        length = len(episode.ids)
        rows = min(
            next((bucket for bucket in EPISODE_BUCKETS if bucket >= length), length),
            self.running.longest,
        )
        places = _padded((episode.ids % self.capacity).astype(np.int32), rows, self.capacity)
        remembers, distances = False, None
        if self._memory is not None:
            enters = self._memory.enters(episode.ids)
            remembers = bool(enters.any())
            distances = self._ask_host_memory(places[:length], enters, rows)
            if remembers:
                self.state = self._memory.with_room(
                    self.state, self.memory_size + int(enters.sum())
                )
        told = [_padded(part, rows) for part in episode[1:]]
        steps = _padded(episode.ids.astype(np.int32), rows)
        filled = np.int32(min(self.observed, self.capacity))
        self.state, self.kept = self._programs.observe(
            self.state,
            self.kept,
            self.source.encoding,
            *told,
            places,
            steps,
            np.int32(length),
            filled,
            distances,
            remembers=remembers,
        )
        self._ready[episode.ids[episode.ids >= self.observed - self.capacity] % self.capacity] = (
            True
        )

    def _ask_host_memory(
        self, places: np.ndarray, enters: np.ndarray, rows: int
    ) -> Float[np.ndarray, "T K"] | None:
        if self.host_memory is None or self._memory is None:
            return None
        k = self._memory.num_neighbours
        states = np.asarray(self.kept.state[places])
        distances = np.full((rows, k), np.inf, np.float32)
        distances[: len(places)] = self.host_memory.query(states, k)[0]
        self.host_memory.insert(states[enters])
        return distances

    def _update(self, batch: tuple[Any, ...]) -> dict[str, float]:
        number = np.uint32(self.updates)
        self.state, metrics = self._programs.update(
            self.state, self.kept, self.source.encoding, *batch, self._key, number
        )
        self.updates += 1
        return {name: float(value) for name, value in metrics.items()}

    def _reward(self, batch: tuple[Any, ...]) -> Float[np.ndarray, " B"]:
        return np.array(self._programs.reward(self.state, self.kept, self.source.encoding, *batch))

    def _batch(
        self,
        ids: Any,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any,
        terminated: Any,
    ) -> tuple[np.ndarray, ...]:
        ids = np.asarray(ids, np.int64)
        if not self.ready(ids).all():
            missing = int(ids[~self.ready(ids)][0])
            raise ValueError(
                f"Transition {missing} has no reward: it is no longer kept, or its episode has not "
                "ended; ask `ready`, or "
                "draw with `sample`."
            )
        self._write_states()
        before, after = self.source.raw(observations), self.source.raw(next_observations)
        chosen = flattened(self.action_space, actions)
        extrinsic = np.zeros(len(ids)) if rewards is None else np.asarray(rewards).reshape(-1)
        died = (
            np.zeros(len(ids), bool)
            if terminated is None
            else np.asarray(terminated).reshape(-1).astype(bool)
        )
        for name, array in (
            ("observations", before),
            ("actions", chosen),
            ("next_observations", after),
        ):
            if len(array) != len(ids):
                raise ValueError(f"{len(ids)} transitions were named, got {len(array)} {name}.")
        places = (ids % self.capacity).astype(np.int32)
        return places, before, chosen, after, extrinsic.astype(np.float32), died


def _padded(rows: np.ndarray, number: int, fill: int = 0) -> np.ndarray:
    return np.pad(
        rows, [(0, number - len(rows))] + [(0, 0)] * (rows.ndim - 1), constant_values=fill
    )
