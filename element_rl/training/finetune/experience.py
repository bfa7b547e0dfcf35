"""What a transferred run may begin with beside its policies: the explorer's experience, under the
task's reward.

A replay keeps the environment's own reward of every transition, whatever reward the agents learned
from. So relabelling is to leave the other one away: the complete episodes of the explorer's replay,
as that of its newest checkpoint has them, are given to the new learner in time order, as if its own
environments had just sent them. They count as nobody's steps: coverage, returns and episodes of the
new run begin at zero.

Experience is of use to the policies of every checkpoint, but only where it is the task's: with
other options of the environment, rewards and ends of episodes may have been other ones.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence

import numpy as np

from element_rl.acting.collector import Chunk
from element_rl.datasets.collecting.agents import TrainedAgents, agents_of
from element_rl.datasets.collecting.chunks import ROW_FIELDS, EpisodeRows
from element_rl.datasets.collecting.replays import replayed_episodes
from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.settings import named_values
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.on_policy.config import OnPolicyConfig


def kept_chunks(run: RunFolder, task: ExploreConfig) -> Iterator[Chunk]:
    """The newest experience of the first agents of a run, up to the size of the replay, oldest
    first.

    The chunks have the shape of the collector's, so that storing them compiles nothing of its own.
    """
    streams = _streams(_agents(run, task), task.replay_size)
    rows = 2 * task.chunk_steps
    for first in range(0, max(len(stream["final"]) for stream in streams), rows):
        cut = [
            {name: array[first : first + rows] for name, array in stream.items()}
            for stream in streams
        ]
        yield Chunk(
            **{name: _padded([piece[name] for piece in cut], rows) for name in cut[0]},
            count=np.array([len(piece["final"]) for piece in cut], np.int32),
            episode_index=np.zeros(len(cut), np.int64),
        )


def refuse_other_experience(run: RunFolder, task: ExploreConfig | OnPolicyConfig) -> None:
    """Complain where a run has no experience, or that of another environment than the task's."""
    agents = _agents(run, task)
    there = agents.env_options
    for name, value in named_values("--env-options", task.env_options, "").items():
        if name in there and there[name] == value:
            continue
        text, before = f"{name}={json.dumps(value)}", f"{name}={json.dumps(there.get(name))}"
        explored, advice = f"with {before}", f"add --env-options {before} here"
        if name not in there:
            explored, advice = f"without {name}", f"leave {name} out here"
        raise ValueError(
            f"--replay kept needs experience of the task, but the run {run.path} explored "
            f"{explored} and the task has {text}: take --replay fresh, explore with --env-options "
            f"{text}, or {advice}."
        )
    try:
        next(replayed_episodes(agents, None))
    except RunError as error:
        raise RunError(
            f"--replay kept found no experience in {run.path}, take --replay fresh: {error}"
        ) from error


def _agents(run: RunFolder, task: ExploreConfig | OnPolicyConfig) -> TrainedAgents:
    """The run with as many of its agents as there are on the task."""
    agents = agents_of(run, env_options=(), of_the_task=False)
    return dataclasses.replace(agents, seeds=agents.seeds[: task.seeds])


def _streams(agents: TrainedAgents, steps: int) -> list[EpisodeRows]:
    """All records of each agent in time order; an agent without a complete episode has none."""
    episodes: list[list[EpisodeRows]] = [[] for _ in agents.seeds]
    for agent, rows in replayed_episodes(agents, steps):
        episodes[agent].append(
            rows | {"final": np.arange(len(rows["terminated"])) == len(rows["terminated"]) - 1}
        )
    some = next(of_agent[0] for of_agent in episodes if of_agent)
    nothing = {name: array[:0] for name, array in some.items()}
    names = (*ROW_FIELDS, "final")
    return [
        {name: np.concatenate([e[name] for e in (of_agent or [nothing])]) for name in names}
        for of_agent in episodes
    ]


def _padded(arrays: Sequence[np.ndarray], rows: int) -> np.ndarray:
    padded = np.zeros((len(arrays), rows, *arrays[0].shape[1:]), arrays[0].dtype)
    for agent, array in enumerate(arrays):
        padded[agent, : len(array)] = array
    return padded
