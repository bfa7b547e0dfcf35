"""A dataset in one file, `.npz`, `.safetensors` or `.parquet`, for tools that do not read Minari.

One row per step, under the names of D4RL:

    observations [N, …]   actions [N, …]   next_observations [N, …]
    rewards [N]           terminals [N]    timeouts [N]

and beside them `episode` [N], which counts the episodes from 0, `positions` and `next_positions`
[N, C] where the dataset has positions, and `metadata`, a text with the metadata of the dataset and
of every episode as JSON (in safetensors: the file's own metadata of that name). Actions are in the
environment's own units.

In a Parquet file these are columns: numbers where an array is [N], lists of numbers where it has
more axes. Their shapes are in the file's metadata, under `shapes`.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_files import DatasetError, read_recording
from element_rl.storage.files import to_json, write_arrays, write_atomically

FORMATS = (".npz", ".safetensors", ".parquet")
VALUES_AT_ONCE = 1 << 24  # of the widest column, in a group of rows of a Parquet file


def export(dataset: str | Path, path: Path, root: Path | None = None) -> Path:
    """Writes a Minari dataset, given by its id or its folder, as one file whose ending tells the
    format.

    All of it is held in memory, its observations twice.
    """
    require_format(path)
    recording = read_recording(dataset, root)
    episodes = recording.episodes
    arrays = flat_arrays(episodes)
    metadata = json.dumps(to_json({"dataset": recording.about, "episodes": episodes.metadata}))
    if path.suffix == ".safetensors":
        write_arrays(path, arrays, {"metadata": metadata})
        return path

    def write(temporary: Path) -> None:
        if path.suffix == ".parquet":
            _write_parquet(temporary, arrays, metadata)
            return
        with temporary.open("wb") as file:  # by name NumPy would add an ending of its own
            np.savez(file, metadata=np.array(metadata), **arrays)  # type: ignore[arg-type]

    write_atomically(path, write, sum(array.nbytes for array in arrays.values()))
    return path


def require_format(path: Path) -> None:
    """A sentence where there is no such format, or where what writes it is not installed."""
    if path.suffix not in FORMATS:
        raise ValueError(f"A dataset is exported to {' or '.join(FORMATS)}, not to {path.name!r}.")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise DatasetError(
                "Parquet files need pyarrow: pip install 'element-rl[parquet]'."
            ) from error


def flat_arrays(episodes: Episodes) -> dict[str, np.ndarray]:
    """One row per step, under the names of D4RL."""
    lengths, step = episodes.lengths, episodes.transitions
    arrays = {
        "observations": episodes.observation[step],
        "actions": episodes.action[step],
        "rewards": episodes.reward[step],
        "next_observations": episodes.observation[step + 1],
        "terminals": episodes.terminated[step],
        "timeouts": episodes.truncated[step],
        "episode": np.repeat(np.arange(len(lengths)), lengths),
    }
    if (position := episodes.position) is not None:
        arrays |= {"positions": position[step], "next_positions": position[step + 1]}
    return arrays


def _write_parquet(path: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> None:
    import pyarrow
    import pyarrow.parquet

    def column(rows: np.ndarray) -> pyarrow.Array:
        if rows.ndim == 1:
            return pyarrow.array(rows)
        ends = np.arange(len(rows) + 1) * math.prod(rows.shape[1:])
        return pyarrow.ListArray.from_arrays(ends.astype(np.int32), pyarrow.array(rows.reshape(-1)))

    def table(begin: int, end: int) -> pyarrow.Table:
        return pyarrow.table({name: column(array[begin:end]) for name, array in arrays.items()})

    widest = max(math.prod(array.shape[1:]) for array in arrays.values())
    rows_at_once, number = max(VALUES_AT_ONCE // widest, 1), len(arrays["episode"])
    shapes = json.dumps({name: array.shape[1:] for name, array in arrays.items()})
    schema = table(0, 0).schema.with_metadata({"metadata": metadata, "shapes": shapes})
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, number, rows_at_once):
            writer.write_table(table(begin, begin + rows_at_once))
