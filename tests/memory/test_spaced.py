"""The spaced memory against a loop that keeps one state after the other, and its bounds."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from element_rl.memory import load_memory, make_memory, spaced
from element_rl.memory.exact import merge_distances
from element_rl.memory.spaced import COVER, GROWTH, MANY, SpacedMemoryState

insert = jax.jit(spaced.insert)
merge = jax.jit(merge_distances, static_argnames="of_own")


class OneByOne:
    """The rule as it is said: keep a state that is farther than δ from all kept ones; where there
    is no room, let δ grow and offer the kept ones again."""

    def __init__(self, capacity: int, spacing: float) -> None:
        self.capacity, self.spacing = capacity, spacing
        self.kept: list[tuple[np.ndarray, int]] = []  # state, id

    def offer(self, state: np.ndarray, number: int) -> None:
        while not self._settled(state, number):
            self.spacing *= GROWTH
            before, self.kept = self.kept, []
            for kept in before:
                assert self._settled(*kept)

    def _settled(self, state: np.ndarray, number: int) -> bool:
        if any(np.linalg.norm(state - other) <= self.spacing for other, _ in self.kept):
            return True
        if len(self.kept) == self.capacity:
            return False
        self.kept.append((state, number))
        return True


def padded(states: np.ndarray, rows: int) -> jnp.ndarray:
    return jnp.asarray(np.pad(states, ((0, rows - len(states)), (0, 0)), constant_values=1e6))


def in_batches(
    memory: SpacedMemoryState, states: np.ndarray, batches: list[int], rows: int = 32
) -> SpacedMemoryState:
    """Offered batch by batch, each by a visitor of its own."""
    starts = np.cumsum([0, *batches[:-1]])
    for visitor, (start, size) in enumerate(zip(starts, batches, strict=True)):
        visitors = jnp.full(rows, visitor, jnp.int32)
        batch = padded(states[start : start + size], rows)
        memory = insert(memory, batch, jnp.zeros(rows), jnp.int32(size), visitors)
    return memory


def walk(count: int, dim: int = 2, seed: int = 0) -> np.ndarray:
    steps = np.random.default_rng(seed).normal(size=(count, dim))
    return np.cumsum(steps, axis=0).astype(np.float32)


def kept_states(memory: SpacedMemoryState) -> np.ndarray:
    return np.asarray(memory.states[: int(memory.size)])


def test_by_hand() -> None:
    """On a line with δ = 1: 0 is kept, 1 is not farther than 1, 1.5 is kept, 2.25 is near 1.5, 3 is
    kept; the memory of 3 is full. 10 finds no room: δ = √2 leaves 0, 1.5 and 3, δ = 2 leaves 0 and
    3, and 10 is kept."""
    memory = make_memory("spaced", 1, capacity=3, spacing=1.0)
    ids = memory.insert(np.array([[0.0], [1.0], [1.5], [2.25], [3.0]]), values=np.arange(5))
    assert ids.tolist() == [0, 1, 2, 3, 4]
    assert memory.states().ravel().tolist() == [0.0, 1.5, 3.0]
    assert memory.values().tolist() == [0.0, 2.0, 4.0]
    assert memory.query(np.array([[1.4]]), k=2)[1].tolist() == [[2, 0]]
    assert memory.insert(np.array([[10.0]])).tolist() == [5]
    assert memory.states().ravel().tolist() == [0.0, 3.0, 10.0]
    assert memory.spacing == pytest.approx(2.0)
    distances, found = memory.query(np.array([[3.0], [3.0]]), k=2, own=[4, 99])
    assert found.tolist() == [[0, 5], [4, 0]]
    np.testing.assert_allclose(distances, [[3.0, 7.0], [0.0, 3.0]])


@settings(max_examples=30)
@example(seed=20_000, batches=[18], capacity=7, rounded=True)  # near to what is let go
@given(
    seed=st.integers(0, 2**31),
    batches=st.lists(st.integers(0, 32), min_size=1, max_size=6),
    capacity=st.sampled_from([2, 7, 25]),
    rounded=st.booleans(),
)
def test_batches_are_as_states_one_by_one(
    seed: int, batches: list[int], capacity: int, rounded: bool
) -> None:
    states = walk(sum(batches), seed=seed)
    states = np.round(states) if rounded else states
    by_hand = OneByOne(capacity, 0.77)  # no distance of rounded states equals a δ
    memory = in_batches(spaced.create(capacity, 2, 0.77), states, batches)
    for number, state in enumerate(states):
        by_hand.offer(state, number)
    assert memory.ids[: int(memory.size)].tolist() == [number for _, number in by_hand.kept]
    assert float(memory.spacing) == pytest.approx(by_hand.spacing, rel=1e-5)
    assert int(memory.offered) == sum(batches)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_bounds_hold_however_long_it_runs(dim: int) -> None:
    """No two kept states within δ, no more than fit, and every state ever offered within 3.42 δ of
    a kept one; the nearest distance is at least that to all states, and at most 3.42 δ more."""
    states = walk(4_000, dim)
    memory = in_batches(spaced.create(60, dim), states, [32] * 125)
    kept, spacing = kept_states(memory), float(memory.spacing)
    assert 2 <= len(kept) <= 60
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(kept, 2)) > spacing
    covered = np.linalg.norm(states[:, None] - kept[None], axis=-1).min(axis=1)
    assert covered.max() <= COVER * spacing
    queries = walk(200, dim, seed=1)
    to_all = np.linalg.norm(queries[:, None] - states[None], axis=-1).min(axis=1)
    nearest = np.asarray(spaced.query(memory, jnp.asarray(queries), 1)[0])[:, 0]
    assert (nearest >= to_all - 1e-3).all()
    assert (nearest <= to_all + COVER * spacing).all()


def test_what_others_have_seen_is_known_within_the_bound() -> None:
    """Whose own states are left out has the distance to all states of others, within 3.42 δ."""
    states, batches = walk(960, seed=3), [32] * 30
    memory = in_batches(spaced.create(80, 2), states, batches)
    size, bound = int(memory.size), COVER * float(memory.spacing)
    visitors, of_row = np.asarray(memory.visitors[:size]), np.repeat(np.arange(30), batches)
    assert (visitors == MANY).any()
    assert (visitors != MANY).any()
    assert set(visitors) - {MANY} <= set(of_row)
    distances = np.linalg.norm(states[:, None] - kept_states(memory)[None], axis=-1)
    for visitor in range(30):
        own = of_row == visitor
        counts = (visitors == visitor) | (visitors == MANY)
        assert distances[own][:, counts].min(axis=1).max() <= bound
        nearest = distances[own][:, visitors != visitor].min(axis=1)
        others = states[~own]
        true = np.linalg.norm(states[own][:, None] - others[None], axis=-1).min(axis=1)
        assert np.abs(nearest - true).max() <= bound


def test_first_spacing_is_the_median_step_of_what_moves() -> None:
    """Steps 0, 1, 0, 3, 5: the median of those that move is 3."""
    line = np.cumsum([0.0, 0, 1, 0, 3, 5])[:, None].astype(np.float32)
    memory = make_memory("spaced", 1)
    memory.insert(np.zeros((4, 1)))
    assert (memory.spacing, len(memory)) == (0.0, 1), "nothing has moved yet"
    memory.insert(line)
    assert memory.spacing == 3.0
    assert memory.states().ravel().tolist() == [0.0, 4.0, 9.0]


def test_states_that_come_one_by_one_get_a_spacing_when_there_is_no_room() -> None:
    """0, 1, 3, 6 are all kept, at spacing 0. 10 has no room: the median of the steps 1, 2, 3 is 2;
    with that 0, 3, 6 stay."""
    memory = make_memory("spaced", 1, capacity=4)
    for place in (0.0, 1.0, 3.0, 6.0, 10.0):
        memory.insert(np.array([[place]]))
    assert memory.spacing == 2.0
    assert memory.states().ravel().tolist() == [0.0, 3.0, 6.0, 10.0]


def test_a_place_belongs_to_who_found_it_until_another_comes() -> None:
    memory = spaced.create(8, 1, 1.0)
    memory = in_batches(memory, np.array([[0.0], [0.5], [5.0]]), [3], rows=4)
    assert memory.visitors[:2].tolist() == [0, 0], "0.5 is the same visitor's"
    one, seven = jnp.ones(1, jnp.int32), jnp.full(1, 7, jnp.int32)
    memory = insert(memory, jnp.array([[5.9]]), jnp.zeros(1), jnp.int32(1), one)
    assert memory.visitors[:2].tolist() == [0, MANY]
    memory = insert(memory, jnp.array([[6.2]]), jnp.zeros(1), jnp.int32(1), seven)
    memory = insert(memory, jnp.array([[-1.3]]), jnp.zeros(1), jnp.int32(1), seven)
    assert memory.visitors[:4].tolist() == [0, MANY, 7, 7]
    thinner = spaced.thinned(memory)
    assert kept_states(thinner).ravel().tolist() == [0.0, 5.0]
    assert thinner.visitors[:2].tolist() == [MANY, MANY], "-1.3 was another's, and is gone"


def test_states_that_are_not_finite_are_never_kept() -> None:
    memory = spaced.create(2, 1, 1.0)
    states = jnp.array([[jnp.nan], [0.0], [jnp.inf], [5.0], [50.0]])
    memory = insert(memory, states, jnp.zeros(5), jnp.int32(5))
    assert np.isfinite(kept_states(memory)).all()
    assert int(memory.offered) == 5


def test_a_population_is_its_agents_alone() -> None:
    batches = np.stack([walk(32, seed=seed) for seed in range(3)])
    empty = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), spaced.create(6, 2))
    together = jax.vmap(spaced.insert)(
        empty, jnp.asarray(batches), jnp.zeros((3, 32)), jnp.full(3, 32, jnp.int32)
    )
    count = jnp.int32(32)
    for agent in range(3):
        alone = insert(spaced.create(6, 2), jnp.asarray(batches[agent]), jnp.zeros(32), count)
        for ours, theirs in zip(together, alone, strict=True):
            np.testing.assert_allclose(ours[agent], theirs, rtol=1e-5)


def test_stored_it_goes_on_as_if_nothing_had_been(tmp_path) -> None:
    memory = make_memory("spaced", 2, capacity=20)
    memory.insert(walk(500))
    memory.save(tmp_path)
    loaded = load_memory(tmp_path)
    for one in (memory, loaded):
        one.insert(walk(500, seed=1))
    assert loaded.spacing == memory.spacing
    np.testing.assert_array_equal(loaded.states(), memory.states())
    queries = walk(10, seed=2)
    for ours, theirs in zip(memory.query(queries, 3), loaded.query(queries, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_new_states_count_for_others_or_for_their_own() -> None:
    """Rows of visitors 0 and 1 at 0; new states at 1 (of visitor 0) and at 2 (of visitor 1)."""
    start, rows = jnp.full((2, 2), jnp.inf), jnp.zeros((2, 1))
    new = jnp.array([[1.0], [2.0]])
    visitors = (jnp.array([0, 1], jnp.int32), jnp.array([0, 1], jnp.int32))
    others = merge(start, rows, new, visitors=visitors)
    np.testing.assert_array_equal(others, [[2.0, np.inf], [1.0, np.inf]])
    own = merge(start, rows, new, visitors=visitors, of_own=True)
    np.testing.assert_array_equal(own, [[1.0, np.inf], [2.0, np.inf]])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="room for at least 2 states, got 1"):
        make_memory("spaced", 3, capacity=1)
    for spacing in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match=r"must be positive and finite, got"):
            make_memory("spaced", 3, spacing=spacing)
