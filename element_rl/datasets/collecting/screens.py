"""Collecting from on-policy runs: acting with A3C's policies on screens; episodes of frames.

Every agent has one worker, in a process of its own, that acts exactly as in training
(`acting.rollout_actor`). A part holds whole episodes of one agent with one checkpoint, so that the
part after it begins with a reset and nothing has to be re-enacted. Frames are deflated in it: they
are large, and alike.
"""

import contextlib
import dataclasses
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from element_rl.acting.rollout import Place, Rollout
from element_rl.acting.rollout_workers import RolloutWorkers
from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.parts import STRIDE, Share
from element_rl.datasets.collecting.screen_source import ScreenEntropies, ScreenSource
from element_rl.datasets.minari_files import EpisodeRecord
from element_rl.runs.watching import Interrupted, Progress, Watcher
from element_rl.storage.files import read_arrays, write_arrays

PART_STEPS = 2_000  # of an agent, about: what a kill may cost, and what is in memory (14 MB)
RESTARTS = 3  # how often in a row a worker that fails is started again
SURE = 1e6  # logits times this leave the likeliest action only


class ScreenEpisode(NamedTuple):
    """An episode that ended, or that the end of its share cut off."""

    frames: UInt8[np.ndarray, "M H W"]  # T + 1
    actions: Int[np.ndarray, " T"]
    rewards: Float[np.ndarray, " T"]
    positions: Float[np.ndarray, "M 2"]
    terminated: bool
    seed: int  # of its reset
    entropy: float


def acted(
    config: CollectConfig,
    source: ScreenSource,
    shares: Sequence[Share],
    seeds: Sequence[int],
    folder: Path,
    watch: Watcher,
    stop: Callable[[], bool],
) -> Iterator[EpisodeRecord]:
    """Makes the parts that are missing in the folder; then all episodes."""
    parts = ScreenParts(folder, shares, seeds, source, config.deterministic, config.workers)
    entropies = ScreenEntropies(source) if config.entropy else None
    done = at_start = parts.steps_done()
    returns: list[float] = []
    began, agents = time.perf_counter(), len(seeds)

    def after_rollout(steps: int, finished: float | None) -> None:
        nonlocal done
        done += steps
        if finished is not None:
            returns.append(finished)
        latest = {"extrinsic_return": float(np.mean(returns[-100:]))} if returns else {}
        rate = (done - at_start) / max(time.perf_counter() - began, 1e-9)
        watch(Progress(done // agents, config.steps or 0, rate, latest, agents))

    parts.record(entropies or (lambda frames: float("nan")), after_rollout, stop)
    return _records(source, parts)


def _records(source: ScreenSource, parts: "ScreenParts") -> Iterator[EpisodeRecord]:
    for share, agent, episode in parts.episodes():
        last = np.arange(len(episode.actions)) == len(episode.actions) - 1
        metadata = {
            "policy": share.checkpoint,
            "agent": agent,
            "agent_seed": source.seeds[agent],
            "seed": episode.seed,
            "entropy": episode.entropy if np.isfinite(episode.entropy) else None,
            "return": float(episode.rewards.sum()),
        }
        actions = episode.actions.astype(source.action_space.dtype)
        ends: tuple[Bool[np.ndarray, " T"], Bool[np.ndarray, " T"]] = (
            last & episode.terminated,
            last & (not episode.terminated),
        )
        yield EpisodeRecord(
            episode.frames,
            actions,
            episode.rewards,
            *ends,
            {"position": episode.positions},
            metadata,
        )


@dataclass
class Pile:
    """What one agent has done and is not on the disk yet."""

    part: int  # its number
    steps: int = 0  # with this checkpoint so far, those on the disk too
    pieces: list[Rollout] = field(default_factory=list)  # of the episode that is running
    episodes: list[ScreenEpisode] = field(default_factory=list)
    counts: tuple[int, int, int] = (
        0,
        0,
        0,
    )  # steps, rollouts and episodes with this checkpoint, as the last one ended

    @property
    def held(self) -> int:
        """Steps of its episodes."""
        return sum(len(episode.actions) for episode in self.episodes)

    def add(
        self, rollout: Rollout, place: Place, last: bool, measure: Callable[[np.ndarray], float]
    ) -> ScreenEpisode | None:
        """The episode that ended with the rollout, or is cut off there because it is the last;
        `place` is after it."""
        copies = {
            name: getattr(rollout, name).copy()
            for name in ("frames", "actions", "rewards", "positions")
        }
        # the arrays are the worker's, who will act again
        self.pieces.append(dataclasses.replace(rollout, **copies))
        self.steps += len(rollout)
        if not (rollout.ended or last):
            return None
        frames, positions = (
            np.concatenate(
                [getattr(piece, name)[index > 0 :] for index, piece in enumerate(self.pieces)]
            )
            for name in ("frames", "positions")
        )
        actions, rewards = (
            np.concatenate([getattr(piece, name) for piece in self.pieces])
            for name in ("actions", "rewards")
        )
        entropy = measure(frames)
        self.pieces = []
        episode = ScreenEpisode(
            frames, actions, rewards, positions, rollout.terminated, rollout.episode_seed, entropy
        )
        self.episodes.append(episode)
        self.counts = (self.steps, place.rollouts % STRIDE, place.episode % STRIDE)
        return episode


@dataclass(frozen=True)
class ScreenParts:
    """The parts of a collection in a folder: share by share, agent by agent."""

    folder: Path
    shares: Sequence[Share]
    seeds: Sequence[int]  # of the agents, while they act
    source: ScreenSource
    deterministic: bool
    workers: int | None

    def steps_done(self) -> int:
        """Steps on the disk, of all agents together."""
        return sum(
            self._last(share, agent)[1]
            for share in range(len(self.shares))
            for agent in range(len(self.seeds))
        )

    def record(
        self,
        measure: Callable[[np.ndarray], float],
        watch: Callable[[int, float | None], None],
        stop: Callable[[], bool],
    ) -> None:
        """Makes what is missing. `watch` is told of every rollout: its steps, and the return of an
        episode that ended."""
        first = Place.first(self.source.hidden_size)
        for number, share in enumerate(self.shares):
            piles, places = [], {}
            for agent in range(len(self.seeds)):
                parts, steps, rollouts, episodes = self._last(number, agent)
                piles.append(Pile(parts, steps))
                start = share.checkpoint * STRIDE
                places[agent, 0] = Place(
                    start + rollouts, start + episodes, first.actions, first.lstm
                )
            if any(pile.steps < share.steps for pile in piles):
                with contextlib.closing(self._crew(share, places)) as crew:
                    self._record_share(number, piles, crew, measure, watch, stop)

    def episodes(self) -> Iterator[tuple[Share, int, ScreenEpisode]]:
        """All episodes with their agents, when nothing is missing; a part at a time is in memory."""
        for number, share in enumerate(self.shares):
            for agent in range(len(self.seeds)):
                for part in range(self._last(number, agent)[0]):
                    for episode in _read_part(
                        self._path(number, agent, part), self.source.spec.frame_shape
                    ):
                        yield share, agent, episode

    def _record_share(
        self,
        number: int,
        piles: Sequence[Pile],
        crew: RolloutWorkers,
        measure: Callable[[np.ndarray], float],
        watch: Callable[[int, float | None], None],
        stop: Callable[[], bool],
    ) -> None:
        share = self.shares[number]
        acting = {agent for agent, pile in enumerate(piles) if pile.steps < share.steps}
        policies = self._policies(share)
        for agent in acting:
            crew.start(agent, 0, policies[agent], self._length(share, piles[agent]))
        while acting:
            agent, _, rollout = crew.next()
            pile, steps = piles[agent], len(rollout)
            done = pile.steps + steps == share.steps
            episode = pile.add(rollout, crew.places[agent, 0], done, measure)
            if done:
                acting.remove(agent)
            else:
                # it acts while its part is written
                crew.start(agent, 0, policies[agent], self._length(share, pile))
            if episode is not None and (done or pile.held >= PART_STEPS):
                self._write(number, agent, pile)
            watch(steps, None if episode is None else float(episode.rewards.sum()))
            if stop() and (acting or number < len(self.shares) - 1):
                for other, unwritten in enumerate(piles):
                    self._write(number, other, unwritten)
                raise Interrupted(self.steps_done() // len(self.seeds))

    def _crew(self, share: Share, places: Mapping[tuple[int, int], Place]) -> RolloutWorkers:
        """One worker per agent; they are started anew for every share."""
        settings = self.source.rollout_settings(self._policies(share)[0])
        return RolloutWorkers(settings, self.seeds, 0 if self.workers == 0 else 1, RESTARTS, places)

    def _policies(self, share: Share) -> list[dict[str, np.ndarray]]:
        """The parameters of every agent; none where actions are random."""
        if self.source.reward == "random":
            return [{} for _ in self.seeds]
        population = self.source.run.load_policy(share.checkpoint)
        population = sure_of(population) if self.deterministic else population
        return [
            {name: array[agent] for name, array in population.items()}
            for agent in range(len(self.seeds))
        ]

    def _length(self, share: Share, pile: Pile) -> int:
        """Of the next rollout, at most."""
        return min(self.source.local_steps, share.steps - pile.steps)

    def _write(self, number: int, agent: int, pile: Pile) -> None:
        if pile.episodes:
            _write_part(self._path(number, agent, pile.part), pile.episodes, pile.counts)
            pile.part, pile.episodes = pile.part + 1, []

    def _last(self, number: int, agent: int) -> tuple[int, int, int, int]:
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


def sure_of(parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The policies [P, ...] with all probability on their likeliest actions; values are left as
    they are."""
    sure = dict(parameters)
    for name in ("head_weight", "head_bias"):
        if name in sure:
            sure[name] = sure[name].copy()
            sure[name][..., :-1] *= np.float32(SURE)
    return sure


def _write_part(path: Path, episodes: Sequence[ScreenEpisode], counts: Sequence[int]) -> None:
    joined = {
        name: [getattr(episode, name) for episode in episodes] for name in ScreenEpisode._fields
    }
    deflated = zlib.compress(b"".join(frames.tobytes() for frames in joined.pop("frames")), 1)
    arrays: dict[str, Any] = {
        name: np.array(joined.pop(name)) for name in ("terminated", "seed", "entropy")
    }
    arrays |= {name: np.concatenate(values) for name, values in joined.items()}
    arrays["lengths"] = np.array([len(episode.actions) for episode in episodes], np.int64)
    arrays |= {"frames": np.frombuffer(deflated, np.uint8), "counts": np.array(counts, np.int64)}
    write_arrays(path, arrays)


def _read_part(path: Path, frame_shape: tuple[int, int]) -> Iterator[ScreenEpisode]:
    arrays, _ = read_arrays(path)
    frames = np.frombuffer(zlib.decompress(arrays["frames"].tobytes()), np.uint8).reshape(
        -1, *frame_shape
    )
    step = 0
    for index, length in enumerate(arrays["lengths"].tolist()):
        row = step + index  # an episode has a frame more than steps
        yield ScreenEpisode(
            frames[row : row + length + 1],
            arrays["actions"][step : step + length],
            arrays["rewards"][step : step + length],
            arrays["positions"][row : row + length + 1],
            bool(arrays["terminated"][index]),
            int(arrays["seed"][index]),
            float(arrays["entropy"][index]),
        )
        step += length
