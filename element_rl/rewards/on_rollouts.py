"""Every reward of this library on rollouts: what an on-policy loop asks between a rollout's arrival
and its advantages.

    parts = [Part(episode, new), …]                      the last `new` transitions of episodes
    state = bonus.init(key)
    values, terms = bonus.rewards(state, parts)          of these transitions, in order; pure
    state, metrics = bonus.learn(state, parts, key)      methods that learn, learn from the same
    state, metrics = bonus.observe(state, episode, step) an episode has ended

`rewards` comes before `learn`, as RND and ICM have it: a rollout is judged by what was known before
it. Several episodes of an agent may run at once and share one state. The states of the frozen
encoder are what rewards call observations; an action is a one-hot vector. Rows are padded to a few
lengths, so that few programs are compiled.

What differs from the off-policy form, for all methods:
1. A transition is rewarded once, when its rollout arrives. Off-policy its reward is computed anew
   whenever it is sampled.
2. Rewards that look at the whole episode (NGU, E3B, RIDE, NovelD, ETD) see it up to the end of the
   rollout. What they note of a transition depends on what came before it only, so this is the note
   of the whole episode.
3. What learns takes one pass over the rollout's transitions in shuffled minibatches
   (`minibatch_size`, `passes`).
4. RE3, RISE and APT look for neighbours among the last transitions of the agent, this rollout's
   included: their pool, which off-policy holds draws from the replay. Every transition is one of
   its own here, also one that equals an earlier one.
5. Inverse models tell a one-hot action with a squared error over tanh outputs. Their papers have a
   softmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import (
    Latent,
    Reward,
    RewardSpec,
    comparing,
    keeps_scale,
    latent_of,
)

Values = tuple[Float[np.ndarray, " T"], dict[str, Float[np.ndarray, " T"]]]  # and their terms


@dataclass(frozen=True)
class LearningConfig:
    """How a reward learns from a rollout; not used by ELEMENT, which learns nothing."""

    minibatch_size: int = 100  # transitions per step; short rollouts repeat theirs to fill one
    passes: int = 1  # over the transitions of a rollout

    def __post_init__(self) -> None:
        for name in ("minibatch_size", "passes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class EpisodeSoFar:
    """An episode since its reset, on the host."""

    # encoded frames, N + 1 of them: the one after the last action included
    states: Float[np.ndarray, "M D"]
    actions: Int[np.ndarray, " N"] | Float[np.ndarray, "N A"]  # choices, or vectors
    rewards: Float[np.ndarray, " N"]  # extrinsic
    terminated: bool  # by its last transition
    # where rewards look at others than the states
    observations: Float[np.ndarray, "M O"] | None = None


class Part(NamedTuple):
    """The end of an episode so far: what of it is new."""

    episode: EpisodeSoFar
    new: int  # transitions


@runtime_checkable
class Bonus(Protocol):
    """A reward on rollouts, for one agent at a time; a state is a pytree of arrays, and all there
    is to save.

    The parts are one worker's rollout, or those of several environments at once, as PPO collects
    them; values stand in the order of the parts.
    """

    name: str
    metric_names: tuple[str, ...]  # what `learn` and `observe` report

    def init(self, key: PRNGKeyArray) -> Any: ...

    def rewards(self, state: Any, parts: Sequence[Part]) -> Values: ...

    def learn(
        self, state: Any, parts: Sequence[Part], key: PRNGKeyArray
    ) -> tuple[Any, dict[str, float]]: ...

    def observe(
        self, state: Any, episode: EpisodeSoFar, step: int
    ) -> tuple[Any, dict[str, float]]: ...


class RolloutState(NamedTuple):
    """The state of a reward, and of how many transitions it has learned: the next one's number."""

    reward: Any
    transitions: Int[np.ndarray, ""]


class RewardBonus:
    """A reward on rollouts through its interface (`rewards/interface.py`)."""

    def __init__(
        self,
        reward: Reward,
        spec: RewardSpec,
        learning: LearningConfig,
        name: str,
        learns_from_notes: bool,
    ) -> None:
        self.name, self.metric_names = name, reward.metric_names
        self.keeps_scale = keeps_scale(reward)
        self._reward, self._spec, self._learning = reward, spec, learning
        self._notes = bool(reward.note_shapes())
        self._learns_from_notes = self._notes and learns_from_notes
        self._evaluate = jax.jit(self._evaluated)
        self._observe = jax.jit(reward.observe)
        self._note = jax.jit(lambda state, episode: reward.observe(state, episode)[1])
        self._learn = jax.jit(partial(_learned, reward))

    @property
    def latent(self) -> Latent | None:
        """What the agent must be told, where its reward needs it."""
        return latent_of(self._reward)

    def init(self, key: PRNGKeyArray) -> Any:
        return RolloutState(self._reward.init(key, self._spec), np.zeros((), np.int64))

    def rewards(self, state: Any, parts: Sequence[Part]) -> Values:
        batch = self._batch(state, parts, with_notes=self._notes)
        total = len(batch.action)
        # those past the end repeat the last one
        rows = np.minimum(np.arange(padded_length(total)), total - 1)
        numbers = (int(state.transitions) + rows).astype(np.uint32)
        values, terms = self._evaluate(
            state.reward, jax.tree.map(lambda leaf: leaf[rows], batch), numbers
        )
        return np.asarray(values)[:total], {
            name: np.asarray(term)[:total] for name, term in terms.items()
        }

    def learn(
        self, state: Any, parts: Sequence[Part], key: PRNGKeyArray
    ) -> tuple[Any, dict[str, float]]:
        batch = self._batch(state, parts, with_notes=self._learns_from_notes)
        total = len(batch.action)
        order_key, learning_key = jax.random.split(key)
        rows = minibatches(order_key, total, self._learning)
        numbers = (int(state.transitions) + rows).astype(np.uint32)
        learned, metrics = self._learn(
            state.reward, jax.tree.map(lambda leaf: leaf[rows], batch), numbers, learning_key
        )
        state = RolloutState(learned, np.asarray(int(state.transitions) + total, np.int64))
        return state, {name: float(value) for name, value in metrics.items()}

    def observe(self, state: Any, episode: EpisodeSoFar, step: int) -> tuple[Any, dict[str, float]]:
        observed, _ = self._observe(
            state.reward, self._padded(episode, step - len(episode.actions))
        )
        return state._replace(reward=observed), {}

    def _evaluated(
        self, state: Any, batch: Transitions, number: UInt[Array, " T"]
    ) -> tuple[Float[Array, " T"], dict[str, Float[Array, " T"]]]:
        batch = _told_apart(self._reward, batch, number)
        state = _with_rollout_in_pool(self._reward, state, batch)
        return self._reward.reward(state, batch), self._reward.reward_terms(state, batch)

    def _batch(self, state: Any, parts: Sequence[Part], with_notes: bool) -> Transitions:
        """The new transitions of all parts; notes are of their episodes up to there."""
        batches = [_transitions(_last(*part), self._spec.action_dim) for part in parts]
        if with_notes:
            notes = [self._notes_of(state, part) for part in parts]
            batches = [
                batch._replace(notes=note) for batch, note in zip(batches, notes, strict=True)
            ]
        return jax.tree.map(lambda *rows: np.concatenate(rows), *batches)

    def _notes_of(self, state: Any, part: Part) -> dict[str, Any]:
        length = len(part.episode.actions)
        noted = self._note(state.reward, self._padded(part.episode))
        return {name: np.asarray(note)[length - part.new : length] for name, note in noted.items()}

    def _padded(self, episode: EpisodeSoFar, step: int = 0) -> Episode:
        length = len(episode.actions)
        rows = padded_length(length)

        def padded(part: np.ndarray) -> np.ndarray:
            return np.pad(part, [(0, rows - length)] + [(0, 0)] * (part.ndim - 1))

        transitions: Transitions = jax.tree.map(
            padded, _transitions(episode, self._spec.action_dim)
        )
        steps: Any = (step + np.arange(rows)).astype(np.int32)
        mask: Any = np.arange(rows) < length
        return Episode(*transitions[:6], mask, steps)


def padded_length(rows: int) -> int:
    """The length that `rows` are padded to, so that few programs are compiled: 32, 40, 48, 56, 64,
    80, … 256, 320, 384, …"""
    step = 8
    while 8 * step < rows:
        step *= 2
    return max(32, -(-rows // step) * step)


def minibatches(key: PRNGKeyArray, number: int, config: LearningConfig) -> Int[np.ndarray, "M B"]:
    """Rows of a rollout, in shuffled minibatches of equal size: each at least once per pass, some
    twice to fill the last."""
    shuffle = np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32))
    count = -(-number // config.minibatch_size)
    rows = [
        np.resize(shuffle.permutation(number), count * config.minibatch_size)
        for _ in range(config.passes)
    ]
    return np.concatenate(rows).reshape(config.passes * count, config.minibatch_size)


def _learned(
    reward: Reward, state: Any, batches: Transitions, numbers: UInt[Array, "M B"], key: PRNGKeyArray
) -> tuple[Any, dict[str, Array]]:
    """One update after the other; metrics are means."""

    def step(
        carried: Any, now: tuple[Transitions, Array, PRNGKeyArray]
    ) -> tuple[Any, dict[str, Array]]:
        batch, number, update_key = now
        return reward.update(carried, _told_apart(reward, batch, number), update_key)

    keys = jax.random.split(key, batches.action.shape[0])
    state, metrics = jax.lax.scan(step, state, (batches, numbers, keys))
    return state, {name: jnp.mean(values) for name, values in metrics.items()}


def _with_rollout_in_pool(reward: Reward, state: Any, batch: Transitions) -> Any:
    """The state a rollout is judged with: for rewards that compare with recent transitions, its own
    are among them.

    So an agent that stands still in a new place is paid for it once. What learns has not learned
    from them yet.
    """
    compares = comparing(reward)
    return state if compares is None else compares.with_transitions(state, batch)


def _told_apart(reward: Reward, batch: Transitions, number: UInt[Array, " B"]) -> Transitions:
    """A pool takes transitions with the same bits for draws of one. Here every transition comes
    once, so one that equals an earlier one, an agent that pushes against a wall, is another."""
    # halves: float32 has 24 digits
    numbers = jnp.stack([number >> 16, number & 0xFFFF], axis=1).astype(jnp.float32)
    compares = comparing(reward)
    return batch if compares is None else compares.told_apart(batch, numbers)


def _last(episode: EpisodeSoFar, new: int) -> EpisodeSoFar:
    """The last `new` transitions of an episode."""
    length = len(episode.actions)
    if not 1 <= new <= length:
        raise ValueError(f"The last {new} transitions were asked of an episode that has {length}.")
    first = length - new
    observations = None if episode.observations is None else episode.observations[first:]
    parts = (episode.states[first:], episode.actions[first:], episode.rewards[first:])
    return EpisodeSoFar(*parts, bool(episode.terminated), observations)


def states_reached(parts: Sequence[Part]) -> Float[np.ndarray, "T D"]:
    """The states that the new transitions of all parts led to."""
    return np.concatenate([_last(*part).states[1:] for part in parts])


def _transitions(episode: EpisodeSoFar, actions: int) -> Transitions:
    """All of an episode, on the host; the state of a transition is that of its next observation."""
    states: Any = np.asarray(episode.states, np.float32)
    seen: Any = (
        states if episode.observations is None else np.asarray(episode.observations, np.float32)
    )
    choices = episode.actions.ndim == 1
    chosen: Any = np.eye(actions, dtype=np.float32)[episode.actions] if choices else episode.actions
    rewards: Any = np.asarray(episode.rewards, np.float32)
    terminated: Any = np.zeros(len(rewards), bool)
    terminated[-1] = episode.terminated
    return Transitions(seen[:-1], chosen, seen[1:], rewards, terminated, states[1:], {})
