"""The exact memory: blocked brute force in JAX.

The oracle of every test, and the memory of choice on accelerators at any size and on CPUs up to
some ten thousand states. Pure functions over a frozen `ExactMemoryState`; `vmap` them over a
population. Only the blocks that hold states are visited, so a query costs what the memory holds,
not what it could hold.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from element_rl.distances import squared_distances

NO_NODE = -1  # the id of a neighbour that does not exist; its distance is inf
ROWS = 16_384  # a capacity is rounded up to a multiple of this
CPU_BLOCK = 4_096  # states compared at once: their distances should stay in the cache
ACCELERATOR_BLOCK = 65_536  # fewer, larger kernels
FEW = 8  # neighbours, up to which passes of minimum beat a general top-k on accelerators


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
