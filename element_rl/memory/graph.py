"""The paper's kNN graph: Algorithm 1 (search) and Algorithm 2 (online update), literally, in JAX.

A directed graph whose node i keeps edges to k nodes near it. A search walks greedily from R2 random
nodes for R1 steps, always to the neighbour closest to the query, and answers with the k best nodes
at which the walks ended. A new node is linked to what the search found, and the nodes within
`depth` edges of it take it as a neighbour where it is nearer than their longest edge.

The arrays are preallocated; a missing edge is `NO_NODE` at distance inf, hence the longest edge and
the first replaced. Searches are batched over queries and restarts; insertions are sequential, in a
scan, as each one changes the graph.

Departures from the paper:
1. Algorithm 1 keeps only the end node of each walk, which may leave fewer than k distinct nodes
   (with R2 = 5 and k = 3, often): the rest is filled with the closest nodes visited on the way.
2. A node that meets the new one twice in Algorithm 2 links it once.

What to expect: on trajectory data such a graph is a bundle of disconnected threads, and walks
seldom find the nearest states (docs/benchmarks.md has recall and bias). It is here for
reproduction; `hnsw` and `exact` find the neighbours.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from element_rl.memory.exact import NO_NODE


@dataclass(frozen=True)
class GraphConfig:
    """Parameters of the two algorithms; the defaults are the paper's for Ant and Humanoid."""

    num_edges: int = 3  # k, edges kept per node
    search_steps: int = 20  # R1, greedy steps per walk
    restarts: int = 10  # R2, random walks per query (Hopper 20, Walker2d 5)
    update_depth: int = 2  # how many edges away an insertion repairs the graph
    seed: int = 0  # of the walks' starting nodes

    def __post_init__(self) -> None:
        for name in ("num_edges", "search_steps", "restarts", "update_depth"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} of the graph memory must be at least 1, got {getattr(self, name)}."
                )


class GraphMemoryState(NamedTuple):
    """Nodes in insertion order; the id of a node is its row."""

    states: Float[Array, "N D"]
    edges: Int[Array, "N K"]
    edge_distances: Float[Array, "N K"]
    values: Float[Array, " N"]
    size: Int[Array, ""]


def create(capacity: int, dim: int, config: GraphConfig) -> GraphMemoryState:
    """An empty graph with room for `capacity` nodes."""
    edges = (max(capacity, 1), config.num_edges)
    return GraphMemoryState(
        jnp.zeros((edges[0], dim)),
        jnp.full(edges, NO_NODE, jnp.int32),
        jnp.full(edges, jnp.inf),
        jnp.zeros(edges[0]),
        jnp.zeros((), jnp.int32),
    )


def query(
    graph: GraphMemoryState,
    states: Float[Array, "Q D"],
    k: int,
    config: GraphConfig,
    own: Int[Array, " Q"] | None = None,
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    """Distances, ascending, and ids of the (approximately) k nearest nodes; `own` names a node to
    leave out per query.

    The starting nodes depend on the configured seed, the size of the graph and the row of the query
    only, so asking again gives the same answer.
    """
    own = jnp.full(states.shape[0], NO_NODE, jnp.int32) if own is None else own
    keys = jax.random.split(
        jax.random.fold_in(jax.random.key(config.seed), graph.size), states.shape[0]
    )

    def search_one(state: Array, own: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
        return search(
            graph,
            state,
            k,
            random_starts(key, graph.size, config.restarts),
            config.search_steps,
            own,
        )

    return jax.vmap(search_one)(states, own, keys)


def insert(
    graph: GraphMemoryState,
    states: Float[Array, "M D"],
    values: Float[Array, " M"],
    count: Int[Array, ""],
    config: GraphConfig,
) -> GraphMemoryState:
    """Add the first `count` of the given states one after another. There must be room; later rows
    are padding.

    All states are stored first (no edge leads to a state that is not linked yet), so that the loop
    changes edges only and the compiler keeps one copy of the states.
    """

    def link_next(
        graph: GraphMemoryState, row: tuple[Array, Array]
    ) -> tuple[GraphMemoryState, None]:
        index, state = row
        key = jax.random.fold_in(jax.random.key(config.seed), graph.size)
        starts = random_starts(key, graph.size, config.restarts)
        distances, ids = search(graph, state, config.num_edges, starts, config.search_steps)
        return link(graph, state, distances, ids, config.update_depth, present=index < count), None

    row = jnp.arange(states.shape[0], dtype=jnp.int32)
    # padding lands outside and is dropped
    target = jnp.where(row < count, graph.size + row, graph.states.shape[0])
    graph = graph._replace(
        states=graph.states.at[target].set(states, mode="drop"),
        values=graph.values.at[target].set(values, mode="drop"),
    )
    return jax.lax.scan(link_next, graph, (row, states))[0]


def random_starts(key: Key[Array, ""], size: Int[Array, ""], restarts: int) -> Int[Array, " R"]:
    """R2 random nodes (Algorithm 1, line 2); `NO_NODE` in an empty graph."""
    starts = jax.random.randint(key, (restarts,), 0, jnp.maximum(size, 1))
    return jnp.where(size > 0, starts, NO_NODE)


def search(
    graph: GraphMemoryState,
    state: Float[Array, " D"],
    k: int,
    starts: Int[Array, " R"],
    steps: int,
    own: Int[Array, ""] | None = None,
) -> tuple[Float[Array, " K"], Int[Array, " K"]]:
    """Algorithm 1: greedy walks from `starts`; the k closest distinct end nodes, filled up from the
    nodes visited."""

    def step(node: Int[Array, ""]) -> Int[Array, ""]:
        neighbours = graph.edges[node]  # Y = ND(X0)
        nearest = neighbours[jnp.argmin(_distances(graph, neighbours, state))]
        # a node without edges keeps the walk where it is
        return jnp.where(nearest == NO_NODE, node, nearest)

    def walk(nodes: Int[Array, " R"], _: None) -> tuple[Int[Array, " R"], Int[Array, " R"]]:
        return jax.vmap(step)(nodes), nodes

    ends, visited = jax.lax.scan(walk, starts, None, length=steps)
    candidates = jnp.concatenate([ends, visited.reshape(-1)])
    distances = _distances(graph, candidates, state)
    if own is not None:
        distances = jnp.where(candidates == own, jnp.inf, distances)
    is_end = jnp.arange(candidates.shape[0]) < ends.shape[0]
    return _closest_distinct(candidates, distances, is_end, k)


def link(
    graph: GraphMemoryState,
    state: Float[Array, " D"],
    distances: Float[Array, " K"],
    ids: Int[Array, " K"],
    depth: int,
    present: bool | Bool[Array, ""] = True,
) -> GraphMemoryState:
    """Give the next node its neighbours, then Algorithm 2: nodes near it take it in place of their
    longest edge.

    The nodes of one depth are treated at once: each changes its own edges only, so the order of
    Algorithm 2's `pop` makes no difference. With `present` False nothing happens (a padded row; a
    branch here would copy the graph).
    """
    node = graph.size
    frontier = jnp.where(present, ids, NO_NODE)  # A
    for _ in range(depth):
        following = graph.edges[frontier].reshape(-1)  # Y, appended to A, read before X changes
        following = jnp.where(
            jnp.repeat(frontier == NO_NODE, graph.edges.shape[1]), NO_NODE, following
        )
        graph = _offer(graph, frontier, node, _distances(graph, frontier, state))
        # the new node itself is no candidate
        frontier = jnp.where(following == node, NO_NODE, following)
    row = jnp.where(present, node, graph.states.shape[0])  # out of range is dropped
    return graph._replace(
        edges=graph.edges.at[row].set(ids, mode="drop"),
        edge_distances=graph.edge_distances.at[row].set(distances, mode="drop"),
        size=node + jnp.asarray(present, jnp.int32),
    )


def _offer(
    graph: GraphMemoryState,
    nodes: Int[Array, " F"],
    new_node: Int[Array, ""],
    distances: Float[Array, " F"],
) -> GraphMemoryState:
    """Replace the longest edge of each node by one to the new node, where that is shorter and not
    there yet."""
    longest = jnp.argmax(graph.edge_distances[nodes], axis=1)
    known = jnp.any(graph.edges[nodes] == new_node, axis=1)
    better = (distances < graph.edge_distances[nodes, longest]) & ~known & (nodes != NO_NODE)
    rows = jnp.where(better, nodes, graph.states.shape[0])  # the others are dropped
    return graph._replace(
        edges=graph.edges.at[rows, longest].set(new_node, mode="drop"),
        edge_distances=graph.edge_distances.at[rows, longest].set(distances, mode="drop"),
    )


def _distances(
    graph: GraphMemoryState, nodes: Int[Array, " F"], state: Float[Array, " D"]
) -> Float[Array, " F"]:
    difference = graph.states[nodes] - state[None, :]
    return jnp.where(nodes == NO_NODE, jnp.inf, jnp.sqrt(jnp.sum(difference * difference, axis=1)))


def _closest_distinct(
    nodes: Int[Array, " C"], distances: Float[Array, " C"], preferred: Array, k: int
) -> tuple[Float[Array, " K"], Int[Array, " K"]]:
    """k distinct nodes, the preferred before the others, each group by distance; then all sorted by
    distance."""
    found_ids, found_distances = [], []
    for _ in range(k):
        from_preferred = jnp.any(preferred & jnp.isfinite(distances))
        eligible = jnp.where(preferred | ~from_preferred, distances, jnp.inf)
        best = jnp.argmin(eligible)
        found_distances.append(eligible[best])
        found_ids.append(jnp.where(jnp.isfinite(eligible[best]), nodes[best], NO_NODE))
        distances = jnp.where(nodes == nodes[best], jnp.inf, distances)
    order = jnp.argsort(jnp.stack(found_distances))
    return jnp.stack(found_distances)[order], jnp.stack(found_ids)[order]
