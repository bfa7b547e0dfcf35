"""The spaced memory: states that are farther than δ from each other, and never more than fit.

A state that is offered is kept only if it is farther than δ from every state kept before it, those
of the same batch included: the greedy rule, in the order of the states. When a state should be kept
and there is no room, δ grows by g = √2, and the kept states are offered again, in their order, to
an empty memory with the new δ; this is repeated until there is room. So however long a run is, the
memory has at most N states, and a query costs no more than one of N states.

**What it leaves out.** At each of δ_0 < δ_1 < … < δ_m, δ_i = g^i δ_0, a state that is dropped is
within δ_i of one that is kept. That one may be dropped at the next, so a state ever offered is from
the nearest one kept now at most

    R = δ_m + δ_m/g + δ_m/g² + … < δ_m g/(g − 1) = 3.42 δ_m

away. The kept states are some of those offered. So the distance to the nearest kept one is at least
the distance d to the nearest of all that were offered, and at most d + R. The second and the third
neighbour are other *places*: for them there is a lower bound, no upper one.

**The first δ** is given, or it is the median distance between successive states of the first batch
that moves at all. With less, every step of a trajectory would be a place of its own.

**Whose state it is.** A kept state stands for a place. Until a second *visitor* (another episode,
or whatever the caller numbers) offers a state within δ of it, it has one visitor only, and callers
may leave it out of that visitor's neighbours: otherwise who finds a place first would be told that
it is known. The second visitor's state is not kept; from then on the place is everybody's (`MANY`).
Every state that v offered is then within R of a kept one whose visitor is v or `MANY`, and a place
that is everybody's is within R of states of two visitors. So for u, who leaves its own out, the
distance to the nearest is within R, up or down, of the distance to all states of others.

How many states a spacing of δ can need: those within a ball of radius r, in D dimensions, are at
most (1 + 2r/δ)^D, because balls of radius δ/2 around them do not overlap. Trajectories fill far
fewer dimensions than states have (docs/methods/element.md).

Beyond the paper, which keeps all states of its update windows.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from element_rl.distances import squared_distances
from element_rl.memory import exact
from element_rl.memory.exact import ExactMemoryState

GROWTH = 2.0**0.5  # of δ, when the memory is full
COVER = GROWTH / (GROWTH - 1.0)  # every state ever offered is within COVER · δ of a kept one
MANY = -1  # the visitor of a place that more than one has visited
BLOCK = 1_024  # kept states that are offered again at once


class SpacedMemoryState(NamedTuple):
    """Kept states, in the order in which they came; rows from `size` on are room."""

    states: Float[Array, "N D"]
    values: Float[Array, " N"]
    ids: Int[Array, " N"]  # which of all offered states it is; ascending
    visitors: Int[Array, " N"]  # the only visitor of the place, or MANY
    size: Int[Array, ""]
    offered: Int[Array, ""]  # states offered so far, kept or not
    spacing: Float[Array, ""]  # δ; 0 until it is known


_Greedy = tuple[Array, Array, Array, Array]  # who is kept, visitors, who waits, how many are kept


class _Offer(NamedTuple):
    """States that want to be kept."""

    states: Float[Array, "M D"]
    values: Float[Array, " M"]
    ids: Int[Array, " M"]
    visitors: Int[Array, " M"]


def check_settings(capacity: int, spacing: float | None) -> None:
    """Refuses a spaced memory that could not hold two states, and a spacing that is none."""
    if capacity < 2:
        raise ValueError(f"A spaced memory needs room for at least 2 states, got {capacity}.")
    if spacing is not None and not 0 < spacing < math.inf:
        raise ValueError(f"The spacing of a memory must be positive and finite, got {spacing}.")


def create(capacity: int, dim: int, spacing: float | None = None) -> SpacedMemoryState:
    """An empty memory of at most `capacity` states; `spacing` None: from the first that come."""
    return SpacedMemoryState(
        jnp.zeros((capacity, dim)),
        jnp.zeros(capacity),
        jnp.zeros(capacity, jnp.int32),
        jnp.full(capacity, MANY, jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.asarray(spacing or 0.0, jnp.float32),
    )


def insert(
    memory: SpacedMemoryState,
    states: Float[Array, "M D"],
    values: Float[Array, " M"],
    count: Int[Array, ""],
    visitors: Int[Array, " M"] | None = None,
) -> SpacedMemoryState:
    """Offer the first `count` of the given states, one after the other; later rows are padding.

    A state that is not finite is never kept: nothing would be near it, and no δ would drop it.
    """
    num_states = states.shape[0]
    row = jnp.arange(num_states, dtype=jnp.int32)
    nobody = jnp.full(num_states, MANY, jnp.int32)
    offer = _Offer(states, values, memory.offered + row, nobody if visitors is None else visitors)
    waiting = (row < count) & jnp.all(jnp.isfinite(states), axis=1)
    known = memory.spacing > 0
    memory = memory._replace(
        spacing=jnp.where(known, memory.spacing, step_distance(states, waiting)),
        offered=memory.offered + count.astype(jnp.int32),
    )

    def turn(carry: tuple[SpacedMemoryState, Array]) -> tuple[SpacedMemoryState, Array]:
        memory, waiting = _judged(*carry, offer)
        # who still waits found no room
        return jax.lax.cond(jnp.any(waiting), thinned, lambda kept: kept, memory), waiting

    return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), turn, (memory, waiting))[0]


def query(
    memory: SpacedMemoryState,
    states: Float[Array, "Q D"],
    k: int,
    own: Int[Array, " Q"] | None = None,
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """Distances, ascending, and ids of the k nearest kept states; `own` names one to leave out per
    query."""
    rows = None
    if own is not None:
        in_use = jnp.arange(memory.ids.shape[0], dtype=jnp.int32) < memory.size
        ids = jnp.where(in_use, memory.ids, jnp.iinfo(jnp.int32).max)
        place = jnp.minimum(jnp.searchsorted(ids, own), ids.shape[0] - 1)
        rows = jnp.where(ids[place] == own, place, exact.NO_NODE).astype(jnp.int32)
    distances, found = exact.query(_as_exact(memory), states, k, rows)
    return distances, jnp.where(found == exact.NO_NODE, found, memory.ids[found])


def thinned(memory: SpacedMemoryState) -> SpacedMemoryState:
    """The memory with the next larger δ, and those of its states that are so far apart."""
    capacity = memory.states.shape[0]
    in_use = jnp.arange(capacity, dtype=jnp.int32) < memory.size
    # δ is not known yet where all states came one by one
    first = step_distance(memory.states, in_use)
    spacing = jnp.where(memory.spacing > 0, GROWTH * memory.spacing, first)
    block = min(BLOCK, capacity)

    def offer_again(index: Array, kept: SpacedMemoryState) -> SpacedMemoryState:
        # the last block may overlap the one before
        start = jnp.minimum(index * block, capacity - block)
        rows = start + jnp.arange(block, dtype=jnp.int32)
        leaves = (memory.states, memory.values, memory.ids, memory.visitors)
        parts = [jax.lax.dynamic_slice_in_dim(leaf, start, block) for leaf in leaves]
        waiting = (rows >= index * block) & (rows < memory.size)
        return _judged(kept, waiting, _Offer(*parts))[0]

    empty = memory._replace(size=jnp.zeros_like(memory.size), spacing=spacing)
    return jax.lax.fori_loop(0, -(-memory.size // block), offer_again, empty)


def step_distance(states: Float[Array, "M D"], present: Bool[Array, " M"]) -> Float[Array, ""]:
    """The median distance between successive states, of those that differ; 0 where none do."""
    if states.shape[0] < 2:
        return jnp.zeros(())
    steps = jnp.sqrt(jnp.sum((states[1:] - states[:-1]) ** 2, axis=1))
    moves = present[1:] & present[:-1] & (steps > 0) & jnp.isfinite(steps)
    median = jnp.nanmedian(jnp.where(moves, steps, jnp.nan))
    return jnp.where(jnp.any(moves), median, 0.0).astype(jnp.float32)


def _judged(
    memory: SpacedMemoryState, waiting: Bool[Array, " M"], offer: _Offer
) -> tuple[SpacedMemoryState, Bool[Array, " M"]]:
    """The memory with those that wait and are kept, and who still waits for want of room."""
    distances, rows = exact.query(_as_exact(memory), offer.states, 1)
    near = waiting & (distances[:, 0] <= memory.spacing)
    nearest = jnp.maximum(rows[:, 0], 0)
    seen_by_another = near & (memory.visitors[nearest] != offer.visitors)
    place = jnp.where(seen_by_another, nearest, memory.states.shape[0])
    memory = memory._replace(visitors=memory.visitors.at[place].set(MANY, mode="drop"))
    kept, visitors, without_room = _greedily(memory, waiting & ~near, offer)
    # Whoever comes after one without room is judged again: what it is near to may be let go now.
    row = jnp.arange(waiting.shape[0], dtype=jnp.int32)
    later = jnp.any(without_room) & (row > jnp.argmax(without_room))
    waiting = without_room | (waiting & later)
    target = memory.size + jnp.cumsum(kept, dtype=jnp.int32) - 1
    target = jnp.where(kept, target, memory.states.shape[0])
    written = {
        "states": offer.states,
        "values": offer.values,
        "ids": offer.ids,
        "visitors": visitors,
    }
    leaves = {
        name: getattr(memory, name).at[target].set(new, mode="drop")
        for name, new in written.items()
    }
    return memory._replace(**leaves, size=memory.size + jnp.sum(kept, dtype=jnp.int32)), waiting


def _greedily(
    memory: SpacedMemoryState, waiting: Bool[Array, " M"], offer: _Offer
) -> tuple[Bool[Array, " M"], Int[Array, " M"], Bool[Array, " M"]]:
    """Who is kept of those far from the memory, their visitors, and who still waits.

    The first that waits is kept, and all near it wait no more: as many turns as there are kept.
    """
    room = memory.states.shape[0] - memory.size

    def keep_one(carry: _Greedy) -> _Greedy:
        kept, visitors, waiting, number = carry
        first = jnp.argmax(waiting)
        distances = jnp.sqrt(squared_distances(offer.states, offer.states[first][None]))[:, 0]
        near = waiting & (distances <= memory.spacing)
        shared = jnp.any(near & (offer.visitors != offer.visitors[first]))
        visitor = jnp.where(shared, MANY, offer.visitors[first])
        return (
            kept.at[first].set(True),
            visitors.at[first].set(visitor),
            (waiting & ~near).at[first].set(False),
            number + 1,
        )

    def more(carry: _Greedy) -> Array:
        return jnp.any(carry[2]) & (carry[3] < room)

    start = (jnp.zeros_like(waiting), offer.visitors, waiting, jnp.zeros((), jnp.int32))
    kept, visitors, waiting, _ = jax.lax.while_loop(more, keep_one, start)
    return kept, visitors, waiting


def _as_exact(memory: SpacedMemoryState) -> ExactMemoryState:
    return ExactMemoryState(memory.states, memory.values, memory.size)
