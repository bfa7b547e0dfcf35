"""An intrinsic reward for rollouts that are not ours, as PPO and A2C collect them: NumPy in, NumPy
out.

    bonus = RolloutReward("element", env.observation_space, env.action_space, num_envs=8)
    batch = (observations, actions, next_observations)                      each [T, E, ...]
    rewards = bonus.rollout(*batch, terminated, truncated, infos)           [T, E]

The rewards must reach the learner: add them to the rollout's before advantages are computed.

A rollout is judged by what was known before it; then methods that learn learn from it, and the
episodes that ended in it are observed. Episodes go on from one rollout to the next. The rewards are
those of `element on-policy` (`rewards/on_rollouts.py` says how they differ from the off-policy
form); here all environments of a rollout are judged before any of them is learned from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float

from element_rl.integrations.observations import (
    Infos,
    StateFunction,
    each_part,
    flat_width,
    flattened,
)
from element_rl.integrations.stored_bonus import StoredBonus, under
from element_rl.memory.hnsw import HnswMemory
from element_rl.rewards import make_bonus
from element_rl.rewards.on_rollouts import EpisodeSoFar, Part
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays


class Piece(NamedTuple):
    """The part of an episode that lies within a rollout."""

    env: int
    begin: int  # of its rows in the rollout
    end: int
    part: Part  # the episode up to there
    ended: bool


class RolloutReward(StoredBonus):
    """A reward of the library beside somebody's on-policy learner."""

    def __init__(
        self,
        reward: str,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        num_envs: int = 1,
        total_steps: int | None = None,
        max_episode_steps: int = 1000,
        env_id: str | None = None,
        position: Sequence[str] | Sequence[int] | None = None,
        states: StateFunction | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """See `IntrinsicReward`; options are also those of `rewards.on_rollouts.LearningConfig` and
        `OnPolicyElementConfig`."""
        settings = {
            name: value for name, value in locals().items() if name not in ("self", "states")
        }
        self._prepare(settings, states)
        self.options = dict(options or {})
        self.rollouts = 0
        self.last_terms: dict[str, Float[np.ndarray, "T E"]] = {}  # of the latest rollout
        self.last_metrics: dict[str, float] = {}
        self._running: list[EpisodeSoFar | None] = [None] * num_envs
        self._encode = jax.jit(
            lambda encoding, raw, beside: (encoding.vectors(raw), encoding.states(raw, beside))
        )
        if self.source.state_dim is not None:
            self._start(self.source.state_dim)

    def rollout(
        self,
        observations: Any,
        actions: Any,
        next_observations: Any,
        terminated: Any,
        truncated: Any,
        infos: Sequence[Infos] | None = None,
        rewards: Any = None,
    ) -> Float[np.ndarray, "T E"]:
        """The intrinsic rewards of T steps of all environments. Arrays are [T, E, ...]; `infos` has
        a list per step.

        `next_observations` and `infos` are those the actions led to, also where an episode ended,
        before any reset.
        """
        died = np.asarray(terminated, bool)
        ended = died | np.asarray(truncated, bool)
        if died.ndim != 2 or died.shape[1] != self.num_envs:
            raise ValueError(
                f"Arrays [T, {self.num_envs}, ...] were expected, got terminated of shape "
                f"{died.shape}."
            )
        seen = self._seen(observations, actions, next_observations, infos, rewards, died.shape[0])
        pieces = [
            piece for env in range(self.num_envs) for piece in self._pieces(env, seen, died, ended)
        ]
        values = np.zeros(died.shape, np.float32)
        paid, terms = self.rewarder.rewards(self.state, [piece.part for piece in pieces])
        self.last_terms = {name: np.zeros(died.shape, np.float32) for name in terms}
        first = 0
        for piece in pieces:
            rows = slice(piece.begin, piece.end), piece.env
            new = slice(first, first + piece.part.new)
            values[rows] = paid[new]
            for name, term in terms.items():
                self.last_terms[name][rows] = term[new]
            first += piece.part.new
        self._learn(pieces)
        return values

    def end_episodes(self) -> None:
        """Forgets the running episodes: environments have been reset between two rollouts."""
        self._running = [None] * self.num_envs

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that has changed since the beginning."""
        arrays = self._encoding_arrays(rollouts=self.rollouts)
        for env, episode in enumerate(self._running):
            if episode is not None and episode.observations is not None:
                names = ("states", "actions", "rewards", "observations")
                arrays |= {f"running/{env}/{name}": getattr(episode, name) for name in names}
        if self.state is not None:
            arrays |= tree_to_arrays(self.state, "state")
            arrays["state_dim"] = np.asarray(self._state_dim)
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None:
        """The opposite of `to_arrays`; the memory is part of the state."""
        self._restore_encoding(arrays)
        self.rollouts = int(arrays["rollouts"])
        for env in range(self.num_envs):
            running = under(arrays, f"running/{env}")
            parts = {name.removeprefix(f"running/{env}/"): part for name, part in running.items()}
            self._running[env] = EpisodeSoFar(**parts, terminated=False) if parts else None
        if "state_dim" in arrays:
            self._start(int(arrays["state_dim"]))
            self.state = arrays_to_tree(self.state, under(arrays, "state"), "state")

    def _start(self, state_dim: int) -> None:
        self._state_dim = state_dim
        self.rewarder = make_bonus(
            self.settings["reward"],
            state_dim=state_dim,
            actions=flat_width(self.action_space),
            max_episode_steps=self.max_episode_steps,
            total_steps=self.total_steps,
            options=self.options,
            observation_dim=self.source.observation_dim,
            env=self.settings["env_id"],
        )
        self._check_latent()
        self._warn_of_closed_windows()
        self.state = self.rewarder.init(jax.random.fold_in(self._key, 1))

    def _seen(
        self,
        observations: Any,
        actions: Any,
        next_observations: Any,
        infos: Any,
        rewards: Any,
        steps: int,
    ) -> "Seen":
        """A rollout as rewards see it, encoded in one call."""
        number = steps * self.num_envs
        told = None if infos is None else [info for step in infos for info in step]
        before = self.source.raw(_rows(observations, number))
        after, beside = self.source.read(_rows(next_observations, number), told)
        chosen = flattened(self.action_space, _rows(actions, number))
        names = ("observations", "next_observations", "actions")
        for name, array in zip(names, (before, after, chosen), strict=True):
            if not np.isfinite(array).all():
                raise ValueError(f"Rollout {self.rollouts} has {name} that are not finite.")
        if not self.source.fitted:
            self.source.fit(after)
        if self.state is None:
            self._start(beside.shape[1])
        extrinsic = self._extrinsic(rewards, number)
        vectors_before = self._encode(self.source.encoding, before, beside)[0]
        vectors_after, states = self._encode(self.source.encoding, after, beside)
        parts = (vectors_before, chosen, vectors_after, states, extrinsic)
        return Seen(
            *(np.asarray(part).reshape(steps, self.num_envs, *part.shape[1:]) for part in parts)
        )

    def _pieces(
        self, env: int, seen: "Seen", died: Bool[np.ndarray, "T E"], ended: Bool[np.ndarray, "T E"]
    ) -> list[Piece]:
        """The episodes of one environment within a rollout, each with what it was before."""
        pieces, begin = [], 0
        while begin < len(ended):
            running = self._running[env]
            room = self.max_episode_steps - (0 if running is None else len(running.rewards))
            ends = np.flatnonzero(ended[begin : begin + room, env])
            end = begin + (int(ends[0]) + 1 if len(ends) else min(room, len(ended) - begin))
            so_far = _continued(running, seen, env, begin, end, bool(died[end - 1, env]))
            over = bool(len(ends)) or len(so_far.rewards) == self.max_episode_steps
            pieces.append(Piece(env, begin, end, Part(so_far, end - begin), over))
            self._running[env] = None if over else so_far
            begin = end
        return pieces

    def _learn(self, pieces: list[Piece]) -> None:
        key = jax.random.fold_in(jax.random.fold_in(self._key, 2), self.rollouts)
        self.state, self.last_metrics = self.rewarder.learn(
            self.state, [piece.part for piece in pieces], key
        )
        reported: list[dict[str, float]] = []
        ended = [piece for piece in pieces if piece.ended]
        for piece in sorted(ended, key=lambda piece: (piece.end, piece.env)):
            step = self.observed + piece.end * self.num_envs
            self.state, metrics = self.rewarder.observe(self.state, piece.part.episode, step)
            reported.append(metrics)
        names = reported[0] if reported else ()
        self.last_metrics |= {
            name: float(np.mean([metrics[name] for metrics in reported])) for name in names
        }
        self.observed += self.num_envs * max(piece.end for piece in pieces)
        self.rollouts += 1


class Seen(NamedTuple):
    """A rollout as rewards see it."""

    before: Float[np.ndarray, "T E O"]
    action: Float[np.ndarray, "T E A"]
    after: Float[np.ndarray, "T E O"]
    state: Float[np.ndarray, "T E D"]
    extrinsic_reward: Float[np.ndarray, "T E"]


def _continued(
    running: EpisodeSoFar | None, seen: Seen, env: int, begin: int, end: int, terminated: bool
) -> EpisodeSoFar:
    rows = (slice(begin, end), env)
    if running is None:
        # The state of the first observation is asked for by nobody, and its position is not known:
        # transitions lead to states.
        running = EpisodeSoFar(
            states=np.zeros((1, seen.state.shape[2]), np.float32),
            actions=seen.action[:0, env],
            rewards=seen.extrinsic_reward[:0, env],
            terminated=False,
            observations=seen.before[begin, env][None],
        )
    assert running.observations is not None
    return replace(
        running,
        states=np.concatenate([running.states, seen.state[rows]]),
        actions=np.concatenate([running.actions, seen.action[rows]]),
        rewards=np.concatenate([running.rewards, seen.extrinsic_reward[rows]]),
        observations=np.concatenate([running.observations, seen.after[rows]]),
        terminated=terminated,
    )


def _rows(values: Any, number: int) -> Any:
    """[T, E, ...] as [T·E, ...]."""

    def joined(part: Any) -> np.ndarray:
        array = np.asarray(part)
        return array.reshape(number, *array.shape[2:])

    return each_part(joined, values)
