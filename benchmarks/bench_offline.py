"""How fast does a population learn offline? Updates per second of all agents together, against one
agent in the same run.

Data are random and as large as those of an Ant: 105 numbers per observation, 8 per action, 200,000
steps per dataset, three datasets. Agents share them evenly; each draws its own batches. One call
makes `updates` updates of the whole population, on networks and batches of the default size.
Populations take turns, so that whatever else the machine does hits all alike; ratios are taken
within a round, then their median.

    python -m benchmarks.bench_offline                                                # on a GPU
    # on two cores: a minute or two
    python -m benchmarks.bench_offline --updates 2 --rounds 2 --transitions 5000
"""

import dataclasses
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from element_rl.agents.cql import CQLConfig
from element_rl.datasets.episodes import Episodes
from element_rl.storage.files import write_json
from element_rl.training.offline.batches import DeviceRows, rows_of
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import OfflineData, Portion
from element_rl.training.offline.learner import OfflineLearner, make_agent

PACKAGES = ("jax", "equinox", "optax")


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    algorithms: tuple[str, ...] = ("cql", "bc")
    agents: tuple[int, ...] = (
        1,
        15,
    )  # population sizes; the first is what the others are compared with
    datasets: int = 3
    transitions: int = 200_000  # per dataset
    observation_dim: int = 105
    action_dim: int = 8
    hidden_sizes: tuple[int, ...] = CQLConfig().hidden_sizes
    updates: int = 200  # per call
    rounds: int = 7
    page: bool = True  # write the table into docs/benchmarks.md
    out: Path = Path(".cache/benchmarks/offline.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure every algorithm; one table."""
    source = synthetic_source(settings)
    rows_on_device = rows_of(source, reward_scale=1.0)
    rows = [
        row
        for algorithm in settings.algorithms
        for row in measure(settings, algorithm, source, rows_on_device)
    ]
    made_with = provenance(PACKAGES)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        settings.out,
        {"made_with": made_with, "settings": dataclasses.asdict(settings), "results": rows},
    )
    device = jax.devices()[0]
    kind = "" if device.platform == "cpu" else f" ({device.device_kind})"
    size = f"{settings.updates} updates per call, {settings.rounds} rounds."
    text = f"{render(rows)}\n\n{size} {source_line(made_with)}{kind}"
    print(text)
    if settings.page:
        replace_table(PAGE, f"offline-{device.platform}", text)
    return rows


def measure(
    settings: Settings, algorithm: str, source: OfflineData, rows: DeviceRows
) -> list[dict[str, Any]]:
    """One row per population size."""
    config = OfflineConfig(("synthetic-v0",), algorithm=algorithm)  # type: ignore[arg-type]
    config = dataclasses.replace(
        config,
        cql=dataclasses.replace(config.cql, hidden_sizes=settings.hidden_sizes),
        bc=dataclasses.replace(config.bc, hidden_sizes=settings.hidden_sizes),
    )
    learners = {}
    for number in settings.agents:
        parts = [source.portions[agent % len(source.portions)] for agent in range(number)]
        learners[number] = OfflineLearner(
            make_agent(config, source), rows, parts, list(range(number))
        )
    rates: dict[int, list[float]] = {number: [] for number in learners}
    for turn in range(settings.rounds + 1):
        for number, learner in learners.items():
            seconds = _seconds(learner, settings.updates)
            if turn > 0:  # the first compiles
                rates[number].append(number * settings.updates / seconds)
    alone = rates[settings.agents[0]]
    return [
        {
            "algorithm": algorithm,
            "agents": number,
            "rate": statistics.median(own),
            "lowest": min(own),
            "highest": max(own),
            "ratio": statistics.median(
                ours / theirs for ours, theirs in zip(own, alone, strict=True)
            ),
        }
        for number, own in rates.items()
    ]


def render(rows: list[dict[str, Any]]) -> str:
    """The table."""
    header = ["algorithm", "agents", "updates/s of all agents", "lowest to highest", "to one agent"]
    lines = [
        [
            row["algorithm"],
            str(row["agents"]),
            significant(row["rate"]),
            f"{significant(row['lowest'])} to {significant(row['highest'])}",
            f"×{row['ratio']:.2f}",
        ]
        for row in rows
    ]
    return markdown_table(header, lines)


def synthetic_source(settings: Settings) -> OfflineData:
    """Random datasets in episodes of 1,000 steps."""
    rng = np.random.default_rng(0)
    steps = settings.transitions * settings.datasets
    length = min(1_000, settings.transitions)
    lengths = np.full(steps // length, length, np.int64)
    number = int(np.sum(lengths + 1))
    episodes = Episodes(
        observation=rng.standard_normal((number, settings.observation_dim), np.float32),
        action=rng.uniform(-1, 1, (number, settings.action_dim)).astype(np.float32),
        reward=rng.standard_normal(number, np.float32),
        terminated=np.zeros(number, bool),
        truncated=np.zeros(number, bool),
        position=None,
        lengths=lengths,
        metadata=({},) * len(lengths),
    )
    mean, deviation = (
        np.zeros(settings.observation_dim, np.float32),
        np.ones(settings.observation_dim, np.float32),
    )
    share = int(lengths.sum()) // settings.datasets
    parts = tuple(
        Portion(index, None, index * share, share, 0.0, mean, deviation)
        for index in range(settings.datasets)
    )
    return OfflineData(
        episodes, parts, "", {}, (settings.observation_dim,), settings.action_dim, False, False, 1
    )


def _seconds(learner: OfflineLearner, updates: int) -> float:
    jax.block_until_ready(learner.sums)
    began = time.perf_counter()
    learner.update(updates)
    jax.block_until_ready(learner.sums)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(tyro.cli(Settings))
