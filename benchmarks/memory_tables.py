"""The table of `bench_memory`, made from its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.neighbour_indexes import CANDIDATES
from benchmarks.tables import FIELDS, markdown_table, significant, source_line


def render_indexes(rows: list[dict[str, Any]]) -> str:
    """One line per index and size, sizes together, in the order of `CANDIDATES`."""
    header = [
        "index",
        "states",
        "µs/insert",
        "µs/query (lowest–highest)",
        "wall µs/query",
        "recall@3",
    ]
    header += ["correlation", "bias", "bytes/state"]
    chosen = sorted(rows, key=lambda row: (row["size"], list(CANDIDATES).index(row["index"])))
    return _with_source(header, [_line(row) for row in chosen], chosen)


def _line(row: dict[str, Any]) -> list[str]:
    name = [CANDIDATES[row["index"]].title, f"{row['size']:,}"]
    if "error" in row:
        return [*name, f"failed: {row['error'][:60].replace('|', '/')}", *[""] * 6]
    wall = significant(float(np.median(row["wall_us_per_query"])))
    return [*name, significant(row["cpu_us_per_insert"]), _query_cost(row), wall, *_quality(row)]


def _query_cost(row: dict[str, Any]) -> str:
    lowest, highest = min(row["cpu_us_per_query"]), max(row["cpu_us_per_query"])
    return f"{significant(_median(row))} ({significant(lowest)}–{significant(highest)})"


def _median(row: dict[str, Any]) -> float:
    return float(np.median(row["cpu_us_per_query"]))


def _quality(row: dict[str, Any]) -> list[str]:
    bytes_per_state = significant(row["memory_bytes"] / row["size"])
    return [
        f"{row['recall']:.4f}",
        f"{row['correlation']:.4f}",
        f"×{row['bias']:.3f}",
        bytes_per_state,
    ]


def _with_source(header: list[str], lines: list[list[str]], rows: list[dict[str, Any]]) -> str:
    """The table, and under it where its figures come from: rows may have been measured at several
    commits."""
    made_with = [row["made_with"] for row in rows]
    merged = {
        field: ", ".join(dict.fromkeys(made[field] for made in made_with)) for field in FIELDS
    }
    return f"{markdown_table(header, lines)}\n\n{source_line(merged)}"
