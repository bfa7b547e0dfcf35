"""Entropy estimators against eigendecomposition: time per call and error to NumPy float64, on
episodes of Ant.

The matrix-based Rényi entropy (Eq. 2) of integer order needs no eigenvalues: tr(A²) is a Frobenius
norm, tr(A³) takes matrix products. The rows called "eigenvalues" compute the same entropy of order
3 from the spectrum of A: in JAX (float32, the route the library takes for orders that are no
integers) and in NumPy (float64, which is also the truth of the error column). KDE (Eq. 3) and kNN
(Eq. 4) are compared with their own definitions in float64. What each state adds to the entropy
("shares") needs the diagonal of A³, so a whole product; for KDE and kNN the shares are what their
entropy is the mean of.

Run `python -m benchmarks.bench_entropy`; `--quick` takes seconds and leaves the documentation
alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from benchmarks.one_core import on_one_core
from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from benchmarks.trajectories import CACHE, EPISODE_STEPS, held_out_episodes
from element_rl.entropy import kde_entropy, knn_entropy, renyi_entropy, renyi_shares

LENGTHS = (100, 250, 500, 1000)
SLOW = "eigenvalues of order 3, JAX float32"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the entropy estimators.")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=list(LENGTHS), help="episode lengths T"
    )
    parser.add_argument("--repeats", type=int, default=15, help="rounds; the median is reported")
    parser.add_argument("--quick", action="store_true", help="T = 50 and 100, 3 rounds, print only")
    parser.add_argument(
        "--page",
        type=Path,
        help="Markdown page whose table is replaced (default: docs/benchmarks.md)",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lengths, arguments.repeats = [50, 100], 3
    episodes = [_episode(length) for length in arguments.lengths]
    results = [
        row for episode in episodes for row in on_one_core(measure, episode, arguments.repeats)
    ]
    made_with = provenance(["jax", "numpy"])
    path = CACHE / "benchmarks" / "entropy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"made_with": made_with, "results": results}, indent=1))
    text = render(results, made_with)
    print(text)
    page = arguments.page or (None if arguments.quick else PAGE)
    if page:
        replace_table(page, "entropy", text)


def measure(states: Float[np.ndarray, "T D"], repeats: int) -> list[dict[str, Any]]:
    """Time every estimator in turn, `repeats` rounds, so that a change of the machine's load meets
    all of them."""
    on_device = jnp.asarray(states, jnp.float32)
    order_3, order_2 = float_entropy(states, 3.0), float_entropy(states, 2.0)
    calls: dict[str, tuple[Callable[[], Any], float]] = {
        "Rényi order 3 (matrix product)": (
            partial(jax.jit(partial(renyi_entropy, order=3.0)), on_device),
            order_3,
        ),
        "shares of order 3 (their mean)": (partial(jax.jit(_mean_share), on_device), order_3),
        "Rényi order 2 (Frobenius norm)": (
            partial(jax.jit(partial(renyi_entropy, order=2.0)), on_device),
            order_2,
        ),
        "KDE": (partial(jax.jit(kde_entropy), on_device), float_kde_entropy(states)),
        "kNN, k = 3": (
            partial(jax.jit(partial(knn_entropy, k=3)), on_device),
            float_knn_entropy(states, 3),
        ),
        SLOW: (
            partial(jax.jit(renyi_entropy), on_device, jnp.float32(3.0)),
            order_3,
        ),  # a traced order: eigenvalues
        "eigenvalues of order 3, NumPy float64": (partial(float_entropy, states, 3.0), order_3),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}  # wall, processor
    values = {name: float(call()) for name, (call, _) in calls.items()}  # compiles too
    for _ in range(repeats):
        for name, (call, _) in calls.items():
            wall, processor = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            seconds[name].append((time.perf_counter() - wall, time.process_time() - processor))
    medians = {name: np.median(pairs, axis=0) for name, pairs in seconds.items()}
    return [
        {
            "length": len(states),
            "estimator": name,
            "milliseconds": 1e3 * float(medians[name][0]),
            "fastest": 1e3 * min(seconds[name])[0],
            "slowest": 1e3 * max(seconds[name])[0],
            "cpu_milliseconds": 1e3 * float(medians[name][1]),
            "times_faster": (medians[SLOW] / medians[name]).tolist(),
            "relative_error": abs(values[name] - truth) / abs(truth),
        }
        for name, (_, truth) in calls.items()
    ]


def _mean_share(states: Float[jax.Array, "T D"]) -> Float[jax.Array, ""]:
    return jnp.mean(renyi_shares(states, 3))


def float_entropy(states: Float[np.ndarray, "T D"], order: float) -> float:
    """Eq. 2 by eigendecomposition in float64: the truth of the Rényi rows."""
    squared = cdist(states.astype(np.float64), states.astype(np.float64), "sqeuclidean")
    eigenvalues = np.clip(np.linalg.eigvalsh(np.exp(-squared / 2.0) / len(states)), 0.0, None)
    return float(np.log2(np.sum(eigenvalues**order)) / (1.0 - order))


def float_kde_entropy(states: Float[np.ndarray, "T D"]) -> float:
    """Eq. 3 in float64."""
    squared = cdist(states.astype(np.float64), states.astype(np.float64), "sqeuclidean")
    return float(-np.mean(np.log(np.mean(np.exp(-squared / 2.0), axis=1))))


def float_knn_entropy(states: Float[np.ndarray, "T D"], k: int) -> float:
    """Eq. 4 in float64."""
    count, size = states.shape
    distances = cdist(states.astype(np.float64), states.astype(np.float64))
    neighbour = np.partition(distances, k, axis=1)[:, k]  # the smallest is the state itself
    log_ball = size / 2.0 * np.log(np.pi) - gammaln(size / 2.0 + 1.0)
    return float(
        np.mean(np.log(count / k) + size * np.log(neighbour) + log_ball) + np.log(k) - digamma(k)
    )


def render(results: list[dict[str, Any]], made_with: dict[str, str]) -> str:
    header = [
        "estimator",
        "T",
        "ms per call (fastest–slowest)",
        "processor ms",
        "times faster: wall",
        "processor",
    ]
    header += ["relative error"]
    rows = [
        [
            row["estimator"],
            str(row["length"]),
            f"{significant(row['milliseconds'])} "
            f"({significant(row['fastest'])}–{significant(row['slowest'])})",
            significant(row["cpu_milliseconds"]),
            *(f"×{significant(ratio)}" for ratio in row["times_faster"]),
            f"{row['relative_error']:.0e}" if row["relative_error"] else "0",
        ]
        for row in results
    ]
    return f"{markdown_table(header, rows)}\n\n{source_line(made_with)}"


def _episode(length: int) -> Float[np.ndarray, "T D"]:
    """The first `length` states of the first held-out episode that is long enough."""
    for episode in held_out_episodes():
        if len(episode) >= length:
            return episode[:length]
    raise ValueError(f"No recorded episode has {length} states; ask for at most {EPISODE_STEPS}.")


if __name__ == "__main__":
    main()
