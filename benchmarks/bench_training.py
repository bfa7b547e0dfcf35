"""How fast is training? Environment steps per second with one update per step, beside the limits of
the same machine.

    environments alone   the same environments and processes, random actions, nobody learns
    updates alone        the same batched updates on a replay that does not change
    extrinsic            the whole loop, learning from the environment's reward: plain SAC
    element              the whole loop with the full ELEMENT reward, its memory and replay filled
                         beforehand

Rates are summed over the agents. The update window is the paper's share (T_u / U = 1/10) at a
smaller scale, so that a measurement of some thousand steps contains its due of insertions and
merges; `--remembered` states are in each memory and `--stored` transitions in each replay before
the clock starts.

    python -m benchmarks.bench_training --seeds 1 5 10 25
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from element_rl.acting.collector import ProcessCollector
from element_rl.rewards.element import ElementReward
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.storage.files import write_json
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer
from element_rl.training.off_policy.resolving import resolved


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    env: str = "Ant-v5"
    seeds: tuple[int, ...] = (1,)  # population sizes
    rewards: tuple[str, ...] = ("extrinsic", "element")
    # states in each lifelong memory, one measurement per number
    remembered: tuple[int, ...] = (50_000,)
    stored: int = 1_000_000  # transitions in each replay
    chunks: int = 40  # timed chunks per repetition
    chunk_steps: int = 64
    repetitions: int = 3
    out: Path = Path(".cache/benchmarks/training.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure every population size; one line each."""
    results: list[dict[str, Any]] = []
    for seeds in settings.seeds:
        row = measure(settings, seeds)
        results.append(row)
        print(
            {
                name: round(value, 1) if isinstance(value, float) else value
                for name, value in row.items()
            },
            flush=True,
        )
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        facts = {"hardware": hardware(), "versions": versions(), "commit": commit()}
        write_json(
            settings.out, {**facts, "settings": dataclasses.asdict(settings), "results": results}
        )
    return results


def measure(settings: Settings, seeds: int) -> dict[str, Any]:
    """All rates for one population size."""
    row: dict[str, Any] = {"seeds": seeds, "environments": _environments_alone(settings, seeds)}
    for reward in settings.rewards:
        for remembered in settings.remembered if reward == "element" else (0,):
            name = f"{reward}_{remembered}" if remembered else reward
            with _filled_explorer(settings, seeds, reward, remembered) as explorer:
                row[f"{name}_updates"] = _updates_alone(explorer, settings)
                rates = _rates(
                    explorer.train_chunk,
                    settings,
                    seeds,
                    lambda: jax.block_until_ready(explorer.learner.state),
                )
                row[name], row[f"{name}_low"], row[f"{name}_high"] = (
                    statistics.median(rates),
                    min(rates),
                    max(rates),
                )
            stats = jax.devices()[0].memory_stats() or {}
            row["device_bytes"] = stats.get("peak_bytes_in_use", 0)
    return row


def _environments_alone(settings: Settings, seeds: int) -> float:
    with ProcessCollector(
        settings.env, list(range(seeds)), settings.chunk_steps, None, {}
    ) as collector:
        chunk = [0]

        def step() -> None:
            collector.start(chunk[0], None)
            collector.wait()
            chunk[0] += 1

        return statistics.median(_rates(step, settings, seeds))


def _updates_alone(explorer: Explorer, settings: Settings) -> float:
    def step() -> None:
        explorer.learner.update()

    seeds = len(explorer.seeds)
    return statistics.median(
        _rates(step, settings, seeds, lambda: jax.block_until_ready(explorer.learner.state))
    )


def _rates(
    step: Callable[[], None],
    settings: Settings,
    seeds: int,
    settle: Callable[[], Any] = lambda: None,
) -> list[float]:
    """Steps per second of several repetitions, after a warm-up that compiles everything."""
    for _ in range(max(settings.chunks // 2, 2)):
        step()
    settle()
    rates = []
    for _ in range(settings.repetitions):
        began = time.perf_counter()
        for _ in range(settings.chunks):
            step()
        settle()
        rates.append(settings.chunks * settings.chunk_steps * seeds / (time.perf_counter() - began))
    return rates


def _filled_explorer(settings: Settings, seeds: int, reward: str, remembered: int) -> Explorer:
    """A population in the middle of its training: replay and memory hold as many states as asked
    for."""
    interval = 2_000
    steps = max(10 * (remembered + 20_000), 100_000)  # long enough for the memory to hold them
    config = ExploreConfig(
        settings.env,
        reward=reward,
        steps=steps,
        seeds=seeds,
        update_interval=interval,
        update_steps=interval // 10,
        chunk_steps=settings.chunk_steps,
        replay_size=settings.stored,
    )
    config, spec, made = resolved(config)
    config = dataclasses.replace(config, chunk_steps=settings.chunk_steps)
    explorer = Explorer(config, spec, made, None)
    while explorer.step < 3_000:  # real transitions to learn from
        explorer.train_chunk()
    explorer.learner.ledger.written[:] = settings.stored  # from here on every slot counts as filled
    if isinstance(made, ElementReward):
        _fill_memory(explorer, remembered)
    return explorer


def _fill_memory(explorer: Explorer, remembered: int) -> None:
    learner = explorer.learner
    seen = np.asarray(learner.state.replay.state[0, 1:2_000])
    rng = np.random.default_rng(0)
    states = (
        seen[rng.integers(0, len(seen), remembered)]
        + rng.normal(size=(remembered, seen.shape[1])) * 0.3
    )
    states = states.astype(np.float32)
    rewards = learner.state.rewards
    for memory in learner.host_memories:
        memory.insert(states)
    if not learner.host_memories:
        filled = rewards.memory.states.at[:, :remembered].set(jnp.asarray(states)[None])
        size = jnp.full(len(explorer.seeds), remembered, jnp.int32)
        rewards = rewards._replace(
            memory=rewards.memory._replace(states=filled, size=size), memory_size=jnp.copy(size)
        )
        learner.state = learner.state._replace(rewards=rewards)


if __name__ == "__main__":
    main(tyro.cli(Settings))
