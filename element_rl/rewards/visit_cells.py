"""Cells of vectors, so that visits can be counted, and the visits within an episode.

A count needs states that come back; vectors of real numbers never do. A state is therefore counted
by its cell: the whitened vector is projected onto a few random directions, and each projection is
rounded down to a multiple of a width (the hash for Euclidean distance of Datar et al., 2004,
https://doi.org/10.1145/997817.997857),

    x(s)     = (s − mean) / std                     by the moments of what was seen, not clipped
    cell(s)  = ⌊(D x(s)) / w + b⌋                   K integers;  rows of D have length 1, 0 ≤ b < 1
    N_ep(s') = visits of cell(s') in its episode, up to this one and with it

A vector of no more than K entries is not projected: its cells are those of a grid along its own
axes. Cells have the same size everywhere, so places far outside of what was whitened are told
apart as well as others. (SimHash, the signs of projections, tells directions from the origin
apart: in a plane K of them make 2K sectors, and all places along a ray are one.) The offset b keeps
an entry that never changes off the edge of a cell.

N_ep counts the first state of the episode too: to return to it is a second visit. RIDE and NovelD
have this count. Their papers count equal observations of a grid world instead.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.replay.ring import Episode
from element_rl.rewards.rnd import whitened
from element_rl.rewards.scaling import Moments

FARTHEST = 1e6  # deviations from the mean: beyond it integers of float32 have gaps
NOT_VISITED = jnp.iinfo(jnp.int32).min  # the cell of padding, which no state has


class Cells(NamedTuple):
    """Where cells lie; never changes."""

    directions: Float[Array, "O K"]  # columns of length 1
    offsets: Float[Array, " K"]  # in [0, 1)


def random_cells(
    key: PRNGKeyArray, dim: int, num_projections: int, always_project: bool = False
) -> Cells:
    """Directions and offsets for vectors of so many entries; the axes themselves where these are
    no more than the directions, unless `always_project`."""
    direction_key, offset_key = jax.random.split(key)
    directions = jnp.eye(dim)
    if dim > num_projections or always_project:
        drawn = jax.random.normal(direction_key, (dim, num_projections))
        directions = drawn / jnp.linalg.norm(drawn, axis=0, keepdims=True)
    return Cells(directions, jax.random.uniform(offset_key, directions.shape[1:]))


def cells_of(
    cells: Cells, vectors: Float[Array, "B O"], seen: Moments, width: float
) -> Int[Array, "B K"]:
    """The cell of each vector, whitened by the moments of what was seen; `width` is in standard
    deviations."""
    inputs = whitened(vectors, seen, FARTHEST)
    projected = jnp.matmul(inputs, cells.directions, precision="highest")
    return jnp.floor(projected / width + cells.offsets[None]).astype(jnp.int32)


def signs_of(cells: Cells, vectors: Float[Array, "B O"], seen: Moments) -> Int[Array, "B K"]:
    """SimHash (Charikar, 2002) of each whitened vector: 1 where it is on the positive side of a
    direction, otherwise 0."""
    inputs = whitened(vectors, seen, FARTHEST)
    return (jnp.matmul(inputs, cells.directions, precision="highest") > 0.0).astype(jnp.int32)


def visits_in_episode(
    cells: Cells, episode: Episode, seen: Moments, width: float
) -> Float[Array, " T"]:
    """N_ep of the state each transition leads to; 0 for padding.

    `seen` are the moments before the episode: with its own in them, cells would move while it is
    going on, and the rewards of a rollout were not those of the whole episode.
    """
    visited = jnp.concatenate([episode.observation[:1], episode.next_observation])  # s_0 … s_T
    present = jnp.concatenate([episode.mask[:1], episode.mask])
    return visits_so_far(cells_of(cells, visited, seen, width), present)[1:]


def visits_so_far(cells: Int[Array, "N K"], present: Bool[Array, " N"]) -> Float[Array, " N"]:
    """How many rows up to each one, itself included, are of its cell; 0 for rows that are not
    there."""
    row = jnp.arange(cells.shape[0], dtype=jnp.int32)
    marked = jnp.where(present[:, None], cells, NOT_VISITED)
    # equal cells next to each other, each in the order of time: sorting is stable
    columns = [marked[:, column] for column in range(marked.shape[1])]
    *ordered, origin = jax.lax.sort((*columns, row), num_keys=len(columns))
    changes = jnp.stack([column[1:] != column[:-1] for column in ordered]).any(axis=0)
    begins = jnp.concatenate([jnp.ones(1, bool), changes])
    first_of_cell = jax.lax.cummax(jnp.where(begins, row, 0))
    visits = jnp.zeros(len(row)).at[origin].set((row - first_of_cell + 1).astype(jnp.float32))
    return jnp.where(present, visits, 0.0)
