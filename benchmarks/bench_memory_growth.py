"""How the cost of an `hnsw` query grows with the memory, as used by default: candidates chosen for a recall of 0.98.

The indexes are those `bench_memory --keep` saved. Each chooses its candidates on ten held-out episodes, as it does in use on
the states about to be inserted, and is measured on ten others, on one core, in processor time.

    python -m benchmarks.bench_memory --backends hnsw --sizes 100000 1000000 10000000 --keep
    python -m benchmarks.bench_memory_growth --sizes 100000 1000000 10000000
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from jaxtyping import Float

from benchmarks.bench_memory import (
    PACKAGES,
    RESULTS,
    Answer,
    _ask,
    _faiss_statistics,
    _index_folder,
    _timed,
    reward_quality,
    true_neighbours,
)
from benchmarks.one_core import on_one_core
from benchmarks.tables import PAGE, markdown_table, provenance, replace_table, significant, source_line
from benchmarks.trajectories import held_out_episodes, remembered_states
from element_rl.memory.hnsw import HnswConfig, HnswMemory

REPEATS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    rows = []
    episodes = held_out_episodes()
    for size in sorted(parser.parse_args().sizes):
        states = remembered_states(size)
        folder = _index_folder("hnsw", states)
        assert folder is not None
        queries, odd = np.concatenate(episodes), np.concatenate([[i % 2 == 1] * len(e) for i, e in enumerate(episodes)])
        distances, ids = true_neighbours(states, queries)
        truth = (distances[odd], ids[odd])
        rows.append({"size": size} | on_one_core(measure, folder, queries[~odd], queries[odd], truth))
        print(rows[-1], flush=True)
    RESULTS.with_name("memory-growth.json").write_text(json.dumps(rows))
    replace_table(PAGE, "memory-growth", render(rows))


def measure(
    folder: Path, known: Float[np.ndarray, "Q D"], asked: Float[np.ndarray, "Q D"], truth: Answer
) -> dict[str, Any]:
    """One size: candidates chosen, then queries timed."""
    faiss.omp_set_num_threads(1)
    memory = HnswMemory.load(folder)
    memory.config = HnswConfig()
    memory._calibrate(known[np.linspace(0, len(known) - 1, 256).astype(int)])
    answer = _ask(memory, asked)
    statistics = _faiss_statistics()
    statistics.reset()
    seconds = [_timed(lambda: _ask(memory, asked)) for _ in range(REPEATS)]
    computed = statistics.ndis / (REPEATS * len(asked))
    microseconds = sorted(1e6 * processor / len(asked) for processor, _ in seconds)
    quality = reward_quality(answer, truth)
    return {"candidates": memory.search_candidates, "us": microseconds, "distances": computed, **quality}


def render(rows: list[dict[str, Any]]) -> str:
    """Cost beside the logarithm of the size, both relative to the first row."""
    header = [
        "states",
        "log N grows",
        "ef",
        "distances/query",
        "grows",
        "µs/query (lowest–highest)",
        "grows",
        "recall@3",
    ]
    first = rows[0]
    lines = []
    for row in rows:
        cost = float(np.median(row["us"]))
        spread = f"{significant(cost)} ({significant(row['us'][0])}–{significant(row['us'][-1])})"
        grows = [
            f"×{measured(row) / measured(first):.2f}"
            for measured in (lambda r: np.log(r["size"]), lambda r: r["distances"], lambda r: np.median(r["us"]))
        ]
        work = [str(row["candidates"]), significant(row["distances"]), grows[1]]
        lines.append([f"{row['size']:,}", grows[0], *work, spread, grows[2], f"{row['recall']:.3f}"])
    return f"{markdown_table(header, lines)}\n\n{source_line(provenance(PACKAGES))}"


if __name__ == "__main__":
    main()
