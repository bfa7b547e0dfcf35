"""Does a policy do in one physics what it does in the other?

The newest policies of a run act on the host, where Gymnasium's C MuJoCo steps them, and in worlds
on the device, with the same settings of the environment. Each agent acts in so many environments
for so many whole episodes; an agent's first episode in an environment is left out, because in
worlds it is cut short (`element_rl.worlds.collector`). Told are returns, lengths, evaluation
entropies and the cells that all episodes of an agent covered, each with its standard error over the
agents, so that the difference of the two physics can be seen beside the difference of two agents.

    python -m benchmarks.policies_across_physics runs/Hopper-v5-element-0 --physics warp
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from element_rl.acting.collector import Chunk
from element_rl.acting.episode import Episode
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.evaluate.entropies import entropy_measure
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.collecting import usual_collector
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import begun_settings, resolved
from element_rl.worlds.making import Physics


@dataclass(frozen=True)
class Settings:
    """What to compare."""

    run: tyro.conf.Positional[Path]  # a run of element explore
    physics: Physics = "warp"  # beside the host's
    envs: int = 4  # of each agent
    episodes: int = 2  # in each of them, after the first
    scan: int = 50  # steps of an environment in a chunk


def main(settings: Settings) -> dict[Physics, dict[str, np.ndarray]]:
    """A table of both physics; what each agent came to."""
    both: tuple[Physics, ...] = ("host", settings.physics)
    found = {physics: acted(settings, physics) for physics in both}
    names = ("return", "length", "entropy", "cells")
    print("| physics | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for physics, measured in found.items():
        cells = [_with_error(measured[name]) for name in names]
        print(f"| {physics} | " + " | ".join(cells) + " |")
    return found


def acted(settings: Settings, physics: Physics) -> dict[str, np.ndarray]:
    """Means over the episodes of each agent, and the cells that they covered."""
    run = RunFolder.open(settings.run)
    begun = begun_settings(run)
    asked = dataclasses.replace(
        begun,
        physics=physics,
        workers=None,
        envs_per_agent=settings.envs,
        chunk_steps=settings.scan * settings.envs,
        steps=settings.scan * settings.envs,
    )
    config, spec, _ = resolved(asked)
    return _measured(run, spec, config, _episodes(run, spec, config, settings.episodes))


def _episodes(
    run: RunFolder, spec: EnvSpec, config: ExploreConfig, wanted: int
) -> list[list[Episode]]:
    """Whole episodes of each agent, the first of every environment left out."""
    policy = run.load_policy()
    shapes = {name: array.shape[1:] for name, array in policy.items()}
    collector = usual_collector(config, spec, shapes)
    rows = config.seeds * config.num_envs
    running: list[list[dict[str, np.ndarray]]] = [[] for _ in range(rows)]
    found: list[list[Episode]] = [[] for _ in range(rows)]
    try:
        collector.set_parameters(policy)
        index = 0
        while min(len(episodes) for episodes in found) < wanted + 1:
            collector.start(index, "as set")
            _take(collector.wait(), running, found)
            index += 1
    finally:
        collector.close()
    of_agents = np.arange(rows).reshape(config.seeds, config.num_envs).tolist()
    return [[episode for row in own for episode in found[row][1 : wanted + 1]] for own in of_agents]


def _take(
    chunk: Chunk, running: list[list[dict[str, np.ndarray]]], found: list[list[Episode]]
) -> None:
    """Adds the records of a chunk to the episodes that run, and ends those that have ended."""
    names = ("observation", "position", "action", "extrinsic_reward")
    arrays = {name: np.asarray(getattr(chunk, name)) for name in names}
    for row, count in enumerate(chunk.count.tolist()):
        for record in range(count):
            running[row].append({name: array[row, record].copy() for name, array in arrays.items()})
            if chunk.final[row, record]:
                *taken, last = running[row]
                found[row].append(
                    Episode(
                        np.stack([one["observation"] for one in [*taken, last]]),
                        np.stack([one["position"] for one in [*taken, last]]),
                        np.stack([one["action"] for one in taken]),
                        float(sum(one["extrinsic_reward"] for one in taken)),
                    )
                )
                running[row] = []


def _measured(
    run: RunFolder, spec: EnvSpec, config: ExploreConfig, episodes: list[list[Episode]]
) -> dict[str, np.ndarray]:
    entropy = entropy_measure(run, spec, config.seed)
    rows: list[dict[str, Any]] = []
    for agent, own in enumerate(episodes):
        cells = {int(cell) for one in own for cell in coverage_cell(spec, one.positions)}
        rows.append(
            {
                "return": np.mean([one.total for one in own]),
                "length": np.mean([len(one.actions) for one in own]),
                "entropy": np.mean([entropy(agent, one) for one in own]),
                "cells": len(cells) if spec.coverage_bounds is not None else np.nan,
            }
        )
    return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


def _with_error(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():,.1f} ± {error:,.1f}"


if __name__ == "__main__":
    main(tyro.cli(Settings))
