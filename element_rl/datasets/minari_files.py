"""Reading Minari datasets, ours and others', into `Episodes`.

Box observations (vectors or images) and Box or Discrete actions are read; every other dataset is
refused in one sentence. Actions are put on the policy's scale: [-1, 1] between the bounds of a Box
(what lies outside is clipped to them, as environments do), 0 to n - 1 of a Discrete. An episode
that neither ended nor ran out of time in the file is taken as one whose recording stopped:
truncated. Episodes without a step are left out.

Whole arrays are read from HDF5, one episode after the other, straight to their place: what it costs
is the arrays themselves. Where frames are JPEGs, or the files Arrow or Parquet, Minari decodes
them.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_folders import (
    AGAIN,
    METADATA,
    DatasetError,
    data_folder,
    known_datasets,
    require_minari,
)
from element_rl.datasets.minari_rows import read_episodes
from element_rl.datasets.minari_writing import EpisodeRecord, write_dataset
from element_rl.storage.files import read_json_object

__all__ = [
    "Dataset",
    "DatasetError",
    "EpisodeRecord",
    "environment_of",
    "known_datasets",
    "read_dataset",
    "read_recording",
    "write_dataset",
]

_ROWS_PER_CHECK = 100_000


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory. The environment it names is `env` (a Gymnasium id, or None) with
    `env_options` for `envs.robots.make_env`."""

    name: str  # Minari id
    episodes: Episodes
    about: Mapping[str, Any]  # metadata of the dataset
    observation_space: gymnasium.Space
    action_space: gymnasium.Space

    @property
    def env(self) -> str | None:
        return environment_of(self.about)[0]

    @property
    def env_options(self) -> Mapping[str, Any]:
        return environment_of(self.about)[1]


def read_dataset(name: str | Path, root: Path | None = None) -> Dataset:
    """A Minari dataset by its id (in `root`; Minari's own folder by default) or by its folder,
    ready to learn from: actions on the policy's scale, [-1, 1], or the number of a choice."""
    recording = read_recording(name, root)
    episodes = recording.episodes
    observation = episodes.observation
    episodes = dataclasses.replace(
        episodes,
        observation=observation[:, None] if observation.ndim == 1 else observation,
        action=_policy_scale(episodes.action, recording.action_space, recording.name),
    )
    return dataclasses.replace(recording, episodes=episodes)


def read_recording(name: str | Path, root: Path | None = None) -> Dataset:
    """A Minari dataset as it was recorded: actions in the environment's own units. Images stay
    uint8, all other observations become float32."""
    require_minari()
    folder = data_folder(name, root)
    about = read_json_object(folder / METADATA, AGAIN)
    label = str(about.get("dataset_id") or name)
    storage = _storage(folder, label, about)
    spaces = (storage.observation_space, storage.action_space)
    _refuse_spaces(label, *spaces)
    try:
        episodes = read_episodes(storage, folder, label, int(about["total_episodes"]))
    except DatasetError:
        raise
    # HDF5, Arrow and Pillow each have errors of their own for damaged files
    except Exception as error:
        raise _damaged(label, folder, error) from error
    if not len(episodes.lengths):
        raise DatasetError(f"The dataset {label} holds no episode: {AGAIN}.")
    _refuse_non_finite(label, episodes)
    if episodes.position is not None and not np.isfinite(episodes.position).all():
        episodes = dataclasses.replace(episodes, position=None)
    return Dataset(label, episodes, about, *spaces)


def _storage(folder: Path, label: str, about: Mapping[str, Any]) -> Any:
    """Minari's object for the files of a dataset, which knows its spaces."""
    from minari.dataset.minari_storage import MinariStorage

    try:
        return MinariStorage.read(folder)
    except ImportError as error:
        extra = "hdf5" if about.get("data_format") == "hdf5" else "arrow"
        raise DatasetError(
            f"What reads the files of the dataset {label} is not installed: pip install "
            f"'minari[{extra}]'."
        ) from error
    except Exception as error:
        raise _damaged(label, folder, error) from error


def _refuse_spaces(
    label: str, observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> None:
    spaces = gymnasium.spaces
    if not isinstance(observation_space, spaces.Box):
        raise DatasetError(
            f"The dataset {label} observes {observation_space}, but a Box (a vector or an image) "
            "is needed: flatten its observations first, or choose another dataset."
        )
    if isinstance(action_space, spaces.Discrete):
        return
    if not isinstance(action_space, spaces.Box):
        raise DatasetError(
            f"The dataset {label} acts in {action_space}, but a Box or a Discrete is needed: "
            "choose another dataset."
        )
    if not action_space.is_bounded() or not (action_space.high > action_space.low).all():
        raise DatasetError(
            f"The dataset {label} acts in {action_space}, whose bounds are not finite and apart, "
            "so that its actions cannot be scaled: choose another dataset, or write its true "
            "bounds into its metadata."
        )


def _refuse_non_finite(label: str, episodes: Episodes) -> None:
    for name in ("observation", "action", "reward"):
        array = getattr(episodes, name)
        for first in range(0, len(array), _ROWS_PER_CHECK) if array.dtype.kind == "f" else ():
            finite = np.isfinite(array[first : first + _ROWS_PER_CHECK])
            if not finite.all():
                row = first + int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
                episode = int(np.searchsorted(np.cumsum(episodes.lengths + 1), row, side="right"))
                raise DatasetError(
                    f"Episode {episode} of the dataset {label} has a {name} that is not a finite "
                    f"number ({np.array2string(array[row], threshold=8)}): remove the episode, or "
                    f"{AGAIN}."
                )


def _policy_scale(action: np.ndarray, space: gymnasium.Space, label: str) -> np.ndarray:
    """Actions in the environment's units on the policy's scale."""
    if isinstance(space, gymnasium.spaces.Discrete):
        choice = action - int(space.start)
        outside = (choice < 0) | (choice >= space.n)
        if outside.any():
            raise DatasetError(
                f"The dataset {label} has the action {action[outside][0]}, which is not in "
                f"{space}: {AGAIN}."
            )
        return choice.astype(np.int32)
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = (bound.astype(np.float64).reshape(1, -1) for bound in (space.low, space.high))
    flat = action.reshape(len(action), -1)
    scaled = np.empty(flat.shape, np.float32)
    for first in range(0, len(flat), _ROWS_PER_CHECK):
        part = slice(first, first + _ROWS_PER_CHECK)
        scaled[part] = np.clip((flat[part] - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
    return scaled


def environment_of(about: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The environment that a dataset names, and the options with which `make_env` makes it."""
    text = about.get("env_spec") or about.get("eval_env_spec")
    try:
        spec = json.loads(text or "")
        env, options, limit = (
            str(spec["id"]),
            dict(spec.get("kwargs") or {}),
            spec.get("max_episode_steps"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, {}
    if env.rpartition(":")[2] == "Ant-v5":
        # Gymnasium's default is not that of `make_env`
        options.setdefault("include_cfrc_ext_in_observation", True)
    registered = gymnasium.registry.get(env)
    if limit is not None and (registered is None or registered.max_episode_steps != limit):
        options["max_episode_steps"] = int(limit)
    return env, options


def _damaged(label: str, folder: Path, error: Exception) -> DatasetError:
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].rstrip(".")
    return DatasetError(f"The dataset {label} in {folder} is damaged ({reason}): {AGAIN}.")
