"""Acting with policies of on-policy runs: every agent for itself, rollout by rollout.

Every agent has one worker, in a process of its own, that acts exactly as in training
(`acting.rollout_actor`). A part holds whole episodes of one agent with one checkpoint, so that the
part after it begins with a reset and nothing has to be re-enacted.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.acting.host_ppo import is_ppo
from element_rl.acting.rollout import Place, Rollout
from element_rl.acting.rollout_actor import RolloutSettings
from element_rl.acting.rollout_workers import RolloutWorkers
from element_rl.datasets.collecting.agents import TrainedAgents
from element_rl.datasets.collecting.parts import (
    STRIDE,
    AfterActing,
    Contribution,
    FinishedEpisode,
    Measure,
    write_part,
)
from element_rl.envs.make import env_maker
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_arrays

PART_STEPS = 2_000  # of an agent, about: what a kill may cost, and what is in memory (14 MB)
RESTARTS = 3  # how often in a row a worker that fails is started again
CERTAINTY = 1e6  # logits times this leave the likeliest action only
PPO_STEPS = 50  # of a rollout, which is nothing to PPO's policies


@dataclass
class UnwrittenEpisodes:
    """What one agent has done with a checkpoint and is not on the disk yet."""

    agent: int
    part: int  # number of the part they will be
    steps: int = 0  # with this checkpoint so far, those on the disk too
    pieces: list[Rollout] = field(default_factory=list)  # of the episode that is running
    episodes: list[FinishedEpisode] = field(default_factory=list)
    # steps, rollouts and episodes with this checkpoint, as the last episode ended
    counts: tuple[int, int, int] = (0, 0, 0)

    def add(
        self, rollout: Rollout, place: Place, last: bool, measure: Measure
    ) -> list[FinishedEpisode]:
        """The episode that ended with the rollout, or is cut off there because it is the last;
        `place` is after it."""
        names = ("frames", "actions", "rewards", "positions")
        # the arrays are the worker's, who will act again
        copies = {name: getattr(rollout, name).copy() for name in names}
        self.pieces.append(dataclasses.replace(rollout, **copies))
        self.steps += len(rollout)
        if not (rollout.ended or last):
            return []
        frames, positions = (
            np.concatenate(
                [getattr(piece, name)[index > 0 :] for index, piece in enumerate(self.pieces)]
            )
            for name in ("frames", "positions")
        )
        rewards = np.concatenate([piece.rewards for piece in self.pieces])
        episode = FinishedEpisode(
            agent=self.agent,
            seed=rollout.episode_seed,
            observations=frames,
            actions=np.concatenate([piece.actions for piece in self.pieces]),
            rewards=rewards,
            positions=positions,
            terminated=rollout.terminated,
            truncated=not rollout.terminated,
            task_return=float(rewards.sum()),
            entropy=measure(self.agent, frames, positions),
        )
        self.pieces = []
        self.episodes.append(episode)
        self.counts = (self.steps, place.rollouts % STRIDE, place.episode % STRIDE)
        return [episode]


@dataclass(frozen=True)
class RolloutCollection:
    """See `datasets.collecting.parts.Collection`. Contribution by contribution, agent by agent."""

    folder: Path
    agents: TrainedAgents
    contributions: Sequence[Contribution]
    seeds: Sequence[int]  # of the agents, while they act
    deterministic: bool
    workers: int | None

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def steps_done(self) -> int:
        return sum(
            self._on_disk(number, agent)[1]
            for number in range(len(self.contributions))
            for agent in range(len(self.seeds))
        )

    def act(self, measure: Measure, after: AfterActing, stop: Callable[[], bool]) -> None:
        spec = self.agents.spec
        memory, action_dim = self._memory_size, 0 if spec.chooses else spec.action_dim
        first = Place.first(memory, action_dim)
        for number, contribution in enumerate(self.contributions):
            unwritten, places = [], {}
            for agent in range(len(self.seeds)):
                parts, steps, rollouts, episodes = self._on_disk(number, agent)
                unwritten.append(UnwrittenEpisodes(agent, parts, steps))
                start = contribution.checkpoint * STRIDE
                places[agent, 0] = Place(
                    start + rollouts, start + episodes, first.actions, first.lstm
                )
            if any(entry.steps < contribution.steps for entry in unwritten):
                policies = self._policies(contribution)
                with contextlib.closing(self._started_workers(policies[0], places)) as workers:
                    self._act_with(policies, number, unwritten, workers, measure, after, stop)

    def parts(self) -> Iterator[tuple[Contribution, Path]]:
        for number, contribution in enumerate(self.contributions):
            for agent in range(len(self.seeds)):
                for part in range(self._on_disk(number, agent)[0]):
                    yield contribution, self._path(number, agent, part)

    @property
    def _memory_size(self) -> int:
        """Units of the agents' LSTM; 0 where they have none."""
        settings = self.agents.run.config["settings"]
        if settings.get("agent", "a3c") == "a3c":
            return int(settings["a3c"]["hidden_size"])
        return int(settings["ppo"]["memory_size"]) if settings["ppo"]["recurrent"] else 0

    @property
    def _local_steps(self) -> int:
        """Steps of a rollout: as in training of A3C, whose policies are drawn by rollouts."""
        settings = self.agents.run.config["settings"]
        of_ppo = settings.get("agent", "a3c") == "ppo"
        return PPO_STEPS if of_ppo else int(settings["a3c"]["local_steps"])

    def _act_with(
        self,
        policies: Sequence[Mapping[str, np.ndarray]],
        number: int,
        unwritten: Sequence[UnwrittenEpisodes],
        workers: RolloutWorkers,
        measure: Measure,
        after: AfterActing,
        stop: Callable[[], bool],
    ) -> None:
        """All that is missing of a contribution."""
        total = self.contributions[number].steps
        acting = {entry.agent for entry in unwritten if entry.steps < total}

        def start(agent: int) -> None:
            steps = min(self._local_steps, total - unwritten[agent].steps)
            workers.start(agent, 0, policies[agent], steps)

        for agent in acting:
            start(agent)
        while acting:
            agent, _, rollout = workers.next()
            entry, steps = unwritten[agent], len(rollout)
            done = entry.steps + steps == total
            finished = entry.add(rollout, workers.places[agent, 0], done, measure)
            if done:
                acting.remove(agent)
            else:
                start(agent)  # it acts while its part is written
            held = sum(len(episode.actions) for episode in entry.episodes)
            if finished and (done or held >= PART_STEPS):
                self._write(number, entry)
            after(steps, finished)
            if stop() and (acting or number < len(self.contributions) - 1):
                for other in unwritten:
                    self._write(number, other)
                raise Interrupted(self.steps_done() // len(self.seeds))

    def _started_workers(
        self, policy: Mapping[str, np.ndarray], places: Mapping[tuple[int, int], Place]
    ) -> RolloutWorkers:
        """One worker per agent; they are started anew for every contribution."""
        spec = self.agents.spec
        settings = RolloutSettings(
            spec,
            env_maker(spec.name, dict(self.agents.env_options)),
            self._local_steps,
            self._memory_size,
            {name: array.shape for name, array in policy.items()},
        )
        return RolloutWorkers(settings, self.seeds, 0 if self.workers == 0 else 1, RESTARTS, places)

    def _policies(self, contribution: Contribution) -> list[dict[str, np.ndarray]]:
        """The parameters of every agent; none where actions are random."""
        population = self.agents.parameters(contribution.checkpoint)
        if self.deterministic:
            population = with_certainty(population)
        return [
            {name: array[agent] for name, array in population.items()}
            for agent in range(len(self.seeds))
        ]

    def _write(self, number: int, entry: UnwrittenEpisodes) -> None:
        if entry.episodes:
            counts = {"counts": np.array(entry.counts, np.int64)}
            write_part(self._path(number, entry.agent, entry.part), entry.episodes, counts)
            entry.part, entry.episodes = entry.part + 1, []

    def _on_disk(self, number: int, agent: int) -> tuple[int, int, int, int]:
        """Parts of an agent on the disk; and its steps, rollouts and episodes up to there."""
        parts = 0
        while self._path(number, agent, parts).exists():
            parts += 1
        if parts == 0:
            return 0, 0, 0, 0
        counts = read_arrays(self._path(number, agent, parts - 1))[0]["counts"]
        steps, rollouts, episodes = (int(count) for count in counts)
        return parts, steps, rollouts, episodes

    def _path(self, number: int, agent: int, part: int) -> Path:
        return self.folder / f"part_{number:03d}_{agent:03d}_{part:06d}.safetensors"


def with_certainty(parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The policies [P, ...] with all probability on their likeliest actions; values are left as
    they are."""
    certain = dict(parameters)
    if is_ppo(parameters):
        if "log_std" in certain:
            return certain | {"log_std": np.full_like(certain["log_std"], -CERTAINTY)}
        last = max(name for name in certain if name.startswith("policy_weight_"))
        for name in (last, last.replace("weight", "bias")):
            certain[name] = certain[name] * np.float32(CERTAINTY)
        return certain
    for name in ("head_weight", "head_bias"):
        if name in certain:
            certain[name] = certain[name].copy()
            certain[name][..., :-1] *= np.float32(CERTAINTY)
    return certain
