"""Every memory keeps the contract; the approximate ones are measured against the exact one, their
twin."""

import faiss
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.memory import KINDS, Memory, exact, load_memory, make_memory
from element_rl.storage.files import FileError

DIM = 6


def walk(count: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=(count, DIM)) * 0.3, axis=0).astype(
        np.float32
    )


def brute_force(points: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    distances = np.linalg.norm(
        queries.astype(np.float64)[:, None] - points.astype(np.float64)[None], axis=-1
    )
    ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, ids, axis=1), ids


@pytest.fixture(params=sorted(KINDS))
def kind(request) -> str:
    return request.param


@pytest.fixture(params=sorted(set(KINDS) - {"spaced"}))
def keeping(request) -> str:
    """A kind of memory that keeps every state; `test_spaced.py` has what the other one does."""
    return request.param


def empty_memory(kind: str) -> Memory:
    """A memory that keeps all states of a walk, because none of them are equal."""
    return make_memory(kind, DIM, **({"spacing": 1e-6} if kind == "spaced" else {}))


def test_contract(kind: str) -> None:
    memory = empty_memory(kind)
    states = walk(300)
    assert len(memory) == 0
    ids = memory.insert(states[:100], values=np.arange(100))
    assert ids.tolist() == list(range(100))
    assert memory.insert(states[100:]).tolist() == list(range(100, 300))
    assert len(memory) == 300
    np.testing.assert_array_equal(memory.states(), states)
    assert memory.values()[:100].tolist() == list(range(100))
    assert (memory.values()[100:] == 0).all()
    assert memory.memory_bytes() > states.nbytes
    distances, ids = memory.query(walk(20, seed=1), k=4)
    assert distances.shape == ids.shape == (20, 4)
    assert distances.dtype == np.float32
    assert (distances >= 0).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    for row in ids:
        assert len(set(row.tolist())) == 4, "neighbours are distinct"
    # the distances are those of the ids
    true = np.linalg.norm(states[ids] - walk(20, seed=1)[:, None], axis=-1)
    np.testing.assert_allclose(distances, true, rtol=1e-4, atol=1e-5)


def test_empty_and_small_memories(keeping: str) -> None:
    memory = make_memory(keeping, DIM)
    distances, ids = memory.query(np.zeros((2, DIM)), k=3)
    assert np.isinf(distances).all()
    assert (ids == -1).all()
    memory.insert(np.ones((2, DIM)))
    distances, ids = memory.query(np.zeros((1, DIM)), k=3)
    assert sorted(ids[0].tolist()) == [-1, 0, 1]
    np.testing.assert_allclose(distances[0], [np.sqrt(DIM), np.sqrt(DIM), np.inf], rtol=1e-6)
    assert memory.query(np.zeros((0, DIM)), k=3)[0].shape == (0, 3)
    assert memory.insert(np.zeros((0, DIM))).shape == (0,)


def test_own_node_is_left_out_but_duplicates_are_not(keeping: str) -> None:
    memory = make_memory(keeping, DIM)
    memory.insert(np.zeros((1, DIM)))
    memory.insert(np.eye(DIM, dtype=np.float32))
    memory.insert(np.zeros((1, DIM)))  # a true duplicate of node 0
    distances, ids = memory.query(np.zeros((1, DIM)), k=1, own=[0])
    assert (distances[0, 0], ids[0, 0]) == (0.0, DIM + 1)
    _, ids = memory.query(np.zeros((2, DIM)), k=3, own=[0, 99])
    assert 0 not in ids[0]
    assert 0 in ids[1]


def test_bad_input_is_refused_before_anything_changes(kind: str) -> None:
    memory = empty_memory(kind)
    memory.insert(walk(10))
    bad = walk(4)
    bad[2, 1] = np.nan
    with pytest.raises(ValueError, match="State 2 of 4 holds NaN or infinity"):
        memory.insert(bad)
    with pytest.raises(ValueError, match="State 2 of 4"):
        memory.query(bad, 3)
    with pytest.raises(
        ValueError, match=rf"shape \[number, {DIM}\], got an array of shape \[4, 5\]"
    ):
        memory.insert(bad[:, :5])
    with pytest.raises(ValueError, match="one value for each of the 4 states"):
        memory.insert(walk(4), values=[1.0])
    with pytest.raises(ValueError, match="Value 1 of 2 is NaN"):
        memory.insert(walk(2), values=[1.0, np.nan])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        memory.query(walk(2), 0)
    assert len(memory) == 10
    np.testing.assert_array_equal(memory.states(), walk(10))


def test_save_and_load_give_the_same_memory(kind: str, tmp_path) -> None:
    memory = empty_memory(kind)
    memory.insert(walk(500), values=np.linspace(0, 1, 500))
    memory.save(tmp_path / "memory")
    loaded = load_memory(tmp_path / "memory")
    assert type(loaded) is type(memory)
    assert len(loaded) == 500
    np.testing.assert_array_equal(loaded.values(), memory.values())
    queries = walk(30, seed=2)
    for ours, theirs in zip(memory.query(queries, 3), loaded.query(queries, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    memory.insert(walk(20, seed=3))
    loaded.insert(walk(20, seed=3))
    for ours, theirs in zip(memory.query(queries, 3), loaded.query(queries, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_loaded_hnsw_memory_grows_as_the_stored_one_would(tmp_path) -> None:
    """FAISS forgets the generator of levels when it writes an index; what is inserted later was
    linked differently."""
    memory = make_memory("hnsw", DIM)
    memory.insert(walk(2_000))
    memory.save(tmp_path / "memory")
    loaded = load_memory(tmp_path / "memory")
    graphs = []
    for grown in (memory, loaded):
        grown.insert(walk(2_000, seed=3))
        graphs.append(
            [
                faiss.vector_to_array(part)
                for part in (grown._index.hnsw.levels, grown._index.hnsw.neighbors)
            ]
        )
    for ours, theirs in zip(*graphs, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_damaged_files_are_named(kind: str, tmp_path) -> None:
    memory = empty_memory(kind)
    memory.insert(walk(50))
    memory.save(tmp_path)
    victim = next(
        p for p in (tmp_path / "memory.faiss", tmp_path / "memory.safetensors") if p.exists()
    )
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(FileError, match=victim.name):
        load_memory(tmp_path)
    with pytest.raises(FileError, match="does not exist"):
        load_memory(tmp_path / "nowhere")


def test_growth_beyond_the_first_capacity(keeping: str) -> None:
    memory = make_memory(keeping, DIM, capacity=16)
    states = walk(10_000)
    for start in range(0, 10_000, 2_500):
        memory.insert(states[start : start + 2_500])
    assert len(memory) == 10_000
    np.testing.assert_array_equal(memory.states(), states)
    distances, ids = memory.query(states[[0, 9_999]], k=1)
    if keeping != "graph":  # the paper's graph does not promise to find a state it holds
        assert ids[:, 0].tolist() == [0, 9_999]
        assert distances.max() == 0


def test_exact_is_exact() -> None:
    points, queries = walk(9_000), walk(200, seed=5)
    memory = make_memory("exact", DIM)
    memory.insert(points)
    distances, ids = memory.query(queries, 5)
    expected, expected_ids = brute_force(points, queries, 5)
    np.testing.assert_allclose(distances, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ids, expected_ids)


def test_exact_blocks_that_do_not_divide_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    # 16,384 slots: the last block overlaps the one before
    monkeypatch.setattr(exact, "CPU_BLOCK", 6_000)
    states = np.random.default_rng(0).normal(size=(16_000, DIM)).astype(np.float32)
    memory = exact.insert(
        exact.create(16_000, DIM), jnp.asarray(states), jnp.zeros(16_000), jnp.int32(16_000)
    )
    own = jnp.arange(15_000, 15_010, dtype=jnp.int32)
    distances, ids = exact.query(memory, jnp.asarray(states[15_000:15_010]), 3, own)
    everything = np.linalg.norm(states[15_000:15_010, None] - states[None], axis=-1)
    everything[np.arange(10), np.asarray(own)] = np.inf
    nearest = np.argsort(everything, axis=1)[:, :3]
    assert np.array_equal(np.asarray(ids), nearest)
    assert np.asarray(distances) == pytest.approx(
        np.take_along_axis(everything, nearest, axis=1), rel=1e-5
    )


def test_hnsw_finds_almost_all_neighbours() -> None:
    points, queries = walk(20_000), walk(20_000)[::100] + 0.05
    memory = make_memory("hnsw", DIM)
    memory.insert(points)
    _, ids = memory.query(queries, 3)
    _, expected = brute_force(points, queries, 3)
    assert (ids[:, :, None] == expected[:, None, :]).any(axis=2).mean() >= 0.98


def test_hnsw_keeps_as_many_candidates_as_the_recall_takes(tmp_path) -> None:
    points = np.random.default_rng(0).normal(size=(12_000, DIM)).astype(np.float32)
    easy, strict = make_memory("hnsw", DIM, recall=0.5), make_memory("hnsw", DIM, recall=1.0)
    fixed = make_memory("hnsw", DIM, search_candidates=40)
    for memory in (easy, strict, fixed):
        for start in range(0, 12_000, 2_000):  # at 10,000 it looks how many it takes
            memory.insert(points[start : start + 2_000])
    assert easy.search_candidates < 64
    assert easy.search_candidates < strict.search_candidates
    assert fixed.search_candidates == 40
    easy.save(tmp_path)
    assert load_memory(tmp_path).search_candidates == easy.search_candidates
    with pytest.raises(ValueError, match="recall of the hnsw memory must be above 0"):
        make_memory("hnsw", DIM, recall=0.0)


def test_auto_moves_to_hnsw_and_forgets_nothing() -> None:
    memory = make_memory("auto", DIM, largest_exact=1000)
    states = walk(2_000)
    memory.insert(states[:1000], values=np.ones(1000))
    assert memory.backend.kind == "exact"
    memory.insert(states[1000:])
    assert memory.backend.kind == "hnsw"
    np.testing.assert_array_equal(memory.states(), states)
    assert memory.values().sum() == 1000


def test_unknown_kind_and_options() -> None:
    with pytest.raises(
        ValueError, match="no memory called 'annoy'; choose one of auto, exact, graph, hnsw, spaced"
    ):
        make_memory("annoy", 3)
    with pytest.raises(ValueError, match="does not take these options: colour"):
        make_memory("graph", 3, colour="red")
    with pytest.raises(ValueError, match="restarts of the graph memory must be at least 1, got 0"):
        make_memory("graph", 3, restarts=0)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        make_memory("exact", 0)


def test_jax_arrays_are_welcome(keeping: str) -> None:
    memory = make_memory(keeping, DIM)
    memory.insert(jnp.ones((3, DIM)), jnp.ones(3))
    assert len(memory) == 3
