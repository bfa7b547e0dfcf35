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

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, Shaped

from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_folders import (
    AGAIN,
    METADATA,
    DatasetError,
    data_folder,
    known_datasets,
    require_minari,
)
from element_rl.datasets.minari_rows import Rows, read_rows
from element_rl.datasets.minari_writing import EpisodeRecord, write_dataset
from element_rl.storage.files import read_json_object

__all__ = [
    "Dataset",
    "DatasetError",
    "EpisodeRecord",
    "Recording",
    "known_datasets",
    "read_dataset",
    "read_recording",
    "write_dataset",
]

_ROWS_PER_CHECK = 100_000


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory, ready to learn from."""

    name: str  # Minari id
    episodes: Episodes  # actions on the policy's scale: [-1, 1], or the number of a choice
    env: str | None  # Gymnasium id of its environment, where the dataset names one
    env_options: Mapping[str, Any]  # for `envs.make.make_env`
    observation_space: gymnasium.Space
    action_space: gymnasium.Space


@dataclass(frozen=True)
class Recording:
    """A dataset in memory as it was recorded: actions in the environment's own units. Rows as in
    `Episodes`."""

    name: str
    observation: Shaped[np.ndarray, "R ..."]
    action: Shaped[np.ndarray, "R ..."]
    reward: Float[np.ndarray, " R"]
    terminated: Bool[np.ndarray, " R"]
    truncated: Bool[np.ndarray, " R"]
    position: Float32[np.ndarray, "R C"] | None
    lengths: Int64[np.ndarray, " E"]
    metadata: tuple[Mapping[str, Any], ...]
    about: Mapping[str, Any]  # metadata of the dataset
    observation_space: gymnasium.Space
    action_space: gymnasium.Space


def read_dataset(name: str | Path, root: Path | None = None) -> Dataset:
    """A Minari dataset by its id (in `root`; Minari's own folder by default) or by its folder."""
    recording = read_recording(name, root)
    env, env_options = _environment(recording.about)
    observation = recording.observation
    if observation.ndim == 1:
        observation = observation[:, None]
    episodes = Episodes(
        observation=observation,
        action=_policy_scale(recording.action, recording.action_space, recording.name),
        reward=recording.reward.astype(np.float32, copy=False),
        terminated=recording.terminated,
        truncated=recording.truncated,
        position=recording.position,
        lengths=recording.lengths,
        metadata=recording.metadata,
    )
    return Dataset(
        recording.name,
        episodes,
        env,
        env_options,
        recording.observation_space,
        recording.action_space,
    )


def read_recording(name: str | Path, root: Path | None = None) -> Recording:
    """A Minari dataset as it was recorded; images stay uint8, all other observations become
    float32."""
    require_minari()
    folder = data_folder(name, root)
    about = read_json_object(folder / METADATA, AGAIN)
    label = str(about.get("dataset_id") or name)
    storage = _storage(folder, label, about)
    _refuse_spaces(label, storage.observation_space, storage.action_space)
    try:
        lengths, rows, metadata = read_rows(storage, folder, label, int(about["total_episodes"]))
    except DatasetError:
        raise
    # HDF5, Arrow and Pillow each have errors of their own for damaged files
    except Exception as error:
        raise DatasetError(
            f"The dataset {label} in {folder} is damaged ({_reason(error)}): {AGAIN}."
        ) from error
    if not len(lengths):
        raise DatasetError(f"The dataset {label} holds no episode: {AGAIN}.")
    _refuse_non_finite(label, rows, lengths)
    return Recording(
        label,
        **rows,
        lengths=lengths,
        metadata=metadata,
        about=about,
        observation_space=storage.observation_space,
        action_space=storage.action_space,
    )


def _storage(folder: Path, label: str, about: Mapping[str, Any]) -> Any:
    """Minari's object for the files of a dataset, which knows its spaces."""
    from minari.dataset.minari_storage import MinariStorage

    try:
        return MinariStorage.read(folder)
    except ImportError as error:
        reader = (
            f"pip install 'minari[{'hdf5' if about.get('data_format') == 'hdf5' else 'arrow'}]'"
        )
        raise DatasetError(
            f"What reads the files of the dataset {label} is not installed: {reader}."
        ) from error
    except Exception as error:
        raise DatasetError(
            f"The dataset {label} in {folder} is damaged ({_reason(error)}): {AGAIN}."
        ) from error


def _refuse_spaces(
    label: str, observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> None:
    spaces = gymnasium.spaces
    if not isinstance(observation_space, spaces.Box):
        raise DatasetError(
            f"The dataset {label} observes {observation_space}, but a Box (a vector or an image) "
            "is needed: flatten its "
            "observations first, or choose another dataset."
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
            "so that its actions cannot be "
            "scaled: choose another dataset, or write its true bounds into its metadata."
        )


def _refuse_non_finite(label: str, rows: Rows, lengths: Int64[np.ndarray, " E"]) -> None:
    for name in ("observation", "action", "reward"):
        array = rows[name]
        for first in range(0, len(array), _ROWS_PER_CHECK) if array.dtype.kind == "f" else ():
            finite = np.isfinite(array[first : first + _ROWS_PER_CHECK])
            if not finite.all():
                row = first + int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
                episode = int(np.searchsorted(np.cumsum(lengths + 1), row, side="right"))
                raise DatasetError(
                    f"Episode {episode} of the dataset {label} has a {name} that is not a finite "
                    "number "
                    f"({np.array2string(array[row], threshold=8)}): remove the episode, or {AGAIN}."
                )
    if rows["position"] is not None and not np.isfinite(rows["position"]).all():
        rows["position"] = None


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


def _environment(about: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The environment a dataset names, and the options that `make_env` needs to make that same one."""
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


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].rstrip(".")
