"""Notes: the k smallest distances of stored states to a memory, kept up to date as the memory
grows.

When m states enter the memory, the k smallest distances of a stored state change only through those
m: its note is merged with the m new distances. After any sequence of insertions the merged note
equals a fresh exact query, at a cost that does not depend on the size of the memory (DESIGN:
"notes"; the paper searches again at every sample).

The merge is an insertion network: row by row independent, no matrix of distances is ever stored.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from element_rl.distances import UNROLLED_DIMENSIONS
from element_rl.memory.exact import NO_NODE

COLUMNS = 16  # new states treated per loop turn
CPU_ROWS = 8_192  # notes treated at once: their states should stay in the cache
ACCELERATOR_ROWS = 1 << 20


def merge_distances(
    neighbour_distances: Float[Array, "N K"],
    states: Float[Array, "N D"],
    new_states: Float[Array, "M D"],
    new_count: int | Int[Array, ""] | None = None,
    own: Int[Array, " N"] | None = None,
    num_rows: int | Int[Array, ""] | None = None,
) -> Float[Array, "N K"]:
    """The k smallest of each row's noted distances and its distances to the first `new_count` new
    states, ascending.

    `own [N]` is the row in `new_states` of the very same state (not a duplicate of it), left out;
    `NO_NODE` where there is none. `num_rows` limits the work to the first rows, for a store that is
    not full yet. Unknown neighbours are at distance inf.
    """
    total_rows = states.shape[0]
    block = min(total_rows, CPU_ROWS if jax.default_backend() == "cpu" else ACCELERATOR_ROWS)
    new_states, new_count = _pad_columns(new_states, new_count)
    own = jnp.full(total_rows, NO_NODE, jnp.int32) if own is None else own
    num_rows = total_rows if num_rows is None else num_rows

    def merge_block(index: Array, merged: Array) -> Array:
        # the last may overlap: it reads the input, not `merged`
        start = jnp.minimum(index * block, total_rows - block)
        notes, row_states, row_own = (
            jax.lax.dynamic_slice_in_dim(x, start, block)
            for x in (neighbour_distances, states, own)
        )
        notes = _merge_rows(notes, row_states, row_own, new_states, new_count)
        return jax.lax.dynamic_update_slice_in_dim(merged, notes, start, axis=0)

    return jax.lax.fori_loop(0, -(-num_rows // block), merge_block, neighbour_distances)


def _merge_rows(
    neighbour_distances: Float[Array, "N K"],
    states: Float[Array, "N D"],
    own: Int[Array, " N"],
    new_states: Float[Array, "M D"],
    new_count: Int[Array, ""],
) -> Float[Array, "N K"]:
    k = neighbour_distances.shape[1]
    coordinates = states.T  # neighbouring rows in neighbouring places

    def offer(turn: Array, smallest: tuple[Array, ...]) -> tuple[Array, ...]:
        columns = jax.lax.dynamic_slice_in_dim(new_states, turn * COLUMNS, COLUMNS)
        kept = list(smallest)
        for c in range(COLUMNS):
            column = turn * COLUMNS + c
            squared = _squared_distance(coordinates, columns[c])
            squared = jnp.where((own == column) | (column >= new_count), jnp.inf, squared)
            for j in range(
                k
                # each kept value takes the smaller and hands the larger on (minimum would look for NaN)
            ):
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
