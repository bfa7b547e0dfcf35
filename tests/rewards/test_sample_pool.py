"""The pool against a list of transitions kept in plain Python, and the cases in which a copy must
not be a neighbour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.replay.ring import Transitions
from element_rl.rewards.sample_pool import (
    Pool,
    empty_pool,
    kth_distance,
    mean_distance,
    neighbour_distances,
    transition_identity,
    with_batch,
)

DISTANCES = jax.jit(neighbour_distances, static_argnames="k")


def batch_of(states: np.ndarray, actions: np.ndarray | None = None) -> Transitions:
    states = np.asarray(states, np.float32)
    size = len(states)
    actions = np.zeros((size, 1)) if actions is None else actions
    zeros = jnp.zeros((size, 1))
    action = jnp.asarray(actions, jnp.float32)
    return Transitions(
        zeros, action, zeros, jnp.zeros(size), jnp.zeros(size, bool), jnp.asarray(states), {}
    )


@jax.jit
def put(pool: Pool, batch: Transitions) -> Pool:
    return with_batch(pool, batch.state, transition_identity(batch))


def asked(pool: Pool, batch: Transitions, k: int) -> np.ndarray:
    return np.asarray(DISTANCES(batch.state, transition_identity(batch), pool, k))


def line(*values: float) -> Transitions:
    """States on a line, one dimension each."""
    return batch_of(np.array(values)[:, None])


def held(pool: Pool) -> list[float]:
    return np.asarray(pool.vectors[:, 0])[np.asarray(pool.present)].tolist()


def test_the_newest_draws_stay() -> None:
    pool = empty_pool(5, 1)
    assert held(pool) == []
    pool = put(put(pool, line(1, 2)), line(3, 4))
    assert held(pool) == [1, 2, 3, 4]
    pool = put(pool, line(5, 6))
    assert held(pool) == [2, 3, 4, 5, 6]
    pool = put(pool, line(*range(10, 17)))  # a batch larger than the pool
    assert held(pool) == [12, 13, 14, 15, 16]


def test_a_transition_is_in_the_pool_once() -> None:
    pool = put(empty_pool(6, 1), line(1, 2, 2))
    assert held(pool) == [1, 2]
    pool = put(pool, line(2, 3, 1))
    assert held(pool) == [2, 3, 1], "the later draws replaced the earlier ones"
    pool = put(pool, line(4, 4, 4))
    assert held(pool) == [2, 3, 1, 4]


def test_distances_by_hand() -> None:
    pool = put(empty_pool(8, 1), line(0, 1, 3, 7))
    expected = [[1, 3, 7], [1, 2, 6], [2, 3, 4], [4, 6, 7]]
    np.testing.assert_allclose(asked(pool, line(0, 1, 3, 7), 3), expected, rtol=1e-6)
    # a batch that is not in the pool has no place of its own to leave out
    np.testing.assert_allclose(asked(pool, line(2, 8), 2), [[1, 1], [1, 5]], rtol=1e-6)


def test_fewer_neighbours_than_wanted() -> None:
    pool = put(empty_pool(8, 1), line(0, 4))
    distances = asked(pool, line(0, 5), 3)
    np.testing.assert_array_equal(distances, [[4, np.inf, np.inf], [1, 5, np.inf]])
    np.testing.assert_allclose(kth_distance(jnp.asarray(distances)), [4, 5])
    np.testing.assert_allclose(mean_distance(jnp.asarray(distances)), [4, 3])
    nothing = asked(empty_pool(8, 1), line(0, 5), 3)
    assert np.isinf(nothing).all()
    assert kth_distance(jnp.asarray(nothing)).tolist() == [0, 0]
    assert mean_distance(jnp.asarray(nothing)).tolist() == [0, 0]


@pytest.mark.parametrize("width", [1, 40])
def test_a_second_draw_is_no_neighbour_but_another_way_to_the_same_state_is(width: int) -> None:
    here = np.ones((2, width))
    actions = np.array([[0.1], [0.2]])
    pool = put(put(empty_pool(8, width), batch_of(here, actions)), batch_of(5 + here[:1]))
    once = batch_of(here[:1], actions[:1])
    distances = asked(pool, once, 2)
    far = 5 * np.sqrt(width)
    np.testing.assert_allclose(
        distances, [[0, far]], rtol=1e-6, err_msg="the other action that led here is at 0"
    )
    np.testing.assert_allclose(
        asked(put(put(pool, once), once), once, 2), distances, err_msg="drawn twice more"
    )


@pytest.mark.parametrize("width", [11, 40])
def test_against_a_list_in_plain_python(width: int) -> None:
    """Draws with replacement from 30 transitions, some of them with equal states, into a pool of 40
    draws."""
    rng = np.random.default_rng(width)
    replay_states = rng.normal(size=(30, width)).astype(np.float32) + 3.0
    replay_states[20:] = replay_states[:10]
    replay_actions = rng.uniform(-1, 1, (30, 1)).astype(np.float32)
    pool, draws = empty_pool(40, width), []
    for _ in range(7):
        drawn = rng.integers(0, 30, 12)
        batch = batch_of(replay_states[drawn], replay_actions[drawn])
        pool = put(pool, batch)
        draws = [*draws, *drawn.tolist()][-40:]
        expected = []
        for index in drawn:
            others = [
                np.linalg.norm(replay_states[index].astype(float) - replay_states[j])
                for j in set(draws) - {index}
            ]
            expected.append(([*sorted(others), np.inf, np.inf, np.inf, np.inf])[:4])
        np.testing.assert_allclose(asked(pool, batch, 4), expected, rtol=1e-5, atol=1e-6)


def test_a_replay_seen_wholly_is_searched_exactly() -> None:
    """A young replay, drawn from many times over: the neighbours are those in the replay, each
    counted once."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(50, 3)).astype(np.float32)
    pool = empty_pool(1000, 3)
    for _ in range(30):
        pool = put(pool, batch_of(states[rng.integers(0, 50, 32)]))
    assert int(pool.present.sum()) == 50
    exact = np.sort(np.linalg.norm(states[:, None] - states[None], axis=-1), axis=1)[:, 1:4]
    np.testing.assert_allclose(asked(pool, batch_of(states), 3), exact, rtol=1e-5)


def test_wide_vectors_far_from_the_origin_keep_their_digits() -> None:
    rng = np.random.default_rng(1)
    points = 1000 + rng.uniform(size=(64, 50)).astype(np.float32)
    points[1::2] = points[::2]
    points[1::2, 0] += 2.0**-10
    pool = put(empty_pool(128, 50), batch_of(points))
    np.testing.assert_array_equal(asked(pool, batch_of(points), 1), np.full((64, 1), 2.0**-10))


def test_identities_differ_when_anything_differs() -> None:
    rng = np.random.default_rng(2)
    row = [rng.normal(size=(1, width)).astype(np.float32) for width in (3, 2, 3, 4)]

    def identity(observation, action, next_observation, state) -> int:
        nothing = jnp.zeros(1)
        arrays = [jnp.asarray(a) for a in (observation, action, next_observation, state)]
        return int(
            transition_identity(Transitions(*arrays[:3], nothing, nothing > 0, arrays[3], {}))[0]
        )

    seen = {identity(*row)}
    assert identity(*[part.copy() for part in row]) in seen
    for part in range(4):
        for column in range(row[part].shape[1]):
            changed = [p.copy() for p in row]
            changed[part][0, column] = np.nextafter(changed[part][0, column], np.float32(9))
            seen.add(identity(*changed))
    assert len(seen) == 13
    assert identity(row[2], row[1], row[0], row[3]) not in seen, (
        "there and back are two transitions"
    )


def test_identities_of_a_grid_are_distinct() -> None:
    """Small whole numbers have few bits set, and those at the same places: a weak hash would
    confuse them."""
    x, y = np.meshgrid(np.arange(64.0), np.arange(64.0))
    identities = np.asarray(transition_identity(batch_of(np.stack([x.ravel(), y.ravel()], axis=1))))
    assert len(np.unique(identities)) == 4096


@pytest.mark.parametrize("width", [4, 40])
def test_population_equals_agents_alone(width: int) -> None:
    rng = np.random.default_rng(3)
    states = rng.normal(size=(3, 5, 8, width)).astype(np.float32)  # agents, updates, batch

    def run(states: jax.Array) -> jax.Array:
        def step(pool: Pool, states: jax.Array) -> tuple[Pool, jax.Array]:
            zeros = jnp.zeros((8, 1))
            batch = Transitions(zeros, zeros, zeros, zeros[:, 0], zeros[:, 0] > 0, states, {})
            pool = put(pool, batch)
            return pool, neighbour_distances(batch.state, transition_identity(batch), pool, 3)

        return jax.lax.scan(step, empty_pool(20, width), states)[1]

    together = jax.jit(jax.vmap(run))(jnp.asarray(states))
    for agent in range(3):
        np.testing.assert_allclose(
            together[agent], jax.jit(run)(jnp.asarray(states[agent])), rtol=1e-5
        )
