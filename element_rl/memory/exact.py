"""The exact memory, blocked brute force in JAX, and notes: its answers, kept current as it grows.

The memory is the oracle of every test, and the one of choice on accelerators at any size and on
CPUs up to some ten thousand states. Pure functions over a frozen `ExactMemoryState`; `vmap` them
over a population. Only the blocks that hold states are visited, so a query costs what the memory
holds, not what it could hold.

A note is the k smallest distances of a stored state to a memory, of whatever kind. When m states
enter the memory, they change only through those m: the note is merged with the m new distances
(`merge_distances`). After any sequence of insertions the merged note equals a fresh exact query, at
a cost that does not depend on the size of the memory (the paper searches again at every sample).
The merge is an insertion network: row by row independent, no matrix of distances is ever stored.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from element_rl.distances import UNROLLED_DIMENSIONS, squared_distances

NO_NODE = -1  # the id of a neighbour that does not exist; its distance is inf
ROWS = 16_384  # a capacity is rounded up to a multiple of this
CPU_BLOCK = 4_096  # states compared at once: their distances should stay in the cache
ACCELERATOR_BLOCK = 65_536  # fewer, larger kernels
FEW = 8  # neighbours, up to which passes of minimum beat a general top-k on accelerators
COLUMNS = 16  # new states merged into notes per loop turn
CPU_NOTES = 8_192  # merged at once: their states should stay in the cache
ACCELERATOR_NOTES = 1 << 20


class ExactMemoryState(NamedTuple):
    """Remembered states in insertion order; the id of a state is its row."""

    states: Float[Array, "N D"]
    values: Float[Array, " N"]
    size: Int[Array, ""]


def create(capacity: int, dim: int) -> ExactMemoryState:
    """An empty memory with room for at least `capacity` states."""
    rows = -(-max(capacity, 1) // ROWS) * ROWS
    return ExactMemoryState(jnp.zeros((rows, dim)), jnp.zeros(rows), jnp.zeros((), jnp.int32))


def insert(
    memory: ExactMemoryState,
    states: Float[Array, "M D"],
    values: Float[Array, " M"],
    count: Int[Array, ""],
) -> ExactMemoryState:
    """Remember the first `count` of the given states. There must be room for them; later rows are
    padding."""
    row = jnp.arange(states.shape[0], dtype=jnp.int32)
    # padding lands outside and is dropped
    target = jnp.where(row < count, memory.size + row, memory.states.shape[0])
    return ExactMemoryState(
        memory.states.at[target].set(states, mode="drop"),
        memory.values.at[target].set(values, mode="drop"),
        memory.size + count.astype(jnp.int32),
    )


def query(
    memory: ExactMemoryState,
    states: Float[Array, "Q D"],
    k: int,
    own: Int[Array, " Q"] | None = None,
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """Distances, ascending, and ids of the k nearest remembered states; `own` names a node to leave
    out per query."""
    num_queries = states.shape[0]
    own = jnp.full(num_queries, NO_NODE, jnp.int32) if own is None else own
    capacity = memory.states.shape[0]
    width = min(CPU_BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK, capacity)

    def visit(block: Array, nearest: tuple[Array, Array]) -> tuple[Array, Array]:
        # the last block may overlap the one before
        start = jnp.minimum(block * width, capacity - width)
        points = jax.lax.dynamic_slice_in_dim(memory.states, start, width)
        ids = start + jnp.arange(width, dtype=jnp.int32)
        squared = squared_distances(states, points)
        outside = (ids < block * width) | (ids >= memory.size)
        absent = outside[None, :] | (ids[None, :] == own[:, None])
        squared = jnp.where(absent, jnp.inf, squared)
        block_squared, columns = k_smallest(squared, k)
        merged = jnp.concatenate([nearest[0], block_squared], axis=1)
        merged_ids = jnp.concatenate([nearest[1], start + columns], axis=1)
        smallest, chosen = k_smallest(merged, k)
        return smallest, jnp.take_along_axis(merged_ids, chosen, axis=1)

    nothing = (jnp.full((num_queries, k), jnp.inf), jnp.full((num_queries, k), NO_NODE, jnp.int32))
    num_blocks = -(-memory.size // width)
    squared, ids = jax.lax.fori_loop(0, num_blocks, visit, nothing)
    return jnp.sqrt(squared), jnp.where(jnp.isfinite(squared), ids, NO_NODE)


def k_smallest(
    values: Float[Array, "Q M"], k: int
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """The k smallest of each row, ascending, and their columns.

    On an accelerator k passes of minimum and mask are twice as fast as `top_k` for the few
    neighbours wanted here.
    """
    if jax.default_backend() == "cpu" or k > FEW:
        negative, columns = jax.lax.top_k(-values, k)
        return -negative, columns
    smallest, chosen = [], []
    position = jnp.arange(values.shape[1], dtype=jnp.int32)[None, :]
    for _ in range(k):
        column = jnp.argmin(values, axis=1).astype(jnp.int32)
        smallest.append(jnp.min(values, axis=1))
        chosen.append(column)
        values = jnp.where(position == column[:, None], jnp.inf, values)
    return jnp.stack(smallest, axis=1), jnp.stack(chosen, axis=1)


def merge_distances(
    neighbour_distances: Float[Array, "N K"],
    states: Float[Array, "N D"],
    new_states: Float[Array, "M D"],
    new_count: int | Int[Array, ""] | None = None,
    own: Int[Array, " N"] | None = None,
    num_rows: int | Int[Array, ""] | None = None,
    visitors: tuple[Int[Array, " N"], Int[Array, " M"]] | None = None,
    of_own: bool = False,
) -> Float[Array, "N K"]:
    """The k smallest of each row's noted distances and its distances to the first `new_count` new
    states, ascending.

    `own [N]` is the row in `new_states` of the very same state (not a duplicate of it), left out;
    `NO_NODE` where there is none. `num_rows` limits the work to the first rows, for a store that is
    not full yet. Unknown neighbours are at distance inf. `visitors` are numbers of the rows and of
    the new states: a new state counts for the rows with other numbers only (`of_own`: with the same
    number only).
    """
    total_rows = states.shape[0]
    block = min(total_rows, CPU_NOTES if jax.default_backend() == "cpu" else ACCELERATOR_NOTES)
    new_states, new_count = _pad_columns(new_states, new_count)
    own = jnp.full(total_rows, NO_NODE, jnp.int32) if own is None else own
    num_rows = total_rows if num_rows is None else num_rows
    row_visitors, new_visitors = (None, None) if visitors is None else visitors
    if new_visitors is not None:
        new_visitors = jnp.pad(new_visitors, (0, new_states.shape[0] - new_visitors.shape[0]))

    def merge_block(index: Array, merged: Array) -> Array:
        # the last may overlap: it reads the input, not `merged`
        start = jnp.minimum(index * block, total_rows - block)
        notes, row_states, row_own = (
            jax.lax.dynamic_slice_in_dim(x, start, block)
            for x in (neighbour_distances, states, own)
        )
        whose = None
        if row_visitors is not None and new_visitors is not None:
            whose = (jax.lax.dynamic_slice_in_dim(row_visitors, start, block), new_visitors)
        notes = _merge_rows(notes, row_states, row_own, new_states, new_count, whose, of_own)
        return jax.lax.dynamic_update_slice_in_dim(merged, notes, start, axis=0)

    return jax.lax.fori_loop(0, -(-num_rows // block), merge_block, neighbour_distances)


def _merge_rows(
    neighbour_distances: Float[Array, "N K"],
    states: Float[Array, "N D"],
    own: Int[Array, " N"],
    new_states: Float[Array, "M D"],
    new_count: Int[Array, ""],
    visitors: tuple[Int[Array, " N"], Int[Array, " M"]] | None = None,
    of_own: bool = False,
) -> Float[Array, "N K"]:
    k = neighbour_distances.shape[1]
    coordinates = states.T  # neighbouring rows in neighbouring places

    def offer(turn: Array, smallest: tuple[Array, ...]) -> tuple[Array, ...]:
        columns = jax.lax.dynamic_slice_in_dim(new_states, turn * COLUMNS, COLUMNS)
        kept = list(smallest)
        for c in range(COLUMNS):
            column = turn * COLUMNS + c
            squared = _squared_distance(coordinates, columns[c])
            absent = (own == column) | (column >= new_count)
            if visitors is not None:
                absent = absent | ((visitors[0] == visitors[1][column]) != of_own)
            squared = jnp.where(absent, jnp.inf, squared)
            # each kept value takes the smaller and hands the larger on (minimum would look for NaN)
            for j in range(k):
                smaller = squared < kept[j]
                kept[j], squared = (
                    jnp.where(smaller, squared, kept[j]),
                    jnp.where(smaller, kept[j], squared),
                )
        return tuple(kept)

    smallest = tuple(neighbour_distances[:, j] ** 2 for j in range(k))
    smallest = jax.lax.fori_loop(0, -(-new_count // COLUMNS), offer, smallest)
    return jnp.sqrt(jnp.stack(smallest, axis=1))


def _squared_distance(
    coordinates: Float[Array, "D N"], point: Float[Array, " D"]
) -> Float[Array, " N"]:
    total = jnp.zeros(coordinates.shape[1])
    if len(coordinates) <= UNROLLED_DIMENSIONS:
        for d in range(len(coordinates)):
            total = total + (coordinates[d] - point[d]) ** 2
        return total
    return jnp.sum((coordinates - point[:, None]) ** 2, axis=0)


def _pad_columns(
    new_states: Float[Array, "M D"], new_count: int | Int[Array, ""] | None
) -> tuple[Float[Array, "M2 D"], Int[Array, ""]]:
    num_new = new_states.shape[0]
    padding = -num_new % COLUMNS
    count = jnp.asarray(num_new if new_count is None else new_count, jnp.int32)
    return jnp.pad(new_states, ((0, padding), (0, 0))), count
