"""How fast is the on-policy loop, and what holds it back? Environment steps per second, against its
two limits.

    environments      workers as many as in the loop, acting at random, learning nothing
    acting            the network in NumPy, one frame after the other, in one process
    gradient          A3C's update of whole rollouts, one after the other, and nothing else
    loop              all of it, for several rewards

The paper's network and rollouts of 300 steps unless told otherwise. Each part is measured `rounds`
times in turns; medians.

    # Rooms-v0, 2 workers: a few minutes on two cores
    python -m benchmarks.bench_on_policy
    python -m benchmarks.bench_on_policy --env SuperMarioBros-1-1 --workers 6
"""

import dataclasses
import os
import statistics
import time

# before NumPy is loaded, as in `element_rl.cli` and in workers
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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
from element_rl.acting import host_a3c
from element_rl.agents import a3c
from element_rl.agents.a3c import A3CConfig
from element_rl.envs.spec import EnvSpec
from element_rl.storage.files import write_json
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, resolved
from element_rl.training.on_policy.states import encoder_of
from element_rl.training.on_policy.training import OnPolicy

PACKAGES = ("jax", "equinox", "optax", "gymnasium")


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    env: str = "Rooms-v0"
    rewards: tuple[str, ...] = ("extrinsic", "element", "rnd")
    workers: int = 2
    steps: int = 3_000  # of every loop that is timed
    warm_up: int = 1_500  # steps before that: programs are compiled, memories begin to fill
    rounds: int = 3
    page: bool = True  # write the table into docs/benchmarks.md
    out: Path = Path(".cache/benchmarks/on_policy.json")
    a3c: A3CConfig = field(default_factory=A3CConfig)


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure in turns; one table."""
    config = OnPolicyConfig(settings.env, workers=settings.workers, a3c=settings.a3c)
    config, spec = resolved(config)
    parts: dict[str, Callable[[], float]] = {
        "acting": partial(acting, spec, settings.a3c),
        "gradient": partial(gradient, spec, settings.a3c),
        "environments": partial(loop, settings, config, "random"),
        **{
            f"loop, {reward}": partial(loop, settings, config, reward)
            for reward in settings.rewards
        },
    }
    rates: dict[str, list[float]] = {name: [] for name in parts}
    load = os.getloadavg()[0]
    for _ in range(settings.rounds):
        for name, measure in parts.items():
            rates[name].append(measure())
    rows = [
        {"part": name, "rate": statistics.median(own), "lowest": min(own), "highest": max(own)}
        for name, own in rates.items()
    ]
    made_with = provenance(PACKAGES)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        settings.out,
        {"made_with": made_with, "settings": dataclasses.asdict(settings), "results": rows},
    )
    device = jax.devices()[0].platform
    setting = (
        f"{spec.name}, {settings.workers} workers, rollouts of {settings.a3c.local_steps} steps"
    )
    size = f"{setting}; {settings.rounds} rounds. Load at the beginning {load:.1f}."
    text = f"{render(rows)}\n\n{size} {source_line(made_with)}"
    print(text)
    if settings.page:
        replace_table(PAGE, f"on-policy-{device}", text)
    return rows


def acting(spec: EnvSpec, config: A3CConfig, frames: int = 300) -> float:
    """Frames per second of the network in NumPy."""
    network = a3c.ActorCritic.create(jax.random.key(0), spec.frame_shape, spec.actions, config)
    parameters = {name: np.asarray(array) for name, array in a3c.policy_parameters(network).items()}
    seen = np.random.default_rng(0).integers(0, 256, (frames, *spec.frame_shape), np.uint8)
    lstm = np.zeros((2, config.hidden_size), np.float32)
    began = time.perf_counter()
    for frame in seen:
        _, lstm = host_a3c.act(parameters, frame, lstm, 0.5)
    return frames / (time.perf_counter() - began)


def gradient(spec: EnvSpec, config: A3CConfig, rollouts: int = 4) -> float:
    """Steps per second of A3C's update of full rollouts."""
    state = a3c.create(jax.random.key(0), spec.frame_shape, spec.actions, config)
    steps = config.local_steps
    rng = np.random.default_rng(0)
    rollout = a3c.PaddedRollout(
        *map(
            jax.numpy.asarray,
            (
                rng.integers(0, 256, (steps + 1, *spec.frame_shape), np.uint8),
                rng.integers(0, spec.actions, steps, np.int32),
                rng.normal(size=steps).astype(np.float32),
                np.int32(steps),
                np.bool_(False),
                np.zeros((2, config.hidden_size), np.float32),
            ),
        )
    )
    state, _ = a3c.update(state, state.network, rollout, config)  # compiles
    jax.block_until_ready(state)
    began = time.perf_counter()
    for _ in range(rollouts):
        state, _ = a3c.update(state, state.network, rollout, config)
    jax.block_until_ready(state)
    return rollouts * steps / (time.perf_counter() - began)


def loop(settings: Settings, config: OnPolicyConfig, reward: str) -> float:
    """Steps per second after the warm-up."""
    config = dataclasses.replace(
        config, reward=reward, steps=settings.warm_up + settings.steps, log_every=10**9
    )
    config, spec = resolved(config)
    encoder = encoder_of(config, spec)
    began: list[tuple[int, float]] = []

    with OnPolicy(
        config, spec, encoder, bonus_of(config, spec, encoder.state_dim), None
    ) as training:

        def watch(progress: Any) -> None:
            if not began and progress.step >= settings.warm_up:
                began.append((progress.step, time.perf_counter()))

        training.train(watch, lambda: False)
        step, since = began[0]
        return (training.step - step) / (time.perf_counter() - since)


def render(rows: list[dict[str, Any]]) -> str:
    """The table."""
    header = ["part", "steps/s", "lowest to highest"]
    lines = [
        [
            row["part"],
            significant(row["rate"]),
            f"{significant(row['lowest'])} to {significant(row['highest'])}",
        ]
        for row in rows
    ]
    return markdown_table(header, lines)


if __name__ == "__main__":
    main(tyro.cli(Settings))
