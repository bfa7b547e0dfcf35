"""Collecting from runs of `element explore`: acting with SAC's policies, or taking the replay;
episodes of vectors."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.acting.actors import episode_seed
from element_rl.acting.collector import ProcessCollector
from element_rl.acting.host_policy import policy_action
from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.parts import (
    Division,
    Finished,
    Parts,
    Rows,
    Share,
    divide,
    mean_action,
)
from element_rl.datasets.collecting.source import (
    EpisodeEntropies,
    Source,
    actions_of,
    observations_of,
    replayed_episodes,
)
from element_rl.datasets.minari_files import EpisodeRecord
from element_rl.runs.watching import Interrupted, Progress, Watcher


def division_of(source: Source, shares: Sequence[Share]) -> Division:
    """How such a collection is divided into chunks and parts."""
    width = source.spec.observation_dim + source.spec.action_dim + source.spec.position_dim + 3
    return divide(max((share.steps for share in shares), default=1), len(source.seeds), width)


def acted(
    config: CollectConfig,
    source: Source,
    shares: Sequence[Share],
    seeds: Sequence[int],
    folder: Path,
    watch: Watcher,
    stop: Callable[[], bool],
) -> Iterator[EpisodeRecord]:
    """Makes the parts that are missing in the folder; then all episodes."""
    parts = Parts(folder, shares, len(source.seeds), division_of(source, shares))
    _act(config, source, parts, seeds, watch, stop)
    return _records(source, parts, seeds)


def replayed(
    config: CollectConfig, source: Source, watch: Watcher, stop: Callable[[], bool]
) -> Iterator[EpisodeRecord]:
    """The complete episodes in the replay of the run's newest checkpoint."""
    entropies = EpisodeEntropies(source) if config.entropy else None
    done, began = 0, time.perf_counter()
    for agent, rows in replayed_episodes(source, config.steps):
        if stop():
            raise Interrupted(0)
        entropy = entropies(agent, rows) if entropies is not None else None
        yield _record(
            source, rows, {"agent": agent, "agent_seed": source.seeds[agent], "entropy": entropy}
        )
        done += len(rows["action"]) - 1
        watch(Progress(done, 0, done / max(time.perf_counter() - began, 1e-9), {}))


def _act(
    config: CollectConfig,
    source: Source,
    parts: Parts,
    seeds: Sequence[int],
    watch: Watcher,
    stop: Callable[[], bool],
) -> None:
    """Makes the parts that are missing."""
    assert config.steps is not None
    if not parts.missing():
        return
    entropies = EpisodeEntropies(source) if config.entropy else None
    returns: list[float] = []
    done, began, total = parts.steps_done(), time.perf_counter(), config.steps
    at_start = done

    def measure(agent: int, rows: Rows) -> float:
        return entropies(agent, rows) if entropies is not None else float("nan")

    def after_chunk(steps: int, finished: list[Finished]) -> None:
        nonlocal done
        done += steps
        returns.extend(float(episode.rows["extrinsic_reward"].sum()) for episode in finished)
        rate = (done - at_start) * len(source.seeds) / max(time.perf_counter() - began, 1e-9)
        latest = {"extrinsic_return": float(np.mean(returns[-100:]))} if returns else {}
        watch(Progress(done, total, rate, latest, len(source.seeds)))
        if stop() and done < total:
            raise Interrupted(parts.steps_done())

    parameters = parts.shares[0].parameters or {}
    with ProcessCollector(
        source.spec,
        list(seeds),
        parts.division.chunk_steps,
        (mean_action if config.deterministic else policy_action) if parameters else None,
        {name: array.shape[1:] for name, array in parameters.items()},
        env_options=source.env_options,
        num_workers=config.workers,
    ) as collector:
        parts.record(collector, measure, after_chunk)


def _records(source: Source, parts: Parts, seeds: Sequence[int]) -> Iterator[EpisodeRecord]:
    for share, episode, entropy in parts.episodes():
        metadata = {
            "policy": share.checkpoint,
            "agent": episode.agent,
            "agent_seed": source.seeds[episode.agent],
            "seed": episode_seed(seeds[episode.agent], episode.number),
            "entropy": entropy if np.isfinite(entropy) else None,
        }
        yield _record(source, episode.rows, metadata)


def _record(source: Source, rows: Rows, metadata: dict[str, Any]) -> EpisodeRecord:
    return EpisodeRecord(
        observations=observations_of(source, rows),
        actions=actions_of(source, rows["action"][:-1]),
        rewards=rows["extrinsic_reward"][:-1],
        terminations=rows["terminated"][:-1],
        truncations=rows["truncated"][:-1],
        infos={"position": rows["position"]} if source.spec.position_dim else {},
        metadata=metadata | {"return": float(rows["extrinsic_reward"].sum())},
    )
