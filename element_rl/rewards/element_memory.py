"""The lifelong memory of ELEMENT on the device: what enters it, and the notes that depend on it.

A note has the k smallest distances of a stored state to the memory. After every episode that fed
the memory it is again what a fresh query would give (`refreshed`), whatever the kind of memory and
whoever is left out:

    own_episode  in     the state itself, the paper's form
                 out    all states of its own episode

A spaced memory keeps a state for a whole place. Whose it is, is told by numbers of *visitors*
(`element_rl.memory.spaced`): the first step of the episode (`out`), or the step of the state itself
(`in`). What is stored has this number in a note of its own.

When a spaced memory is thinned, all notes are computed afresh. To keep the old, smaller distances
would be cheaper, but a note would then tell when it was made: k states of an early, dense memory
may lie where now there is one, and the same place would be known in old transitions and novel in
later ones. δ grows by √2 and never beyond the size of what was seen, so this happens some dozens of
times in a run, however long.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from element_rl.memory import exact, graph, spaced
from element_rl.memory.exact import NO_NODE, ExactMemoryState, merge_distances
from element_rl.memory.graph import GraphMemoryState
from element_rl.memory.spaced import MANY, SpacedMemoryState
from element_rl.replay.ring import Episode
from element_rl.rewards.element_config import ElementConfig, states_remembered
from element_rl.rewards.interface import Entering

# () when the memory lives on the host (hnsw)
DeviceMemory = ExactMemoryState | GraphMemoryState | SpacedMemoryState | tuple[()]
# numbers of visitors begin anew after so many: notes are float32, which tells no more apart
VISITORS = 2**24


def create(config: ElementConfig, total_steps: int, dim: int) -> DeviceMemory:
    """An empty memory with room for a run of so many steps."""
    if config.memory == "exact":
        return exact.create(states_remembered(total_steps, config), dim)
    if config.memory == "graph":
        return graph.create(states_remembered(total_steps, config), dim, config.graph)
    if config.memory == "spaced":
        return spaced.create(config.memory_capacity, dim, config.memory_spacing)
    return ()


def query(
    config: ElementConfig, memory: DeviceMemory, states: Float[Array, "T D"]
) -> Float[Array, "T K"]:
    """Distances of an episode's states to the memory as it was before the episode."""
    k = config.num_neighbours
    if isinstance(memory, GraphMemoryState):
        return graph.query(memory, states, k, config.graph)[0]
    if isinstance(memory, ExactMemoryState):
        return exact.query(memory, states, k)[0]
    if isinstance(memory, SpacedMemoryState):
        return spaced.query(memory, states, k)[0]
    raise ValueError(
        "A memory on the host was not asked: give observe the neighbour_distances of the episode."
    )


def insert(config: ElementConfig, memory: DeviceMemory, entering: Entering) -> DeviceMemory:
    """The memory with the states of an episode; one on the host is the caller's."""
    new = entering.states, entering.values, entering.number
    if isinstance(memory, GraphMemoryState):
        return graph.insert(memory, *new, config.graph)
    if isinstance(memory, ExactMemoryState):
        return exact.insert(memory, *new)
    if isinstance(memory, SpacedMemoryState):
        return spaced.insert(memory, *new, entering.visitors)
    return memory


def keeps_visitors(config: ElementConfig) -> bool:
    """Whether transitions are noted with the number of their visitor."""
    return config.memory == "spaced" or config.own_episode == "out"


def visitors_of(config: ElementConfig, episode: Episode) -> Int[Array, " T"]:
    """Whose the states of an episode are: the episode's, or each its own."""
    steps = jnp.broadcast_to(episode.step[0], episode.step.shape)
    return (steps if config.own_episode == "out" else episode.step) % VISITORS


def notes_change(before: DeviceMemory, after: DeviceMemory) -> Bool[Array, ""]:
    """Whether what is noted of stored states is another after an episode that fed the memory."""
    if not isinstance(before, SpacedMemoryState) or not isinstance(after, SpacedMemoryState):
        return jnp.asarray(True)
    return (
        (after.spacing != before.spacing)
        | (after.size != before.size)
        | jnp.any(after.visitors != before.visitors)
    )


def refreshed(
    config: ElementConfig,
    before: DeviceMemory,
    after: DeviceMemory,
    entering: Entering,
    slots: Int[Array, " T"],
    notes: Mapping[str, Array],
    states: Float[Array, "N D"],
    num_rows: Int[Array, ""],
) -> Float[Array, "N K"]:
    """The noted distances of the first `num_rows` stored states, now that an episode has fed the
    memory; `slots` are the rows of the episode's own states, N for padding."""
    noted = notes["neighbour_distances"]
    mine = notes["visitor"].astype(jnp.int32) if keeps_visitors(config) else None
    if isinstance(before, SpacedMemoryState) and isinstance(after, SpacedMemoryState):
        assert mine is not None
        return _refreshed_places(before, after, noted, states, mine, num_rows, slots.shape[0])
    if mine is not None:
        own, visitors = None, (mine, entering.visitors)
    else:
        nobody = jnp.full(states.shape[0], NO_NODE, jnp.int32)
        own, visitors = nobody.at[slots].set(entering.rank, mode="drop"), None
    return merge_distances(noted, states, entering.states, entering.number, own, num_rows, visitors)


def _refreshed_places(
    before: SpacedMemoryState,
    after: SpacedMemoryState,
    noted: Float[Array, "N K"],
    states: Float[Array, "N D"],
    mine: Int[Array, " N"],
    num_rows: Int[Array, ""],
    most: int,
) -> Float[Array, "N K"]:
    """Afresh where the memory was thinned. Else merged with the states that were kept, and for the
    only visitor of a place that another came to with that place; either at most `most`."""

    def afresh(noted: Float[Array, "N K"]) -> Float[Array, "N K"]:
        unknown, everybody = jnp.full_like(noted, jnp.inf), (mine, after.visitors)
        return merge_distances(
            unknown, states, after.states, after.size, num_rows=num_rows, visitors=everybody
        )

    def merged(noted: Float[Array, "N K"]) -> Float[Array, "N K"]:
        row = jnp.arange(before.states.shape[0], dtype=jnp.int32)
        # rows beyond the last are not counted
        kept = jnp.minimum(before.size + jnp.arange(most, dtype=jnp.int32), row[-1])
        noted = merge_distances(
            noted,
            states,
            after.states[kept],
            after.size - before.size,
            num_rows=num_rows,
            visitors=(mine, after.visitors[kept]),
        )
        shared = (row < before.size) & (before.visitors != MANY) & (after.visitors == MANY)
        places = jnp.nonzero(shared, size=most, fill_value=0)[0]
        return merge_distances(
            noted,
            states,
            after.states[places],
            jnp.sum(shared, dtype=jnp.int32),
            num_rows=num_rows,
            visitors=(mine, before.visitors[places]),
            of_own=True,
        )

    return jax.lax.cond(after.spacing != before.spacing, afresh, merged, noted)
