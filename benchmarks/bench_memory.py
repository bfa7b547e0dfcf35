"""The lifelong memory against its peers on states of real trajectories: cost, recall, and what that
does to the reward.

Every index × size is measured in a process of its own, bound to one core, so a crash loses one row
only. States are inserted in the order they were visited, 1,000 at a time; queries are 20 whole
episodes that were never inserted, 1,000 a call.

    µs/insert     the last tenth of the build: median over its batches
    µs/query      median of the repeats; processor time, which others on the machine hardly
                  disturb, and wall time
    recall@3      share of the 3 true nearest neighbours that were found
    correlation   of the lifelong reward log(1 + ‖3 distances‖) with the one from exact distances
    bias          mean ratio of the two

Run `python -m benchmarks.bench_memory`; `--quick` takes about a minute and leaves the documentation
alone. Rows are kept in .cache/benchmarks/memory.json; the tables are made from all of them, so rows
can be measured again one by one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import jax
import numpy as np
from jaxtyping import Float, Int

from benchmarks.memory_tables import render_indexes
from benchmarks.neighbour_indexes import CANDIDATES, Candidate, Index
from benchmarks.one_core import MeasurementError, on_one_core
from benchmarks.tables import PAGE, provenance, replace_table
from benchmarks.trajectories import CACHE, held_out_episodes, remembered_states
from element_rl.memory import load_memory

NUM_NEIGHBOURS = 3
BATCH = 1_000
LARGEST_FOR_ALL = 1_000_000  # beyond it hnsw only
SECONDS_PER_REPEAT = 10.0  # slow indexes answer fewer of the queries
RESULTS = CACHE / "benchmarks" / "memory.json"
PACKAGES = ("jax", "faiss-cpu", "hnswlib", "usearch", "pynndescent")

Answer = tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]


def main() -> None:
    arguments = _arguments()
    results_path = RESULTS.with_name("memory-quick.json") if arguments.quick else RESULTS
    for size, name in itertools.product(arguments.sizes, arguments.backends):
        if size > LARGEST_FOR_ALL and name != "hnsw":
            continue
        print(f"{name}, {size:,} states …", flush=True)
        row = measure_apart(name, size, arguments.repeats, arguments.keep)
        _keep_row(results_path, f"{name}/{size}", row)
        print(json.dumps(row), flush=True)
    rows = list(json.loads(results_path.read_text()).values())
    indexes = render_indexes(rows)
    print(indexes)
    page = arguments.page or (None if arguments.quick else PAGE)
    if page:
        replace_table(page, "memory", indexes)


def measure_apart(name: str, size: int, repeats: int, keep: bool) -> dict[str, Any]:
    """One row, measured in a fresh process; a row that only says what went wrong if that process
    fails."""
    states = remembered_states(size)
    queries = np.concatenate(held_out_episodes())
    truth = true_neighbours(states, queries)
    saved = _index_folder(name, states) if keep else None
    try:
        row = on_one_core(measure, name, states, queries, truth, repeats, saved)
    except MeasurementError as error:
        row = {"error": str(error)}
    return {"index": name, "size": size, "made_with": provenance(PACKAGES)} | row


def measure(
    name: str,
    states: Float[np.ndarray, "N D"],
    queries: Float[np.ndarray, "Q D"],
    truth: Answer,
    repeats: int,
    saved: Path | None = None,
) -> dict[str, Any]:
    """Build (or load) the index, ask it, compare its answers with the true ones."""
    faiss.omp_set_num_threads(1)
    index, insertion = built(CANDIDATES[name], states, saved)
    chosen = _affordable(index, queries)
    asked = np.ascontiguousarray(queries[chosen])
    answer = _ask(index, asked)  # also warms up: nothing compiles in the repeats
    statistics = _faiss_statistics()
    statistics.reset()
    seconds = [_timed(lambda: _ask(index, asked)) for _ in range(repeats)]
    visited = statistics.ndis / (repeats * len(asked))  # 0 for indexes that are not FAISS's
    microseconds = {
        f"{clock}_us_per_query": [1e6 * pair[position] / len(asked) for pair in seconds]
        for position, clock in enumerate(("cpu", "wall"))
    }
    quality = reward_quality(answer, (truth[0][chosen], truth[1][chosen]))
    size = {
        "memory_bytes": index.memory_bytes(),
        "num_queries": len(asked),
        "distances_per_query": visited,
    }
    return insertion | microseconds | quality | size


def built(
    candidate: Candidate, states: Float[np.ndarray, "N D"], saved: Path | None
) -> tuple[Index, dict[str, Any]]:
    """The index with all states in it, and what a state cost to insert; from a folder where it was
    built before."""
    if saved and (saved / "insertion.json").exists():
        return load_memory(saved), json.loads((saved / "insertion.json").read_text())
    _warm_up(candidate, states)
    index = candidate.make(states.shape[1], len(states))
    size = BATCH if candidate.online else len(states)
    costs = []
    for start in range(0, len(states), size):
        batch = states[start : start + size]
        pair = _timed(partial(_insert_and_wait, index, batch))
        costs.append([1e6 * seconds / len(batch) for seconds in pair])
    last = costs[-max(len(costs) // 10, 10) :]
    insertion = {
        "cpu_us_per_insert": float(np.median(last, axis=0)[0]),
        "build_cpu_us": float(np.mean(costs, axis=0)[0]),
    }
    insertion |= {"insert_range": np.quantile(np.array(last)[:, 0], (0.1, 0.9)).tolist()}
    if saved and candidate.ours:
        index.save(saved)  # type: ignore[attr-defined]
        (saved / "insertion.json").write_text(json.dumps(insertion))
    return index, insertion


def true_neighbours(states: Float[np.ndarray, "N D"], queries: Float[np.ndarray, "Q D"]) -> Answer:
    """The exact neighbours, by FAISS's brute force on all cores; kept, as a million states take a
    minute."""
    path = CACHE / "benchmarks" / f"truth_{len(states)}_{_checksum(states, queries):08x}.npz"
    if not path.exists():
        # Differences, not ‖x‖² + ‖y‖² − 2xy, which loses the small distances to rounding.
        faiss.cvar.distance_compute_blas_threshold = len(queries) + 1
        index = faiss.IndexFlatL2(states.shape[1])
        index.add(states)
        squared, ids = index.search(queries, NUM_NEIGHBOURS)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, distances=np.sqrt(squared), ids=ids)
    stored = np.load(path)
    return stored["distances"], stored["ids"]


def reward_quality(answer: Answer, truth: Answer) -> dict[str, float]:
    """Recall, and how the lifelong reward r_l = log(1 + ‖distances‖) compares with the one of the
    true neighbours."""
    found = (answer[1][:, :, None] == truth[1][:, None, :]).any(axis=1)
    reward, true_reward = (
        np.log1p(np.linalg.norm(distances, axis=1)) for distances in (answer[0], truth[0])
    )
    known = np.isfinite(reward)  # a walk of the graph may come back with fewer than k neighbours
    return {
        "recall": float(found.mean()),
        "correlation": float(np.corrcoef(reward[known], true_reward[known])[0, 1]),
        "bias": float(np.mean(reward[known] / true_reward[known])),
        "incomplete": float(1.0 - known.mean()),
    }


def _insert_and_wait(index: Index, states: Float[np.ndarray, "M D"]) -> None:
    index.insert(states)
    jax.block_until_ready(getattr(index, "_state", None))  # JAX returns before it has computed


def _ask(index: Index, queries: Float[np.ndarray, "Q D"]) -> Answer:
    answers = [
        index.query(queries[start : start + BATCH], NUM_NEIGHBOURS)
        for start in range(0, len(queries), BATCH)
    ]
    distances, ids = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    return distances, ids


def _affordable(index: Index, queries: Float[np.ndarray, "Q D"]) -> Int[np.ndarray, " Q"]:
    """All queries, or evenly spaced ones where all would take longer than a repeat should."""
    few = np.ascontiguousarray(queries[:64])
    index.query(few, NUM_NEIGHBOURS)
    seconds_each = _timed(lambda: index.query(few, NUM_NEIGHBOURS))[0] / len(few)
    count = int(np.clip(SECONDS_PER_REPEAT / max(seconds_each, 1e-9), 128, len(queries)))
    return np.unique(np.linspace(0, len(queries) - 1, count).astype(int))


def _warm_up(candidate: Candidate, states: Float[np.ndarray, "N D"]) -> None:
    """Use an index of the same capacity once, so that what compiles just in time has compiled
    before it is timed."""
    warm = candidate.make(states.shape[1], len(states))
    # pynndescent compiles more for larger sets
    warm.insert(states[:BATCH] if candidate.online else states)
    warm.query(states[:BATCH], NUM_NEIGHBOURS)


def _timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Processor seconds of all threads, and wall seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - processor, time.perf_counter() - wall


def _faiss_statistics() -> Any:
    globals_of_faiss: Any = faiss.cvar  # its type stubs do not know this counter
    return globals_of_faiss.hnsw_stats


def _index_folder(name: str, states: Float[np.ndarray, "N D"]) -> Path | None:
    candidate = CANDIDATES[name]
    settings = zlib.crc32(candidate.title.encode())
    return (
        CACHE / "benchmarks" / f"{name}_{len(states)}_{settings:08x}_{_checksum(states):08x}"
        if candidate.ours
        else None
    )


def _checksum(*arrays: np.ndarray) -> int:
    value = 0
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).data, value)
    return value


def _keep_row(path: Path, key: str, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(path.read_text()) if path.exists() else {}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows | {key: row}, indent=1))
    temporary.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure the memories and their peers on Ant trajectories."
    )
    sizes = [10_000, 100_000, 1_000_000, 10_000_000]
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=sizes, help="states remembered; above 1e6 hnsw only"
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=list(CANDIDATES),
        default=list(CANDIDATES),
        help="which indexes",
    )
    parser.add_argument(
        "--repeats", type=int, default=7, help="how often the queries are asked; the median counts"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="save our indexes under .cache and load them the next time",
    )
    parser.add_argument(
        "--quick", action="store_true", help="2,000 states, without pynndescent, print only"
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="Markdown page whose tables are replaced (default: docs/benchmarks.md)",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.repeats = [2_000], 3
        arguments.backends = [name for name in arguments.backends if name != "pynndescent"]
    return arguments


if __name__ == "__main__":
    main()
