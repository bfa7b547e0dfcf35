"""The states and notes beside somebody's replay buffer, and what is done with them, compiled."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from element_rl.integrations.observations import Encoding
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import Reward
from element_rl.rewards.interface import Remembers, remembering


class NotedStates(NamedTuple):
    """Per place in a ring of N transitions: the state it led to, and its notes.

    Transitions of several environments take turns in the ring, so an episode's lie apart.
    """

    state: Float[Array, "N D"]
    notes: dict[str, Array]  # each [N, ...]


class Programs(NamedTuple):
    """What is done with noted states, compiled once per shape."""

    write: Callable[..., NotedStates]
    observe: Callable[..., tuple[Any, NotedStates]]
    update: Callable[..., tuple[Any, dict[str, Array]]]
    reward: Callable[..., Array]
    terms: Callable[..., dict[str, Array]]


def programs(rewarder: Reward) -> Programs:
    """Equal rewards share them: a second bonus in a process compiles nothing again."""
    made: Any = rewarder
    try:
        hash(made)
    except TypeError:  # somebody's own
        return _programs.__wrapped__(made)
    return _programs(made)


@lru_cache(maxsize=64)
def _programs(rewarder: Reward) -> Programs:
    return Programs(
        jax.jit(_with_states, donate_argnums=0),
        jax.jit(
            partial(_observed, rewarder, remembering(rewarder)),
            static_argnames="remembers",
            donate_argnums=(0, 1),
        ),
        jax.jit(partial(_updated, rewarder)),
        jax.jit(lambda state, *batch: rewarder.reward(state, _transitions(*batch))),
        jax.jit(lambda state, *batch: rewarder.reward_terms(state, _transitions(*batch))),
    )


def _with_states(
    noted: NotedStates,
    encoding: Encoding,
    places: Int[Array, " R"],
    raw: Array,
    beside: Float[Array, "R C"],
) -> NotedStates:
    return noted._replace(
        state=noted.state.at[places].set(encoding.states(raw, beside), mode="drop")
    )


def _observed(
    rewarder: Reward,
    memory: Remembers | None,
    state: Any,
    noted: NotedStates,
    encoding: Encoding,
    before: Array,
    action: Float[Array, "T A"],
    after: Array,
    extrinsic_reward: Float[Array, " T"],
    terminated: Bool[Array, " T"],
    places: Int[Array, " T"],
    steps: Int[Array, " T"],
    length: Int[Array, ""],
    filled: Int[Array, ""],
    neighbour_distances: Float[Array, "T K"] | None,
    remembers: bool,
) -> tuple[Any, NotedStates]:
    """What the learner's `_finish` does, for transitions that may lie apart: environments take
    turns in the ring."""
    mask = jnp.arange(len(places)) < length
    states = noted.state[places]  # rows of padding read the last place; the mask says so
    seen = (encoding.vectors(before), action, encoding.vectors(after), extrinsic_reward, terminated)
    episode = Episode(*seen, states, mask, steps)
    if memory is None or neighbour_distances is None:
        new_state, notes = rewarder.observe(state, episode)
    else:
        new_state, notes = memory.observe(state, episode, neighbour_distances)
    written = {
        name: old.at[places].set(notes[name], mode="drop") for name, old in noted.notes.items()
    }
    if remembers and memory is not None:
        known = memory
        written = jax.lax.cond(
            known.notes_change(state, new_state),
            lambda old: known.refresh(state, new_state, episode, places, old, noted.state, filled),
            lambda old: old,
            written,
        )
    return new_state, NotedStates(noted.state, written)


def _updated(
    rewarder: Reward, state: Any, noted: NotedStates, encoding: Encoding, *batch_and_key: Any
) -> tuple[Any, dict[str, Array]]:
    *batch, key, number = batch_and_key
    # as the learner's
    learning_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2), number), 3)[1]
    return rewarder.update(state, _transitions(noted, encoding, *batch), learning_key)


def _transitions(
    noted: NotedStates,
    encoding: Encoding,
    places: Int[Array, " B"],
    before: Array,
    action: Float[Array, "B A"],
    after: Array,
    extrinsic_reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
) -> Transitions:
    notes = {name: note[places] for name, note in noted.notes.items()}
    before, after = encoding.vectors(before), encoding.vectors(after)
    return Transitions(
        before, action, after, extrinsic_reward, terminated, noted.state[places], notes
    )
