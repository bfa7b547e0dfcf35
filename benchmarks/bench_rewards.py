"""What does each reward cost? Time of an update with it, as a share of the update of plain SAC in
the same run.

    per update     sample, learn what the reward learns, compute the reward, update the agent:
                   against the same with the environment's own reward. One call makes 64 updates of
                   the whole population.
    per episode    what the reward does when an episode of 1,000 steps has ended (`observe`), spread
                   over its steps
    in all         both together, for one update per environment step

Data are real: random steps of Ant, the same for all. Rewards take turns, so that whatever else the
machine does hits all alike; shares are taken within a round, then their median.

    python -m benchmarks.bench_rewards --seeds 1 10
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
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
from element_rl.acting.collector import Chunk, ProcessCollector
from element_rl.agents import sac
from element_rl.agents.sac import SACConfig
from element_rl.envs.make import describe
from element_rl.replay.ledger import StoredEpisode
from element_rl.rewards import NAMES, make_reward
from element_rl.storage.files import write_json
from element_rl.training.off_policy.learner import Learner

PLAIN = "extrinsic"
PACKAGES = ("jax", "equinox", "optax")


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    env: str = "Ant-v5"
    rewards: tuple[str, ...] = tuple(name for name in NAMES if name != PLAIN)
    seeds: tuple[int, ...] = (1, 10)  # population sizes
    steps: int = 1_280  # of real data per agent
    updates: int = 64  # per call
    rounds: int = 7
    page: bool = True  # write the table into docs/benchmarks.md
    out: Path = Path(".cache/benchmarks/rewards.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure every population size; one table."""
    rows = [row for seeds in settings.seeds for row in measure(settings, seeds)]
    made_with = provenance(PACKAGES)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(settings.out, {"made_with": made_with, "results": rows})
    device = jax.devices()[0].platform
    text = f"{render(rows)}\n\n{source_line(made_with)}"
    print(text)
    if settings.page:
        replace_table(PAGE, f"rewards-{device}", text)
    return rows


def measure(settings: Settings, seeds: int) -> list[dict[str, Any]]:
    """One row per reward for one population size."""
    chunks = _recorded(settings, seeds)
    learners = {
        name: _learner(settings, name, seeds, chunks) for name in (PLAIN, *settings.rewards)
    }
    updates: dict[str, list[float]] = {name: [] for name in learners}
    episodes: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(settings.rounds + 1):
        for name, learner in learners.items():
            seconds = (
                _seconds(learner.update, learner),
                _seconds(lambda: _observe(learner), learner),  # noqa: B023
            )
            if turn > 0:  # the first compiles
                updates[name].append(seconds[0] / settings.updates)
                episodes[name].append(seconds[1] / learner.spec.max_episode_steps)
    rows = []
    for name in settings.rewards:
        shares = [
            with_ / without - 1
            for with_, without in zip(updates[name], updates[PLAIN], strict=True)
        ]
        observed = [
            (with_ - without) / plain
            for with_, without, plain in zip(
                episodes[name], episodes[PLAIN], updates[PLAIN], strict=True
            )
        ]
        rows.append(
            {
                "reward": name,
                "seeds": seeds,
                "plain_us": 1e6 * statistics.median(updates[PLAIN]),
                "us": 1e6 * statistics.median(updates[name]),
                "per_update": shares,
                "per_episode": observed,
            }
        )
        print(
            {"reward": name, "seeds": seeds, "share": round(statistics.median(shares), 3)},
            flush=True,
        )
    return rows


def render(rows: list[dict[str, Any]]) -> str:
    """Shares in percent, with the lowest and highest of the rounds."""
    header = [
        "reward",
        "seeds",
        "µs per update of all seeds",
        "plain SAC",
        "per update",
        "per episode",
        "in all",
    ]
    lines = []
    for row in rows:
        update, episode = (
            statistics.median(row["per_update"]),
            statistics.median(row["per_episode"]),
        )
        spread = f"{update:+.0%} ({min(row['per_update']):+.0%} to {max(row['per_update']):+.0%})"
        times = [significant(row["us"]), significant(row["plain_us"])]
        lines.append(
            [
                row["reward"],
                str(row["seeds"]),
                *times,
                spread,
                f"{episode:+.1%}",
                f"{update + episode:+.0%}",
            ]
        )
    return markdown_table(header, lines)


def _recorded(settings: Settings, seeds: int) -> list[Chunk]:
    """Random steps of the population, whole chunks."""
    chunks = []
    with ProcessCollector(
        settings.env, list(range(seeds)), settings.updates, None, {}
    ) as collector:
        for index in range(-(-settings.steps // settings.updates)):
            collector.start(index, None)
            chunk = collector.wait()
            chunks.append(
                Chunk(
                    *(np.array(getattr(chunk, field.name)) for field in dataclasses.fields(Chunk))
                )
            )
    return chunks


def _learner(settings: Settings, name: str, seeds: int, chunks: list[Chunk]) -> Learner:
    spec = describe(settings.env)
    options: dict[str, Any] = (
        {"memory": "exact", "update_interval": 500, "update_steps": 50} if name == "element" else {}
    )
    reward = make_reward(name, **options)
    capacity = 4 * settings.steps + 4 * spec.max_episode_steps
    agent = sac.agent(SACConfig(), spec.observation_dim, spec.action_dim)
    learner = Learner(
        spec,
        reward,
        agent,
        list(range(seeds)),
        capacity,
        settings.updates,
        total_steps=100 * settings.steps,
    )
    for chunk in chunks:
        learner._store(chunk)
    _observe(learner)
    learner.ledger.sample_tail[:] = 0
    learner.ledger.sample_count[:] = spec.max_episode_steps
    return learner


def _observe(learner: Learner) -> None:
    """For every agent an episode of full length, made of the first steps recorded; nothing of it
    enters a memory."""
    length = learner.spec.max_episode_steps
    learner._observe(
        [StoredEpisode(agent, 0, length, 0, 0) for agent in range(len(learner.seeds))],
        length,
        False,
    )


def _seconds(call: Callable[[], Any], learner: Learner) -> float:
    jax.block_until_ready(learner.state)
    began = time.perf_counter()
    call()
    jax.block_until_ready(learner.state)
    return time.perf_counter() - began


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
