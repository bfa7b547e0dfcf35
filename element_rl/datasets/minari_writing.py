"""Writing Minari datasets: whole, or not at all.

The layout is that of Minari 0.5 (HDF5), written with h5py episode by episode, so that a dataset of any size needs the memory of
one episode. Images are stored as they are, compressed without loss; Minari's own collector makes JPEGs of them unless told not
to. The folder is made under a name with a leading dot, put on the disk, and renamed.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Shaped

from element_rl.datasets.minari_folders import (
    HDF5,
    METADATA,
    DatasetError,
    dataset_folder,
    require_minari,
    write_namespaces,
)
from element_rl.files import removing_on_failure, sync, to_json


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode of T steps in the environment's own units."""

    observations: Shaped[np.ndarray, "T_plus_1 ..."]
    actions: Shaped[np.ndarray, "T ..."]
    rewards: Float[np.ndarray, " T"]
    terminations: Bool[np.ndarray, " T"]
    truncations: Bool[np.ndarray, " T"]
    infos: Mapping[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)  # such as position [T + 1, C]
    metadata: Mapping[str, Any] = field(default_factory=dict)  # numbers and text; None is left out


def write_dataset(
    name: str,
    episodes: Iterable[EpisodeRecord],
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    env_spec: gymnasium.envs.registration.EnvSpec | None = None,
    about: Mapping[str, Any] | None = None,
    root: Path | None = None,
) -> Path:
    """Writes a dataset of the Minari id `name` under `root` (Minari's own folder by default); its folder.

    `about` is added to the metadata of the dataset: algorithm_name, author (a list), description, requirements, and anything
    else that JSON can hold.
    """
    final = new_dataset_folder(name, root)
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    with removing_on_failure(temporary, final):
        build_dataset(temporary, name, episodes, observation_space, action_space, env_spec, about)
        publish(temporary, final, root)
    return final


def new_dataset_folder(name: str, root: Path | None) -> Path:
    """The folder for a dataset that does not exist yet."""
    require_minari()
    final = dataset_folder(name, root)
    if final.exists():
        raise DatasetError(
            f"The dataset {name} exists already in {final}: choose another name or version, or remove it first."
        )
    return final


def build_dataset(
    folder: Path,
    name: str,
    episodes: Iterable[EpisodeRecord],
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    env_spec: gymnasium.envs.registration.EnvSpec | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Fills `folder` with a dataset, for use where something around it is atomic."""
    import minari
    from minari.serialization import serialize_space

    data = folder / "data"
    data.mkdir(parents=True)
    total_episodes, total_steps = _write_episodes(data / HDF5, episodes)
    if total_episodes == 0:
        raise DatasetError(f"There is no finished episode to write into the dataset {name}: record more steps.")
    metadata: dict[str, Any] = {
        **to_json(about or {}),
        "dataset_id": name,
        "total_episodes": total_episodes,
        "total_steps": total_steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": serialize_space(observation_space),
        "action_space": serialize_space(action_space),
        "dataset_size": round((data / HDF5).stat().st_size / 1e6, 1),
        "minari_version": minari.__version__,
    }
    with contextlib.suppress(
        TypeError, ValueError, AttributeError
    ):  # an environment JSON cannot describe is left unnamed
        metadata["env_spec"] = env_spec.to_json() if env_spec is not None else None
    metadata = {name: value for name, value in metadata.items() if value is not None}
    (data / METADATA).write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for entry in (*data.iterdir(), data, folder):
        sync(entry)


def publish(folder: Path, final: Path, root: Path | None) -> None:
    """Gives a finished folder its final name."""
    write_namespaces(final, root)
    if final.exists():  # on Linux a rename would replace an empty folder
        raise DatasetError(f"The dataset {final} was made by another process meanwhile: choose another name.")
    os.rename(folder, final)
    sync(final.parent)


def _write_episodes(path: Path, episodes: Iterable[EpisodeRecord]) -> tuple[int, int]:
    import h5py

    total_episodes = total_steps = 0
    with h5py.File(path, "w", track_order=True) as file:
        for episode in _checked(episodes):
            group = file.create_group(f"episode_{total_episodes}")
            steps = len(episode.rewards)
            for name in ("observations", "actions", "rewards", "terminations", "truncations"):
                _write_array(group, name, getattr(episode, name))
            infos = group.create_group("infos")  # Minari's EpisodeData wants one, be it empty
            for name, array in episode.infos.items():
                _write_array(infos, name, array)
            attributes = {**episode.metadata, "id": total_episodes, "total_steps": steps}
            for name, value in attributes.items():
                if value is not None:
                    group.attrs[name] = value
            total_episodes += 1
            total_steps += steps
    return total_episodes, total_steps


def _checked(episodes: Iterable[EpisodeRecord]) -> Iterator[EpisodeRecord]:
    for episode in episodes:
        steps = len(episode.rewards)
        sizes = (len(episode.observations) - 1, *map(len, (episode.actions, episode.terminations, episode.truncations)))
        if steps == 0 or any(size != steps for size in sizes):
            raise ValueError(f"An episode of {steps} rewards has arrays for {sizes} steps.")
        yield episode


def _write_array(group: Any, name: str, array: np.ndarray) -> None:
    if array.dtype == np.uint8 and array.ndim > 2:  # images, a chunk per frame: frames are read one by one as well
        chunks = (1, *array.shape[1:])
        group.create_dataset(name, data=array, chunks=chunks, compression="gzip", compression_opts=4, shuffle=False)
    else:
        group.create_dataset(name, data=array)
