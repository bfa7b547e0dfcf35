"""The exact memory: blocked brute force in JAX.

The oracle of every test, and the memory of choice on accelerators at any size and on CPUs up to about 1e5 states.
Pure functions over a frozen `ExactMemoryState`; `vmap` them over a population. Only the blocks that hold states are visited,
so a query costs what the memory holds, not what it could hold.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from element_rl.distances import squared_distances

NO_NODE = -1  # the id of a neighbour that does not exist; its distance is inf
BLOCK = 4096  # states compared at once; a capacity is rounded up to a multiple of it


class ExactMemoryState(NamedTuple):
    """Remembered states in insertion order; the id of a state is its row."""

    states: Float[Array, "N D"]
    values: Float[Array, " N"]
    size: Int[Array, ""]


def create(capacity: int, dim: int) -> ExactMemoryState:
    """An empty memory with room for at least `capacity` states."""
    rows = -(-max(capacity, 1) // BLOCK) * BLOCK
    return ExactMemoryState(jnp.zeros((rows, dim)), jnp.zeros(rows), jnp.zeros((), jnp.int32))


def insert(
    memory: ExactMemoryState, states: Float[Array, "M D"], values: Float[Array, " M"], count: Int[Array, ""]
) -> ExactMemoryState:
    """Remember the first `count` of the given states. There must be room for them; later rows are padding."""
    row = jnp.arange(states.shape[0], dtype=jnp.int32)
    target = jnp.where(row < count, memory.size + row, memory.states.shape[0])  # padding lands outside and is dropped
    return ExactMemoryState(
        memory.states.at[target].set(states, mode="drop"),
        memory.values.at[target].set(values, mode="drop"),
        memory.size + count.astype(jnp.int32),
    )


def query(
    memory: ExactMemoryState, states: Float[Array, "Q D"], k: int, own: Int[Array, " Q"] | None = None
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """Distances, ascending, and ids of the k nearest remembered states; `own` names a node to leave out per query."""
    num_queries = states.shape[0]
    own = jnp.full(num_queries, NO_NODE, jnp.int32) if own is None else own

    def visit(block: Array, nearest: tuple[Array, Array]) -> tuple[Array, Array]:
        start = block * BLOCK
        points = jax.lax.dynamic_slice_in_dim(memory.states, start, BLOCK)
        ids = start + jnp.arange(BLOCK, dtype=jnp.int32)
        squared = squared_distances(states, points)
        absent = (ids[None, :] >= memory.size) | (ids[None, :] == own[:, None])
        squared = jnp.where(absent, jnp.inf, squared)
        block_squared, columns = k_smallest(squared, k)
        merged = jnp.concatenate([nearest[0], block_squared], axis=1)
        merged_ids = jnp.concatenate([nearest[1], start + columns], axis=1)
        smallest, chosen = k_smallest(merged, k)
        return smallest, jnp.take_along_axis(merged_ids, chosen, axis=1)

    nothing = (jnp.full((num_queries, k), jnp.inf), jnp.full((num_queries, k), NO_NODE, jnp.int32))
    num_blocks = -(-memory.size // BLOCK)
    squared, ids = jax.lax.fori_loop(0, num_blocks, visit, nothing)
    return jnp.sqrt(squared), jnp.where(jnp.isfinite(squared), ids, NO_NODE)


def k_smallest(values: Float[Array, "Q M"], k: int) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """The k smallest of each row, ascending, and their columns."""
    negative, columns = jax.lax.top_k(-values, k)
    return -negative, columns
