"""An intrinsic reward for rollouts that are not ours, as PPO and A2C collect them: NumPy in, NumPy
out.

    bonus = RolloutReward("element", env.observation_space, env.action_space, num_envs=8, total_steps=1_000_000)
    rewards = bonus.rollout(observations, actions, next_observations, terminated, truncated, infos)     [T, E]

The rewards must reach the learner: add them to the rollout's before advantages are computed.

A rollout is judged by what was known before it; then methods that learn learn from it, and the
episodes that ended in it are observed. Episodes go on from one rollout to the next. The rewards are
those of `element on-policy` (`rewards/on_rollouts.py` says how they differ from the off-policy
form); here all environments of a rollout are judged before any of them is learned from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float

from element_rl.integrations.making import (
    element_window,
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
from element_rl.integrations.storage import pickled, read_bonus, under, write_bonus
from element_rl.memory.hnsw import HnswMemory
from element_rl.rewards import INTRINSIC_NAMES, check_name, make_reward
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import USUAL_STEPS
from element_rl.rewards.on_rollouts import ElementBonus, EpisodeSoFar, Part, make_bonus
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays


class Piece(NamedTuple):
    """The part of an episode that lies within a rollout."""

    env: int
    begin: int  # of its rows in the rollout
    end: int
    part: Part  # the episode up to there
    ended: bool


class RolloutReward:
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
        self.settings = {
            name: value for name, value in locals().items() if name not in ("self", "states")
        }
        if reward in ("extrinsic", "random"):
            raise ValueError(f"{reward} is no intrinsic reward; leave this out instead.")
        check_name(reward, INTRINSIC_NAMES)
        for name in ("num_envs", "total_steps", "max_episode_steps"):
            if self.settings[name] is not None and self.settings[name] < 1:
                raise ValueError(f"{name} must be at least 1, got {self.settings[name]}.")
        self.num_envs, self.action_space = num_envs, action_space
        self.max_episode_steps = max_episode_steps
        self.source = StateSource(
            observation_space, env_id=env_id, position=position, states=states, seed=seed
        )
        self.options = _preset(reward, env_id) | dict(options or {})
        self.observed, self.rollouts = 0, 0
        self.last_terms: dict[str, Float[np.ndarray, "T E"]] = {}  # of the latest rollout
        self.last_metrics: dict[str, float] = {}
        self.host_memory: HnswMemory | None = None  # none: the memory is part of the state
        self._running: list[EpisodeSoFar | None] = [None] * num_envs
        self._said_empty = False
        self._key = jax.random.key(seed)
        self._encode = jax.jit(
            lambda encoding, raw, beside: (encoding.vectors(raw), encoding.states(raw, beside))
        )
        self.state: Any = None
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
        died, ended = (
            np.asarray(terminated, bool),
            np.asarray(terminated, bool) | np.asarray(truncated, bool),
        )
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
        judged, terms = self.bonus.rewards_together(self.state, [piece.part for piece in pieces])
        self.last_terms = {name: np.zeros(died.shape, np.float32) for name in terms}
        first = 0
        for piece in pieces:
            rows, own = (
                (slice(piece.begin, piece.end), piece.env),
                slice(first, first + piece.part.new),
            )
            values[rows] = judged[own]
            for name, term in terms.items():
                self.last_terms[name][rows] = term[own]
            first += piece.part.new
        self._learn(pieces)
        return values

    def end_episodes(self) -> None:
        """Forgets the running episodes: environments have been reset between two rollouts."""
        self._running = [None] * self.num_envs

    @property
    def memory_size(self) -> int:
        """States in the lifelong memory; 0 for rewards that have none."""
        return (
            int(self.state.lifelong.size)
            if self.state is not None and isinstance(self.bonus, ElementBonus)
            else 0
        )

    def warn_if_memory_is_empty(self) -> None:
        """Warns, once, if ELEMENT has remembered nothing so far; for the end of a run. `save` does
        it too."""
        if self._said_empty or self.observed == 0 or self.memory_size > 0:
            return
        if isinstance(self.bonus, ElementBonus) and self.bonus.config.element.lifelong_weight > 0:
            self._said_empty = True
            warn_of_an_empty_memory(self.bonus.config.element, self.observed)

    def save(self, folder: str | Path) -> None:
        """Writes everything but an own function for the states."""
        self.warn_if_memory_is_empty()
        write_bonus(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, states: StateFunction | None = None) -> "RolloutReward":
        """What `save` wrote; `states` is the own function, where there was one."""
        return read_bonus(cls, Path(folder), states)

    def __reduce__(self) -> tuple[Any, ...]:
        self.warn_if_memory_is_empty()
        return pickled(self, self.source.own)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that has changed since the beginning."""
        counts = {
            "observed": self.observed,
            "rollouts": self.rollouts,
            "fitted": int(self.source.fitted),
        }
        arrays = {name: np.asarray(count, np.int64) for name, count in counts.items()}
        arrays |= tree_to_arrays(self.source.encoding, "encoding")
        for env, episode in enumerate(self._running):
            if episode is not None and episode.observations is not None:
                parts = {
                    name: getattr(episode, name)
                    for name in ("states", "actions", "rewards", "observations")
                }
                arrays |= {f"running/{env}/{name}": part for name, part in parts.items()}
        if self.state is not None:
            arrays |= tree_to_arrays(self.state, "state") | {
                "state_dim": np.asarray(self._state_dim)
            }
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None:
        """The opposite of `to_arrays`."""
        del memory
        self.observed, self.rollouts = int(arrays["observed"]), int(arrays["rollouts"])
        encoding = arrays_to_tree(self.source.encoding, under(arrays, "encoding"), "encoding")
        self.source.restore(encoding, bool(arrays["fitted"]))
        for env in range(self.num_envs):
            running = under(arrays, f"running/{env}")
            parts = {name.removeprefix(f"running/{env}/"): part for name, part in running.items()}
            self._running[env] = EpisodeSoFar(**parts, terminated=False) if parts else None
        if "state_dim" in arrays:
            self._start(int(arrays["state_dim"]))
            self.state = arrays_to_tree(self.state, under(arrays, "state"), "state")

    def _start(self, state_dim: int) -> None:
        self._state_dim = state_dim
        growing = self.settings["reward"] == "element" and self.settings["total_steps"] is None
        window = element_window(None, self.options) if growing else {}
        self.bonus = make_bonus(
            str(self.settings["reward"]),
            state_dim=state_dim,
            actions=flat_width(self.action_space),
            max_episode_steps=self.max_episode_steps,
            total_steps=self.settings["total_steps"] or USUAL_STEPS,
            options=self.options | window,
            observation_dim=self.source.observation_dim,
        )
        if isinstance(self.bonus, ElementBonus):
            self._said_empty = warn_of_closed_windows(
                self.bonus.config.element, self.settings["total_steps"]
            )
        self.state = self.bonus.init(jax.random.fold_in(self._key, 1))

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
        for name, array in (
            ("observations", before),
            ("next_observations", after),
            ("actions", chosen),
        ):
            if not np.isfinite(array).all():
                raise ValueError(f"Rollout {self.rollouts} has {name} that are not finite.")
        if not self.source.fitted:
            self.source.fit(after)
        if self.state is None:
            self._start(beside.shape[1])
        extrinsic = (
            np.zeros(number, np.float32)
            if rewards is None
            else np.asarray(rewards, np.float32).reshape(-1)
        )
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
        self.state, self.last_metrics = self.bonus.learn_together(
            self.state, [piece.part for piece in pieces], key
        )
        told: list[dict[str, float]] = []
        for piece in sorted(
            (piece for piece in pieces if piece.ended), key=lambda piece: (piece.end, piece.env)
        ):
            step = self.observed + piece.end * self.num_envs
            self.state, metrics = self.bonus.observe(self.state, piece.part.episode, step)
            told.append(metrics)
        self.last_metrics |= {
            name: float(np.mean([metrics[name] for metrics in told])) for name in (told or [{}])[0]
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
        states, first = (
            np.zeros((1, seen.state.shape[2]), np.float32),
            seen.before[begin, env][None],
        )
        running = EpisodeSoFar(
            states, seen.action[:0, env], seen.extrinsic_reward[:0, env], False, first
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
    if isinstance(values, Mapping):
        return {name: _rows(part, number) for name, part in values.items()}
    array = np.asarray(values)
    return array.reshape(number, *array.shape[2:])


def _preset(reward: str, env_id: str | None) -> dict[str, Any]:
    """ELEMENT's settings for a robot, as options."""
    if reward != "element" or env_id is None:
        return {}
    made = make_reward("element", env=env_id)
    assert isinstance(made, ElementReward)
    config = made.config
    return {"estimator": config.estimator, "graph": config.graph}
