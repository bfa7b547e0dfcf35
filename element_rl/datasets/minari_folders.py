"""Where Minari keeps its datasets, and what they are called.

    ROOT/NAMESPACE/NAME-vVERSION/data/metadata.json     spaces, environment, authors, counts
                                      main_data.hdf5    a group per episode

ROOT is `$MINARI_DATASETS_PATH`, or `~/.minari/datasets`. A dataset under construction lies beside
its final place in a folder with a leading dot, which Minari passes over.
"""

import os
import re
from pathlib import Path

from element_rl.storage.files import FileError, write_json

METADATA = "metadata.json"
HDF5 = "main_data.hdf5"
NAMESPACE = "namespace_metadata.json"
AGAIN = "make it again, or download it again"  # advice for a dataset that is damaged
MISSING_EXTRA = "Datasets need Minari, which is not installed: pip install 'element-rl[datasets]'."

_ID = re.compile(r"(?:[-_\w]{2,}/)*[-_\w]+-v\d+")  # Minari takes no namespace of a single letter


class DatasetError(FileError):
    """Something about a dataset that its user can put right; the message is one sentence."""


def require_minari() -> None:
    """A sentence instead of a traceback where the extra is not installed."""
    try:
        import h5py  # noqa: F401
        import minari  # noqa: F401
    except ImportError as error:
        raise DatasetError(MISSING_EXTRA) from error


def datasets_root(root: Path | None) -> Path:
    """The folder of all datasets: the one given, or Minari's own."""
    if root is not None:
        return Path(root)
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def dataset_folder(name: str, root: Path | None) -> Path:
    """The folder of the dataset of this Minari id, whether there is one or not."""
    if not _ID.fullmatch(name):
        raise DatasetError(
            f"{name!r} is no Minari id: use letters, digits, - and _, two at least before a /, and "
            "end with a version, as in hopper/element-v0."
        )
    return datasets_root(root) / name


def data_folder(name: str | Path, root: Path | None) -> Path:
    """The `data` folder of an existing dataset, given by its id or by its folder."""
    given = Path(name)
    candidates = [given] if isinstance(name, Path) else [datasets_root(root) / name, given]
    for folder in candidates:
        for data in (folder / "data", folder):
            if (data / METADATA).is_file():
                return data
    existing = [folder for folder in candidates if folder.exists()]
    if existing:
        raise DatasetError(
            f"{existing[0]} is not a Minari dataset (it has no data/{METADATA}): give one by its "
            "folder or id."
        )
    if isinstance(name, Path):
        raise DatasetError(
            f"There is no dataset in {name}: give the folder of one, or the id of a Minari dataset."
        )
    raise DatasetError(
        f"There is no dataset {name!r} in {datasets_root(root)}: {_those_there_are(root)}."
    )


def known_datasets(root: Path | None) -> list[str]:
    """The ids of all datasets that are there."""
    folder = datasets_root(root)
    return sorted(
        path.parent.parent.relative_to(folder).as_posix()
        for path in folder.rglob(f"data/{METADATA}")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def write_namespaces(folder: Path, root: Path | None) -> None:
    """Makes the folders above a dataset what Minari calls namespaces."""
    top = datasets_root(root)
    for parent in folder.parents:
        if parent == top:
            return
        if not (parent / NAMESPACE).exists():
            write_json(parent / NAMESPACE, {})


def _those_there_are(root: Path | None, most: int = 8) -> str:
    names = known_datasets(root)
    if not names:
        return "it holds none; make one with `element collect`, or get one with `minari download`"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"it holds {', '.join(names[:most])}{more}"
