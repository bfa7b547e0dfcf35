"""The arrays of a Minari dataset, read episode by episode straight to their place among the rows of
`Episodes`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Int64

from element_rl.datasets.minari_folders import AGAIN, HDF5, DatasetError

Rows = dict[str, Any]
Source = Callable[[str], np.ndarray]


def read_rows(
    storage: Any, folder: Path, label: str, count: int
) -> tuple[Int64[np.ndarray, " E"], Rows, tuple[Mapping[str, Any], ...]]:
    """Lengths, arrays and metadata of all episodes that have a step."""
    from minari.dataset.minari_storage import is_image_space

    spaces = (storage.observation_space, storage.action_space)
    plain = storage.FORMAT == "hdf5" and not (
        storage.jpeg_encoding and any(is_image_space(space) for space in spaces)
    )
    lengths, metadata = (
        _hdf5_lengths(folder / HDF5, count) if plain else _storage_lengths(storage, count)
    )
    kept = np.flatnonzero(lengths)
    sources = _hdf5_episodes(folder / HDF5, kept) if plain else _storage_episodes(storage, kept)
    rows = _filled(sources, lengths[kept], label, *spaces)
    return lengths[kept], rows, tuple(metadata[index] for index in kept)


def _filled(
    sources: Iterable[Source],
    lengths: Int64[np.ndarray, " E"],
    label: str,
    observation_space: Any,
    action_space: Any,
) -> Rows:
    total = int(np.sum(lengths + 1))
    image = observation_space.dtype == np.uint8 and len(observation_space.shape) > 1
    discrete = isinstance(action_space, gymnasium.spaces.Discrete)
    rows: Rows = {
        "observation": np.zeros(
            (total, *observation_space.shape), np.uint8 if image else np.float32
        ),
        # Rows after the last step hold no action, but a choice must be one.
        "action": np.full(total, action_space.start, np.int64)
        if discrete
        else np.zeros((total, *action_space.shape), action_space.dtype),
        "reward": np.zeros(total, np.float32),
        "terminated": np.zeros(total, bool),
        "truncated": np.zeros(total, bool),
        "position": None,
    }
    start = 0
    for episode, (source, length) in enumerate(zip(sources, lengths.tolist(), strict=True)):
        _fill_episode(rows, source, start, length, f"Episode {episode} of the dataset {label}")
        start += length + 1
    return rows


def _fill_episode(rows: Rows, source: Source, start: int, length: int, episode: str) -> None:
    fields = {
        "action": "actions",
        "reward": "rewards",
        "terminated": "terminations",
        "truncated": "truncations",
    }
    for name, stored in {"observation": "observations", **fields}.items():
        array, wanted = source(stored), length + (name == "observation")
        if array.shape != (wanted, *rows[name].shape[1:]):
            raise DatasetError(
                f"{episode} has {stored} of shape {array.shape} where "
                f"{(wanted, *rows[name].shape[1:])} belongs: {AGAIN}."
            )
        rows[name][start : start + wanted] = array
    if not rows["terminated"][start + length - 1]:
        rows["truncated"][start + length - 1] = True
    try:
        position = source("infos/position")
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


def _hdf5_lengths(path: Path, count: int) -> tuple[Int64[np.ndarray, " E"], list[dict[str, Any]]]:
    import h5py

    lengths, metadata = np.zeros(count, np.int64), []
    with h5py.File(path, "r") as file:
        for index in range(count):
            group = file[f"episode_{index}"]
            lengths[index] = h5py.h5d.open(group.id, b"rewards").shape[0]
            metadata.append({name: _plain(value) for name, value in group.attrs.items()})
    return lengths, metadata


def _hdf5_episodes(path: Path, indices: Sequence[int] | np.ndarray) -> Iterator[Source]:
    """For each episode, a function that reads one of its arrays."""
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
        for index in indices:
            group = h5py.h5g.open(file.id, f"episode_{index}".encode())
            yield lambda name, group=group: array(group, name)  # type: ignore[misc]


def _storage_lengths(
    storage: Any, count: int
) -> tuple[Int64[np.ndarray, " E"], list[dict[str, Any]]]:
    metadata = [dict(entry) for entry in storage.get_episode_metadata(range(count))]
    return np.array([entry["total_steps"] for entry in metadata], np.int64), metadata


def _storage_episodes(storage: Any, indices: Sequence[int] | np.ndarray) -> Iterator[Source]:
    for index in indices:
        (episode,) = storage.get_episodes([int(index)])
        flat = {
            **episode,
            **{f"infos/{name}": value for name, value in (episode["infos"] or {}).items()},
        }
        yield lambda name, flat=flat: np.asarray(flat[name])  # type: ignore[misc]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
