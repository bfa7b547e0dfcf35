"""A dataset as flat arrays in one file, `.npz` or `.safetensors`, for tools that do not read Minari.

One row per step, under the names of D4RL:

    observations [N, …]   actions [N, …]   rewards [N]   next_observations [N, …]   terminals [N]   timeouts [N]

and beside them `episode` [N], which counts the episodes from 0, `positions` and `next_positions` [N, C] where the dataset has
positions, and `metadata`, a text with the metadata of the dataset and of every episode as JSON (in safetensors: the file's own
metadata of that name). Actions are in the environment's own units.
"""

import json
from pathlib import Path

import numpy as np

from element_rl.datasets.episodes import step_rows
from element_rl.datasets.minari_files import Recording, read_recording
from element_rl.files import to_json, write_arrays, write_atomically

FORMATS = (".npz", ".safetensors")


def export(dataset: str | Path, path: Path, root: Path | None = None) -> Path:
    """Writes a Minari dataset, given by its id or its folder, as one file whose ending tells the format.

    All of it is held in memory, its observations twice.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"A dataset is exported to {' or '.join(FORMATS)}, not to {path.name!r}.")
    recording = read_recording(dataset, root)
    arrays = flat_arrays(recording)
    metadata = json.dumps(to_json({"dataset": recording.about, "episodes": recording.metadata}))
    if path.suffix == ".safetensors":
        write_arrays(path, arrays, {"metadata": metadata})
        return path

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # by name NumPy would add an ending of its own
            np.savez(file, metadata=np.array(metadata), **arrays)  # type: ignore[arg-type]

    write_atomically(path, write, sum(array.nbytes for array in arrays.values()))
    return path


def flat_arrays(recording: Recording) -> dict[str, np.ndarray]:
    """One row per step, under the names of D4RL."""
    lengths = recording.lengths
    step = step_rows(lengths)
    arrays = {
        "observations": recording.observation[step],
        "actions": recording.action[step],
        "rewards": recording.reward[step],
        "next_observations": recording.observation[step + 1],
        "terminals": recording.terminated[step],
        "timeouts": recording.truncated[step],
        "episode": np.repeat(np.arange(len(lengths)), lengths),
    }
    if recording.position is not None:
        arrays |= {"positions": recording.position[step], "next_positions": recording.position[step + 1]}
    return arrays
