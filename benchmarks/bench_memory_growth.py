"""How the cost of an `hnsw` query grows with the memory: with candidates fixed, at a fixed recall,
and as used by default.

The indexes are those `bench_memory --keep` saved. Each chooses its candidates on ten held-out
episodes, as it does in use on the states about to be inserted, and is measured on ten others, on
one core, in processor time. The cost at a fixed recall is read off the curve of cost against recall
over all numbers of candidates.

    python -m benchmarks.bench_memory --backends hnsw --sizes 100000 1000000 10000000 --keep
    python -m benchmarks.bench_memory_growth --sizes 100000 1000000 10000000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
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
from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from benchmarks.trajectories import held_out_episodes, remembered_states
from element_rl.memory.hnsw import CANDIDATES, HnswConfig, HnswMemory

REPEATS = 9
RECALL = HnswConfig().recall
FIXED = 64  # candidates of the columns with a fixed number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    rows = []
    episodes = held_out_episodes()
    for size in sorted(parser.parse_args().sizes):
        states = remembered_states(size)
        folder = _index_folder("hnsw", states)
        assert folder is not None
        queries, odd = (
            np.concatenate(episodes),
            np.concatenate([[i % 2 == 1] * len(e) for i, e in enumerate(episodes)]),
        )
        distances, ids = true_neighbours(states, queries)
        truth = (distances[odd], ids[odd])
        rows.append(
            {"size": size} | on_one_core(measure, folder, queries[~odd], queries[odd], truth)
        )
        print(rows[-1], flush=True)
    RESULTS.with_name("memory-growth.json").write_text(json.dumps(rows))
    table = f"{render(rows)}\n\n{source_line(provenance(PACKAGES))}"
    replace_table(PAGE, "memory-growth", table)


def measure(
    folder: Path, known: Float[np.ndarray, "Q D"], asked: Float[np.ndarray, "Q D"], truth: Answer
) -> dict[str, Any]:
    """One size: the candidates it chooses, and the curve of cost against recall."""
    faiss.omp_set_num_threads(1)
    memory = HnswMemory.load(folder)
    memory.config = HnswConfig()
    memory._calibrate(known)
    chosen = memory.search_candidates
    statistics = _faiss_statistics()
    curve = []
    for candidates in CANDIDATES:
        memory._search_candidates = candidates
        answer = _ask(memory, asked)
        statistics.reset()
        seconds = [_timed(lambda: _ask(memory, asked)) for _ in range(REPEATS)]
        microseconds = sorted(1e6 * processor / len(asked) for processor, _ in seconds)
        computed = statistics.ndis / (REPEATS * len(asked))
        recall = reward_quality(answer, truth)["recall"]
        curve.append(
            {"candidates": candidates, "us": microseconds, "distances": computed, "recall": recall}
        )
    return {"chosen": chosen, "curve": curve}


def render(rows: list[dict[str, Any]]) -> str:
    """Cost beside the logarithm of the size, both relative to the first row."""
    header = ["states", "log N grows", f"µs at recall {RECALL}", "grows", "distances", "grows"]
    header += [
        f"µs at ef = {FIXED}",
        "grows",
        "distances",
        "grows",
        "default: ef",
        "µs (lowest–highest)",
        "recall@3",
    ]
    columns = [_at_recall(rows, lambda point: float(np.median(point["us"])))]
    columns += [_at_recall(rows, lambda point: point["distances"])]
    fixed = [_point(row, FIXED) for row in rows]
    columns += [
        [float(np.median(point["us"])) for point in fixed],
        [point["distances"] for point in fixed],
    ]
    lines = []
    for index, row in enumerate(rows):
        costs = [
            (significant(column[index]), f"×{column[index] / column[0]:.2f}") for column in columns
        ]
        chosen = _point(row, row["chosen"])
        us = chosen["us"]
        default = (
            f"{significant(float(np.median(us)))} ({significant(us[0])}–{significant(us[-1])})"
        )
        size = [f"{row['size']:,}", f"×{np.log(row['size']) / np.log(rows[0]['size']):.2f}"]
        cells = [cell for pair in costs for cell in pair]
        lines.append([*size, *cells, str(row["chosen"]), default, f"{chosen['recall']:.3f}"])
    return markdown_table(header, lines)


def _at_recall(rows: list[dict[str, Any]], cost: Callable[[dict[str, Any]], float]) -> list[float]:
    """The cost at which each row's curve crosses the wanted recall."""
    return [
        float(
            np.interp(
                RECALL,
                [point["recall"] for point in row["curve"]],
                [cost(point) for point in row["curve"]],
            )
        )
        for row in rows
    ]


def _point(row: dict[str, Any], candidates: int) -> dict[str, Any]:
    return next(point for point in row["curve"] if point["candidates"] == candidates)


if __name__ == "__main__":
    main()
