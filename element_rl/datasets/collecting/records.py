"""The episodes of a dataset: those that agents act in, or those that their replay holds."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from element_rl.datasets.collecting.agents import TrainedAgents, entropy_measure
from element_rl.datasets.collecting.chunks import ChunkCollection, finished_episode
from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.parts import (
    Collection,
    Contribution,
    FinishedEpisode,
    Measure,
    read_part,
)
from element_rl.datasets.collecting.replays import replayed_episodes
from element_rl.datasets.collecting.rollouts import RolloutCollection
from element_rl.datasets.minari_writing import EpisodeRecord
from element_rl.runs.watching import Interrupted, Progress, Watcher

RECENT = 100  # episodes whose mean return a watcher is told


def collection_of(
    config: CollectConfig,
    agents: TrainedAgents,
    contributions: list[Contribution],
    folder: Path,
) -> Collection:
    """How such agents act, and the parts of it that are in the folder."""
    # other seeds than in training, so that the agents meet episodes of their own
    seeds = [
        int(np.random.SeedSequence([config.seed, seed]).generate_state(1, np.uint64)[0])
        for seed in agents.seeds
    ]
    kind = RolloutCollection if agents.on_policy else ChunkCollection
    return kind(folder, agents, contributions, seeds, config.deterministic, config.workers)


def acted(
    config: CollectConfig,
    agents: TrainedAgents,
    collection: Collection,
    watch: Watcher,
    stop: Callable[[], bool],
) -> Iterator[EpisodeRecord]:
    """Makes the parts that are missing; then all episodes."""
    done = at_start = collection.steps_done()
    returns: list[float] = []
    began, number = time.perf_counter(), len(agents.seeds)

    def after(steps: int, finished: list[FinishedEpisode]) -> None:
        nonlocal done
        done += steps
        returns.extend(episode.task_return for episode in finished)
        latest = {"extrinsic_return": float(np.mean(returns[-RECENT:]))} if returns else {}
        rate = (done - at_start) / max(time.perf_counter() - began, 1e-9)
        watch(Progress(done // number, config.steps or 0, rate, latest, number))

    collection.act(_measure(config, agents), after, stop)
    return (
        _record(agents, contribution.checkpoint, episode)
        for contribution, path in collection.parts()
        for episode in read_part(path)
    )


def replayed(
    config: CollectConfig, agents: TrainedAgents, watch: Watcher, stop: Callable[[], bool]
) -> Iterator[EpisodeRecord]:
    """The complete episodes in the replay of the run's newest checkpoint."""
    measure = _measure(config, agents)
    done, began = 0, time.perf_counter()
    for agent, rows in replayed_episodes(agents, config.steps):
        if stop():
            raise Interrupted(0)
        yield _record(agents, None, finished_episode(agent, None, rows, measure))
        done += len(rows["action"]) - 1
        watch(Progress(done, 0, done / max(time.perf_counter() - began, 1e-9), {}))


def _measure(config: CollectConfig, agents: TrainedAgents) -> Measure:
    return entropy_measure(agents) if config.entropy else lambda *_: float("nan")


def _record(
    agents: TrainedAgents, checkpoint: int | None, episode: FinishedEpisode
) -> EpisodeRecord:
    """An episode as the dataset's spaces have it."""
    metadata = {
        "policy": checkpoint,
        "agent": episode.agent,
        "agent_seed": agents.seeds[episode.agent],
        "seed": episode.seed,
        "entropy": episode.entropy if np.isfinite(episode.entropy) else None,
        "return": episode.task_return,
    }
    return EpisodeRecord.ended(
        _of_the_task(agents, episode).astype(agents.observation_space.dtype, copy=False),
        agents.environment_actions(episode.actions),
        episode.rewards,
        episode.terminated,
        episode.truncated,
        {"position": episode.positions} if episode.positions.shape[1] else {},
        metadata,
    )


def _of_the_task(agents: TrainedAgents, episode: FinishedEpisode) -> Shaped[np.ndarray, "M ..."]:
    """What the task showed, without the latent that the policies were told beside it."""
    if agents.spec.latent_dim:
        return episode.observations[:, : agents.spec.task_dim]
    return episode.observations
