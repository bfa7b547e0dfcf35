"""How fast are worlds on the device, alone and with learning?

    host       environments in worker processes, random actions, nobody learns: what there was
    worlds     the same environment as worlds on the device, random actions, nobody learns: the
               limit of what follows, with as many worlds
    learning   the whole loop: act, step, reset, encode, store, observe episodes, update

Rates are environment steps per second, summed over the agents; medians of the repetitions, with the
smallest and the largest. `learning / worlds` is the share of the limit that is left. A repetition
lasts `seconds` at least. Before the clock starts every program is compiled, every agent learns and
episodes have ended; with worlds that run for a whole time limit the bursts of their ends are in.

    python -m benchmarks.bench_worlds --env Ant-v5 --physics warp --seeds 10 --worlds 128 256 512
    python -m benchmarks.bench_worlds --env PointMaze-v0 --physics jax --seeds 2 --worlds 64
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

from element_rl.acting.collector import Collector
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.storage.files import write_json
from element_rl.training.off_policy.collecting import usual_collector
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.learner import BUCKETS_ON_DEVICE
from element_rl.training.off_policy.resolving import resolved
from element_rl.worlds.making import Physics


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    env: str = "Ant-v5"
    physics: Physics = "warp"
    seeds: int = 10  # agents
    worlds: tuple[int, ...] = (128, 256)  # of each agent, one measurement per number
    reward: str = "element"
    replay_size: int = 1_000_000
    # of ELEMENT: always, to measure what a run costs within its update windows
    remember: Literal["windows", "always"] = "windows"
    memory: Literal["auto", "exact", "spaced"] = "auto"
    updates_per_step: float | None = None
    batch_size: int | None = None
    seconds: float = 10.0
    repetitions: int = 3
    host: bool = True  # also environments in worker processes
    out: Path = Path(".cache/benchmarks/worlds.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """One line for every number of worlds."""
    results: list[dict[str, Any]] = []
    host = _alone(settings, "host", 1) if settings.host else {}
    for number in settings.worlds:
        worlds = _alone(settings, settings.physics, number)
        learning = _learning(settings, number)
        row = {"worlds": settings.seeds * number, "host": host, "worlds_alone": worlds}
        row |= {"learning": learning, "share": learning["median"] / worlds["median"]}
        if host:
            row["times_host"] = worlds["median"] / host["median"]
        row["device_bytes"] = _device_bytes()
        results.append(row)
        print(row, flush=True)
        facts = {"hardware": hardware(), "versions": versions(), "commit": commit()}
        settings.out.parent.mkdir(parents=True, exist_ok=True)
        asked = dataclasses.asdict(settings)
        write_json(settings.out, {**facts, "settings": asked, "results": results})
    return results


def _config(settings: Settings, physics: Physics, worlds: int, reward: str) -> ExploreConfig:
    host = physics == "host"
    return ExploreConfig(
        settings.env,
        reward=reward,
        physics=physics,
        envs_per_agent=worlds,
        steps=10_000_000,
        seeds=settings.seeds,
        replay_size=settings.replay_size,
        remember=settings.remember,
        memory=settings.memory,
        updates_per_step=None if host else settings.updates_per_step,
        batch_size=None if host else settings.batch_size,
    )


def _alone(settings: Settings, physics: Physics, worlds: int) -> dict[str, float]:
    """Random actions, nobody learns."""
    config, spec, _ = resolved(_config(settings, physics, worlds, "random"))
    collector: Collector = usual_collector(config, spec, None)
    chunks = iter(range(10**9))

    def chunk() -> None:
        collector.start(next(chunks), None)
        collector.wait()

    try:
        return _rates(chunk, config.chunk_steps * settings.seeds, settings)
    finally:
        collector.close()


def _learning(settings: Settings, worlds: int) -> dict[str, float]:
    """The whole loop."""
    config = resolved(_config(settings, settings.physics, worlds, settings.reward))
    with Explorer(*config, None) as explorer:
        begun = max(explorer.learn_start, explorer.collector.first_end)
        # beyond the shorter of the two lengths that episodes are padded to
        begun += (BUCKETS_ON_DEVICE[0] + 16) * worlds
        while explorer.step < begun + 2 * config.config.chunk_steps:
            explorer.train_chunk()

        def chunk() -> None:
            explorer.train_chunk()

        def waited() -> None:
            jax.block_until_ready(explorer.learner.state)

        steps = config.config.chunk_steps * settings.seeds
        return _rates(chunk, steps, settings, waited)


def _rates(
    chunk: Callable[[], None],
    steps: int,
    settings: Settings,
    waited: Callable[[], Any] = lambda: None,
) -> dict[str, float]:
    for _ in range(2):
        chunk()
    waited()
    rates = []
    for _ in range(settings.repetitions):
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < settings.seconds:
            chunk()
            done += 1
        waited()
        rates.append(done * steps / (time.perf_counter() - began))
    return {"median": statistics.median(rates), "low": min(rates), "high": max(rates)}


def _device_bytes() -> int | None:
    """The most that JAX has held on the device; None on a CPU."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


if __name__ == "__main__":
    main(tyro.cli(Settings))
