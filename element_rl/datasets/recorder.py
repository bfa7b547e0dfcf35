"""Recording a Gymnasium vector environment: a dataset of whole episodes, whatever its way of
starting new ones.

    # envs: any gymnasium.vector.VectorEnv
    with VectorRecorder(envs, "pendulum/random-v0") as recorder:
        recorder.reset(seed=0)
        for _ in range(10_000):
            recorder.step(envs.action_space.sample())
        recorder.finish()

Vector environments begin new episodes in one of three ways (`metadata["autoreset_mode"]`), and none
may become a step:

    NEXT_STEP   the step after an end takes no action: its observation is the first of the next
                episode, its reward nobody's
    SAME_STEP   the step that ends an episode gives the first observation of the next; the last
                one is infos["final_obs"]
    DISABLED    nothing begins until `reset` is called, with options={"reset_mask": ended} for
                those that ended

Episodes go to the disk as they end. What is still running at `finish`, or when `reset` cuts it off,
is truncated there. The dataset has its name when it is finished; without `finish`, nothing is left.
"""

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from element_rl.datasets.minari_folders import dataset_folder, require_minari
from element_rl.datasets.minari_writing import (
    DatasetWriter,
    EpisodeRecord,
    publish,
    refuse_existing,
    temporary_folder,
)
from element_rl.storage.files import removing_on_failure

Position = Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]
"""``position(observation, info) -> [C]`` of one environment"""


@dataclass
class _Episode:
    """What one environment has done since its episode began."""

    observations: list[np.ndarray]
    positions: list[np.ndarray]
    seed: int | None = None
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    ended: bool = False  # a new one has to begin before the next step


class VectorRecorder(gymnasium.vector.VectorWrapper):
    """Steps as the environments within do, and records. `position` is called with an observation
    and its info."""

    def __init__(
        self,
        envs: gymnasium.vector.VectorEnv,
        name: str,
        root: Path | None = None,
        position: Position | None = None,
        env_spec: gymnasium.envs.registration.EnvSpec | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(envs)
        require_minari()
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._root, self._position = root, position
        self._final = dataset_folder(name, root)
        refuse_existing(name, self._final)
        self._episodes: list[_Episode | None] = [None] * self.num_envs
        self._temporary = temporary_folder(self._final)
        with removing_on_failure(self._temporary, self._final):
            shutil.rmtree(self._temporary, ignore_errors=True)
            spaces = (self.single_observation_space, self.single_action_space)
            env_spec = env_spec or _spec_of(envs)
            self._writer = DatasetWriter(self._temporary, name, *spaces, env_spec, about)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins episodes: in all environments, or in those of options["reset_mask"]."""
        # Before the reset: Gymnasium takes the mask out of the options.
        mask = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        observations, infos = self.env.reset(seed=seed, options=options)
        seeds = (
            seed
            if isinstance(seed, list)
            else [None if seed is None else seed + i for i in range(self.num_envs)]
        )
        for index in np.flatnonzero(mask).tolist():
            self._write(index)
            self._begin(index, observations[index], infos, seeds[index])
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A step of every environment that has an episode to step in."""
        taken = np.array(actions)  # the caller may change it after the step
        stale = [
            index
            for index, episode in enumerate(self._episodes)
            if episode is None or episode.ended
        ]
        if stale and (self.mode != AutoresetMode.NEXT_STEP or None in self._episodes):
            raise ValueError(
                f"Environment {stale[0]} has no running episode: call reset before stepping it."
            )
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        for index in range(self.num_envs):
            if index in stale:
                self._begin(index, observations[index], infos)
                continue
            ended = bool(terminated[index] or truncated[index])
            inside = self.mode == AutoresetMode.SAME_STEP and ended
            observation = infos["final_obs"][index] if inside else observations[index]
            episode = self._episodes[index]
            assert episode is not None  # refused above
            episode.actions.append(taken[index])
            episode.rewards.append(float(rewards[index]))
            episode.observations.append(np.array(observation))
            info = infos["final_info"] if inside else infos
            episode.positions += self._positions(index, observation, info)
            if ended:
                episode.terminated, episode.ended = bool(terminated[index]), True
                self._write(index)
            if inside:
                self._begin(index, observations[index], infos)
        return observations, rewards, terminated, truncated, infos

    def finish(self) -> Path:
        """Gives the dataset its name; its folder."""
        with removing_on_failure(self._temporary, self._final):
            for index in range(self.num_envs):
                self._write(index)
            self._writer.finish()
            publish(self._temporary, self._final, self._root)
        return self._final

    def close(self, **options: Any) -> None:
        """Closes the environments; what was not finished is removed."""
        with contextlib.suppress(OSError):  # it is removed anyway
            self._writer.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        super().close(**options)

    def __enter__(self) -> "VectorRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self, index: int, observation: np.ndarray, infos: Mapping[str, Any], seed: int | None = None
    ) -> None:
        positions = self._positions(index, observation, infos)
        reset_seed = None if seed is None else int(seed)
        self._episodes[index] = _Episode([np.array(observation)], positions, reset_seed)

    def _write(self, index: int) -> None:
        """Writes an environment's episode, if it has taken a step and is not written yet."""
        episode = self._episodes[index]
        if episode is None or not episode.actions:
            return
        rewards = np.array(episode.rewards, np.float32)
        record = EpisodeRecord.ended(
            np.stack(episode.observations),
            np.stack(episode.actions),
            rewards,
            episode.terminated,
            not episode.terminated,
            {"position": np.stack(episode.positions)} if episode.positions else {},
            {"environment": index, "seed": episode.seed, "return": float(rewards.sum())},
        )
        self._writer.add(record)
        episode.observations, episode.positions, episode.actions, episode.rewards = [], [], [], []

    def _positions(
        self, index: int, observation: np.ndarray, infos: Mapping[str, Any]
    ) -> list[np.ndarray]:
        if self._position is None:
            return []
        return [np.array(self._position(observation, _info_of(infos, index)), np.float32)]


def _info_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The info of one environment out of those of all."""
    info = {}
    for name, values in infos.items():
        if f"_{name}" in infos and infos[f"_{name}"][index]:
            info[name] = _info_of(values, index) if isinstance(values, Mapping) else values[index]
    return info


def _spec_of(envs: gymnasium.vector.VectorEnv) -> gymnasium.envs.registration.EnvSpec | None:
    """What Gymnasium knows of one of the environments."""
    return envs.get_attr("spec")[0] if hasattr(envs, "get_attr") else envs.spec
