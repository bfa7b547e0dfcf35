"""The arrays of a Minari dataset, read episode by episode straight to their place among the rows of
`Episodes`."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_folders import AGAIN, HDF5, DatasetError


class StoredEpisodes(NamedTuple):
    """The episodes of open files: how long they are, what is said of them, and their arrays."""

    lengths: list[int]
    metadata: Sequence[Mapping[str, Any]]
    # of the episode of this index; then the array of this name
    arrays: Callable[[int], Callable[[str], np.ndarray]]


def read_episodes(storage: Any, folder: Path, label: str, count: int) -> Episodes:
    """All episodes that have a step, actions in the environment's own units."""
    from minari.dataset.minari_storage import is_image_space

    spaces = (storage.observation_space, storage.action_space)
    decoded = storage.jpeg_encoding and any(is_image_space(space) for space in spaces)
    plain = storage.FORMAT == "hdf5" and not decoded
    opened = _hdf5_episodes(folder / HDF5, count) if plain else _storage_episodes(storage, count)
    with opened as stored:
        kept = [index for index, length in enumerate(stored.lengths) if length]
        lengths = np.array([stored.lengths[index] for index in kept], np.int64)
        rows = _empty_rows(int(np.sum(lengths + 1)), *spaces)
        start = 0
        for number, index in enumerate(kept):
            episode = f"Episode {number} of the dataset {label}"
            _fill_episode(rows, stored.arrays(index), start, stored.lengths[index], episode)
            start += stored.lengths[index] + 1
        metadata = tuple(stored.metadata[index] for index in kept)
    return Episodes(**rows, lengths=lengths, metadata=metadata)


def _empty_rows(total: int, observation_space: Any, action_space: Any) -> dict[str, Any]:
    image = observation_space.dtype == np.uint8 and len(observation_space.shape) > 1
    if isinstance(action_space, gymnasium.spaces.Discrete):
        # Rows after the last step hold no action, but a choice must be one.
        action = np.full(total, action_space.start, np.int64)
    else:
        action = np.zeros((total, *action_space.shape), action_space.dtype)
    pixel = np.uint8 if image else np.float32
    return {
        "observation": np.zeros((total, *observation_space.shape), pixel),
        "action": action,
        "reward": np.zeros(total, np.float32),
        "terminated": np.zeros(total, bool),
        "truncated": np.zeros(total, bool),
        "position": None,
    }


def _fill_episode(
    rows: dict[str, Any],
    stored_array: Callable[[str], np.ndarray],
    start: int,
    length: int,
    episode: str,
) -> None:
    fields = {
        "observation": "observations",
        "action": "actions",
        "reward": "rewards",
        "terminated": "terminations",
        "truncated": "truncations",
    }
    for name, stored in fields.items():
        array, wanted = stored_array(stored), length + (name == "observation")
        if array.shape != (wanted, *rows[name].shape[1:]):
            raise DatasetError(
                f"{episode} has {stored} of shape {array.shape} where "
                f"{(wanted, *rows[name].shape[1:])} belongs: {AGAIN}."
            )
        rows[name][start : start + wanted] = array
    if not rows["terminated"][start + length - 1]:
        rows["truncated"][start + length - 1] = True
    try:
        position = stored_array("infos/position")
    except KeyError:
        position = np.zeros(0)
    fits = position.ndim == 2 and len(position) == length + 1 and position.dtype.kind in "fiu"
    if start == 0 and fits:
        rows["position"] = np.zeros((len(rows["reward"]), position.shape[1]), np.float32)
    if rows["position"] is not None:
        if not fits or position.shape[1] != rows["position"].shape[1]:
            rows["position"] = None
        else:
            rows["position"][start : start + length + 1] = position


@contextlib.contextmanager
def _hdf5_episodes(path: Path, count: int) -> Iterator[StoredEpisodes]:
    import h5py

    def array(group: Any, name: str) -> np.ndarray:
        # HDF5's own calls: h5py's comfortable ones cost five times as much, and an episode has six
        # arrays.
        try:
            stored = h5py.h5d.open(group, name.encode())
        except KeyError:
            if name.startswith("infos/"):
                raise
            raise DatasetError(
                f"The dataset {path} is damaged (an episode has no {name}): {AGAIN}."
            ) from None
        read = np.empty(stored.shape, stored.dtype)
        stored.read(h5py.h5s.ALL, h5py.h5s.ALL, read)
        return read

    with h5py.File(path, "r") as file:
        lengths: list[int] = []
        metadata: list[Mapping[str, Any]] = []
        for index in range(count):
            group = file[f"episode_{index}"]
            lengths.append(h5py.h5d.open(group.id, b"rewards").shape[0])
            metadata.append({name: _plain(value) for name, value in group.attrs.items()})

        def arrays(index: int) -> Callable[[str], np.ndarray]:
            return partial(array, h5py.h5g.open(file.id, f"episode_{index}".encode()))

        yield StoredEpisodes(lengths, metadata, arrays)


@contextlib.contextmanager
def _storage_episodes(storage: Any, count: int) -> Iterator[StoredEpisodes]:
    """By Minari's own reader."""

    def arrays(index: int) -> Callable[[str], np.ndarray]:
        (episode,) = storage.get_episodes([index])
        infos = {f"infos/{name}": value for name, value in (episode["infos"] or {}).items()}
        named = {**episode, **infos}
        return lambda name: np.asarray(named[name])

    metadata = [dict(entry) for entry in storage.get_episode_metadata(range(count))]
    yield StoredEpisodes([int(entry["total_steps"]) for entry in metadata], metadata, arrays)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
