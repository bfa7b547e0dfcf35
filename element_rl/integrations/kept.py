"""What is kept of every transition, and the programs that change and read it; each is compiled once
per shape.

The places of a ring, N of them, hold the state a transition led to and its notes. Transitions of
several environments take turns in the ring, so an episode's lie apart.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from element_rl.integrations.observations import Encoding
from element_rl.memory.exact import NO_NODE
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import Reward
from element_rl.rewards.interface import remembering


class Kept(NamedTuple):
    """Per place in the ring: the state a transition led to, and its notes."""

    state: Float[Array, "N D"]
    notes: dict[str, Array]  # each [N, ...]


class Programs(NamedTuple):
    """What is done to the kept, compiled."""

    write: Callable[..., Kept]
    observe: Callable[..., tuple[Any, Kept]]
    update: Callable[..., tuple[Any, dict[str, Array]]]
    reward: Callable[..., Array]
    terms: Callable[..., dict[str, Array]]


def programs(rewarder: Reward) -> Programs:
    """Of equal rewards they are the same ones: a second bonus in a process compiles nothing again."""
    made: Any = rewarder
    try:
        hash(made)
    except TypeError:  # somebody's own
        return _programs.__wrapped__(made)
    return _programs(made)


@lru_cache(maxsize=64)
def _programs(rewarder: Reward) -> Programs:
    return Programs(
        jax.jit(written, donate_argnums=0),
        jax.jit(partial(observed, rewarder), static_argnames="remembers", donate_argnums=(0, 1)),
        jax.jit(partial(updated, rewarder)),
        jax.jit(lambda state, *batch: rewarder.reward(state, transitions(*batch))),
        jax.jit(lambda state, *batch: rewarder.reward_terms(state, transitions(*batch))),
    )


def written(
    kept: Kept,
    encoding: Encoding,
    places: Int[Array, " R"],
    raw: Array,
    beside: Float[Array, "R C"],
) -> Kept:
    return kept._replace(state=kept.state.at[places].set(encoding.states(raw, beside), mode="drop"))


def observed(
    rewarder: Reward,
    state: Any,
    kept: Kept,
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
) -> tuple[Any, Kept]:
    """What the learner's `_finish` does, for transitions that may lie apart: environments take
    turns in the ring."""
    memory = remembering(rewarder)
    mask = jnp.arange(len(places)) < length
    states = kept.state[places]  # rows of padding read the last place; the mask says so
    told = (encoding.vectors(before), action, encoding.vectors(after), extrinsic_reward, terminated)
    episode = Episode(*told, states, mask, steps)
    if neighbour_distances is None:
        state, notes = rewarder.observe(state, episode)
    else:
        assert memory is not None
        state, notes = memory.observe(state, episode, neighbour_distances)
    written = {
        name: old.at[places].set(notes[name], mode="drop") for name, old in kept.notes.items()
    }
    if remembers:
        assert memory is not None
        entering = memory.entering(episode)
        own = (
            jnp.full(len(kept.state), NO_NODE, jnp.int32).at[places].set(entering.rank, mode="drop")
        )
        written = memory.refresh(written, kept.state, entering, own, filled)
    return state, Kept(kept.state, written)


def updated(
    rewarder: Reward, state: Any, kept: Kept, encoding: Encoding, *batch_and_key: Any
) -> tuple[Any, dict[str, Array]]:
    *batch, key, number = batch_and_key
    # as the learner's
    learning_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2), number), 3)[1]
    return rewarder.update(state, transitions(kept, encoding, *batch), learning_key)


def transitions(
    kept: Kept,
    encoding: Encoding,
    places: Int[Array, " B"],
    before: Array,
    action: Float[Array, "B A"],
    after: Array,
    extrinsic_reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
) -> Transitions:
    notes = {name: note[places] for name, note in kept.notes.items()}
    before, after = encoding.vectors(before), encoding.vectors(after)
    return Transitions(
        before, action, after, extrinsic_reward, terminated, kept.state[places], notes
    )
