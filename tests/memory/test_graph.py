"""Algorithms 1 and 2 step by step on a small graph drawn by hand.

Nodes on a line at x = 0, 1, 2, 3, 10, 11 and edges (k = 2), two islands:

    0 → 1 2     1 → 0 2     2 → 1 3     3 → 2 1          4 → 5 ·     5 → 4 ·
"""

import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.memory import graph
from element_rl.memory.graph import GraphConfig, GraphMemoryState

POSITIONS = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0]
EDGES = [[1, 2], [0, 2], [1, 3], [2, 1], [5, -1], [4, -1]]


@pytest.fixture
def hand_drawn() -> GraphMemoryState:
    capacity = 8
    states = np.zeros((capacity, 1), np.float32)
    edges = np.full((capacity, 2), -1, np.int32)
    distances = np.full((capacity, 2), np.inf, np.float32)
    for node, (x, neighbours) in enumerate(zip(POSITIONS, EDGES, strict=True)):
        states[node] = x
        edges[node] = neighbours
        distances[node] = [abs(POSITIONS[n] - x) if n >= 0 else np.inf for n in neighbours]
    return GraphMemoryState(
        jnp.asarray(states),
        jnp.asarray(edges),
        jnp.asarray(distances),
        jnp.zeros(capacity),
        jnp.asarray(6, jnp.int32),
    )


def search(
    graph_state, x: float, k: int, starts: list[int], steps: int
) -> tuple[list[float], list[int]]:
    distances, ids = graph.search(
        graph_state, jnp.array([x]), k, jnp.asarray(starts, jnp.int32), steps
    )
    return distances.tolist(), ids.tolist()


def test_one_step_goes_to_the_neighbour_closest_to_the_query(hand_drawn) -> None:
    # From 0, the neighbours of 0 are 1 and 2; 2 is closer to 3.2.
    assert search(hand_drawn, 3.2, 1, [0], steps=1)[1] == [2]


def test_walks_always_move_even_away(hand_drawn) -> None:
    """As printed: X0' is the best of Y = ND(X0), and X0 is not in Y. The walk 0 → 2 → 3 → 2 ends on
    2, not on 3."""
    assert search(hand_drawn, 3.2, 1, [0], steps=2)[1] == [3]
    assert search(hand_drawn, 3.2, 1, [0], steps=3)[1] == [2]


def test_only_end_nodes_count_while_there_are_k(hand_drawn) -> None:
    # Ends: 0 → 2 → 3 and 4 → 5 → 4. Node 2, visited on the way and closer than 4, is not an end.
    distances, ids = search(hand_drawn, 3.2, 2, [0, 4], steps=2)
    assert ids == [3, 4]
    np.testing.assert_allclose(distances, [0.2, 6.8], rtol=1e-5)


def test_missing_ends_are_filled_with_the_closest_visited(hand_drawn) -> None:
    # Both walks end on 3; the closest nodes visited are 2 (from 0) and 1 (the start of the second
    # walk).
    assert search(hand_drawn, 3.2, 2, [0, 1], steps=2)[1] == [3, 2]
    assert search(hand_drawn, 3.2, 3, [0, 1], steps=2)[1] == [3, 2, 1]


def test_islands_cannot_be_left(hand_drawn) -> None:
    assert search(hand_drawn, 0.0, 2, [4, 5], steps=20)[1] == [4, 5]


def test_own_node_is_no_answer(hand_drawn) -> None:
    distances, ids = graph.search(
        hand_drawn, jnp.array([3.0]), 1, jnp.array([0]), 2, own=jnp.asarray(3)
    )
    assert (ids.tolist(), distances.tolist()) == ([2], [1.0])


def link(graph_state, x: float, ids: list[int], depth: int) -> GraphMemoryState:
    stored = graph_state._replace(states=graph_state.states.at[6].set(x))
    distances = jnp.abs(jnp.asarray([POSITIONS[i] for i in ids]) - x)
    return graph.link(stored, jnp.array([x]), distances, jnp.asarray(ids, jnp.int32), depth)


def test_depth_one_offers_the_new_node_to_its_neighbours(hand_drawn) -> None:
    """New node 6 at 2.5 with neighbours 2 and 3: both replace their longest edge (2 → 1 or 3 tie at
    1; 3 → 1 at 2)."""
    after = link(hand_drawn, 2.5, [2, 3], depth=1)
    assert int(after.size) == 7
    assert after.edges[6].tolist() == [2, 3]
    np.testing.assert_allclose(after.edge_distances[6], [0.5, 0.5])
    assert after.edges[2].tolist() == [6, 3]  # the first of two equally long edges
    assert after.edges[3].tolist() == [2, 6]
    np.testing.assert_allclose(after.edge_distances[3], [1.0, 0.5])
    for untouched in (0, 1, 4, 5):
        assert after.edges[untouched].tolist() == EDGES[untouched]


def test_depth_two_reaches_the_neighbours_of_neighbours(hand_drawn) -> None:
    """New node 6 at 1.4 with neighbour list A = [2, 3]. Depth 2 pops 1, 3, 2, 1: of these node 1
    (longest edge 1, at distance 0.4) takes the new node; 3 (longest edge 2, at 1.6) took it at
    depth 1 and does not link it twice."""
    one = link(hand_drawn, 1.4, [2, 3], depth=1)
    two = link(hand_drawn, 1.4, [2, 3], depth=2)
    assert one.edges[1].tolist() == [0, 2]
    assert two.edges[1].tolist() == [6, 2]
    assert two.edges[2].tolist() == [6, 3]
    assert two.edges[3].tolist() == [2, 6]
    assert two.edges[0].tolist() == [1, 2], "three edges away: not reached"


def test_a_farther_new_node_changes_nothing(hand_drawn) -> None:
    after = link(hand_drawn, 8.0, [2, 3], depth=2)
    assert after.edges[:4].tolist() == EDGES[:4]


def test_padding_links_nothing(hand_drawn) -> None:
    after = graph.link(
        hand_drawn,
        jnp.array([2.5]),
        jnp.array([0.5, 0.5]),
        jnp.array([2, 3]),
        2,
        present=jnp.asarray(False),
    )
    for before_leaf, after_leaf in zip(hand_drawn, after, strict=True):
        np.testing.assert_array_equal(before_leaf, after_leaf)


def test_insertion_builds_edges_to_what_the_search_found() -> None:
    """A stream of states against a plain Python transcription of both algorithms, walks and all."""
    config = GraphConfig(num_edges=2, search_steps=3, restarts=4, update_depth=2, seed=5)
    states = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    built = graph.insert(
        graph.create(64, 3, config), jnp.asarray(states), jnp.zeros(40), jnp.asarray(40), config
    )
    edges, edge_distances = transcription(states, config)
    np.testing.assert_array_equal(np.asarray(built.edges[:40]), edges)
    np.testing.assert_allclose(np.asarray(built.edge_distances[:40]), edge_distances, rtol=1e-5)


def transcription(states: np.ndarray, config: GraphConfig) -> tuple[np.ndarray, np.ndarray]:
    import jax

    edges: list[list[int]] = []
    lengths: list[list[float]] = []

    def distance(node: int, state: np.ndarray) -> float:
        return float(np.linalg.norm(states[node] - state)) if node >= 0 else np.inf

    for new, state in enumerate(states):
        key = jax.random.fold_in(jax.random.key(config.seed), new)
        starts = jax.random.randint(key, (config.restarts,), 0, max(new, 1)).tolist() if new else []
        ends, visited = [], []
        for x in starts:
            for _ in range(config.search_steps):
                visited.append(x)
                best = min(edges[x], key=lambda n: distance(n, state))
                x = best if best >= 0 else x
            ends.append(x)
        chosen = sorted(set(ends), key=lambda n: distance(n, state))[: config.num_edges]
        rest = sorted(set(visited) - set(chosen), key=lambda n: distance(n, state))
        chosen = sorted((chosen + rest)[: config.num_edges], key=lambda n: distance(n, state))
        a = list(chosen)
        for _ in range(config.update_depth):
            popped, a = a, []
            for x in popped:
                a.extend(n for n in edges[x] if n not in (-1, new))
                longest = int(np.argmax(lengths[x]))
                if distance(x, state) < lengths[x][longest] and new not in edges[x]:
                    edges[x][longest], lengths[x][longest] = new, distance(x, state)
        missing = config.num_edges - len(chosen)
        edges.append(chosen + [-1] * missing)
        lengths.append([distance(n, state) for n in chosen] + [np.inf] * missing)
    return np.array(edges), np.array(lengths)
