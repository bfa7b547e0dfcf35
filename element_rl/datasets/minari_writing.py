"""Writing Minari datasets: whole, or not at all.

The layout is that of Minari 0.5 (HDF5), written with h5py episode by episode, so that a dataset of
any size needs the memory of one episode. Images are stored as they are, compressed without loss;
Minari's own collector makes JPEGs of them unless told not to. The folder is made under a name with
a leading dot, put on the disk, and renamed.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
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
from element_rl.storage.files import removing_on_failure, sync, to_json

IMAGE_CHUNK = 115_000  # bytes of images that are compressed together, at most: 16 frames of 84 × 84


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode of T steps in the environment's own units."""

    observations: Shaped[np.ndarray, "T_plus_1 ..."]
    actions: Shaped[np.ndarray, "T ..."]
    rewards: Float[np.ndarray, " T"]
    terminations: Bool[np.ndarray, " T"]
    truncations: Bool[np.ndarray, " T"]
    # such as position [T + 1, C]
    infos: Mapping[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # numbers and text; None is left out

    @staticmethod
    def ended(
        observations: Shaped[np.ndarray, "T_plus_1 ..."],
        actions: Shaped[np.ndarray, "T ..."],
        rewards: Float[np.ndarray, " T"],
        terminated: bool,
        truncated: bool,
        infos: Mapping[str, Shaped[np.ndarray, "..."]],
        metadata: Mapping[str, Any],
    ) -> "EpisodeRecord":
        """An episode by how its last step ended it."""
        last = np.arange(len(rewards)) == len(rewards) - 1
        ends = (last & terminated, last & truncated)
        return EpisodeRecord(observations, actions, rewards, *ends, infos, metadata)


def write_dataset(
    name: str,
    episodes: Iterable[EpisodeRecord],
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    env_spec: gymnasium.envs.registration.EnvSpec | None = None,
    about: Mapping[str, Any] | None = None,
    root: Path | None = None,
) -> Path:
    """Writes a dataset of the Minari id `name` under `root` (Minari's own folder by default); its
    folder.

    `about` is added to the metadata of the dataset: algorithm_name, author (a list), description,
    requirements, and anything else that JSON can hold.
    """
    require_minari()
    final = dataset_folder(name, root)
    refuse_existing(name, final)
    temporary = temporary_folder(final)
    with removing_on_failure(temporary, final):
        writer = DatasetWriter(temporary, name, observation_space, action_space, env_spec, about)
        writer.write(episodes)
        publish(temporary, final, root)
    return final


def refuse_existing(name: str, final: Path) -> None:
    """A dataset is never overwritten."""
    if final.exists():
        raise DatasetError(
            f"The dataset {name} exists already in {final}: choose another name or version, or "
            "remove it first."
        )


def temporary_folder(final: Path) -> Path:
    """Where a process may build a dataset; Minari passes over it."""
    return final.with_name(f".{final.name}.tmp-{os.getpid()}")


class DatasetWriter:
    """A dataset under construction in a folder. What is around it has to make it atomic."""

    def __init__(
        self,
        folder: Path,
        name: str,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        env_spec: gymnasium.envs.registration.EnvSpec | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        import h5py

        self.folder, self.name, self.about, self.env_spec = folder, name, about or {}, env_spec
        self.spaces = {"observation_space": observation_space, "action_space": action_space}
        self.episodes = self.steps = 0
        (folder / "data").mkdir(parents=True)
        self._bytes = ForgivingFile(folder / "data" / HDF5)
        self._file = h5py.File(self._bytes, "w", track_order=True)

    def write(self, episodes: Iterable[EpisodeRecord]) -> None:
        """The whole dataset."""
        try:
            for episode in episodes:
                self.add(episode)
        finally:
            self.close()
        self.finish()

    def add(self, episode: EpisodeRecord) -> None:
        """Adds an episode after the others."""
        steps = len(episode.rewards)
        sizes = (
            len(episode.observations) - 1,
            *map(len, (episode.actions, episode.terminations, episode.truncations)),
        )
        if steps == 0 or any(size != steps for size in sizes):
            raise ValueError(f"An episode of {steps} rewards has arrays for {sizes} steps.")
        group = self._file.create_group(f"episode_{self.episodes}")
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            _write_array(group, name, getattr(episode, name))
        infos = group.create_group("infos")  # Minari's EpisodeData wants one, be it empty
        for name, array in episode.infos.items():
            _write_array(infos, name, array)
        for name, value in {**episode.metadata, "id": self.episodes, "total_steps": steps}.items():
            if value is not None:
                group.attrs[name] = value
        self.episodes += 1
        self.steps += steps
        if self._bytes.error is not None:
            raise self._bytes.error

    def close(self) -> None:
        """Completes the file of the episodes; OSError if some of it could not be written."""
        self._file.close()
        self._bytes.close()
        if self._bytes.error is not None:
            raise self._bytes.error

    def finish(self) -> None:
        """Makes a dataset of the episodes, and puts it on the disk."""
        import minari
        from minari.serialization import serialize_space

        self.close()
        if self.episodes == 0:
            raise DatasetError(
                f"There is no finished episode to write into the dataset {self.name}: record more "
                "steps."
            )
        data = self.folder / "data"
        metadata: dict[str, Any] = {
            **to_json(self.about),
            "dataset_id": self.name,
            "total_episodes": self.episodes,
            "total_steps": self.steps,
            "data_format": "hdf5",
            "jpeg_encoding": False,
            **{name: serialize_space(space) for name, space in self.spaces.items()},
            "dataset_size": round((data / HDF5).stat().st_size / 1e6, 1),
            "minari_version": minari.__version__,
        }
        # An environment that JSON cannot describe is left unnamed.
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            metadata["env_spec"] = self.env_spec.to_json() if self.env_spec is not None else None
        metadata = {key: value for key, value in metadata.items() if value is not None}
        (data / METADATA).write_text(
            json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        for entry in (*data.iterdir(), data, self.folder):
            sync(entry)


class ForgivingFile:
    """A file that remembers an error instead of raising it.

    HDF5 cannot let go of a file that it cannot write to, as on a full disk: every object of it
    complains, and the process may crash at the end. So HDF5 is left in the belief that all is well,
    and who writes looks at `error`.
    """

    def __init__(self, path: Path) -> None:
        self.error: OSError | None = None
        self._file = path.open("w+b")

    def write(self, data: Any) -> int:
        self._try(lambda: self._file.write(data))
        return len(data)

    def read(self, size: int = -1) -> bytes:
        return bytes(self._try(lambda: self._file.read(size)) or b"")

    def readinto(self, buffer: Any) -> int:
        return int(self._try(lambda: self._file.readinto(buffer)) or 0)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._try(lambda: self._file.seek(offset, whence)) or 0)

    def tell(self) -> int:
        return int(self._try(self._file.tell) or 0)

    def truncate(self, size: int | None = None) -> int:
        return int(self._try(lambda: self._file.truncate(size)) or 0)

    def flush(self) -> None:
        self._try(self._file.flush)

    def close(self) -> None:
        self._try(self._file.close)

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as error:
            self.error = self.error or error


def publish(folder: Path, final: Path, root: Path | None) -> None:
    """Gives a finished folder its final name."""
    write_namespaces(final, root)
    if final.exists():  # on Linux a rename would replace an empty folder
        raise DatasetError(
            f"The dataset {final} was made by another process meanwhile: choose another name."
        )
    os.rename(folder, final)
    sync(final.parent)


def _write_array(group: Any, name: str, array: np.ndarray) -> None:
    if array.dtype == np.uint8 and array.ndim > 2:  # images
        # Frames that follow each other are alike: of Mario's, together 300 bytes are left of 7,056,
        # of single ones 900.
        frames = max(1, min(len(array), IMAGE_CHUNK // max(array[0].nbytes, 1)))
        chunks = (frames, *array.shape[1:])
        group.create_dataset(
            name, data=array, chunks=chunks, compression="gzip", compression_opts=4, shuffle=False
        )
    else:
        group.create_dataset(name, data=array)
