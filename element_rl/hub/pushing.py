"""A run or a dataset into a repository of a hub.

Everything is copied, described and listed in a folder of the hub's choice first; the hub then takes
it in one go. What an earlier push has left and this one does not bring is removed, by the earlier
manifest; all other files of the repository stay.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from element_rl.datasets.minari_folders import METADATA, NAMESPACE, data_folder
from element_rl.hub.dataset_card import dataset_card
from element_rl.hub.manifest import (
    CARD,
    ENDINGS,
    MOST_BYTES,
    read_hub_manifest,
    refuse_names,
    write_hub_manifest,
)
from element_rl.hub.paths import without_paths
from element_rl.hub.repository import Contents, Hub, HubError, Repository
from element_rl.hub.run_card import run_card
from element_rl.hub.run_files import (
    command_that_made,
    copy_run,
    draw_figures,
    files_under,
    film_replay,
    refuse_foreign,
)
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Progress
from element_rl.storage.files import (
    MANIFEST,
    read_json_object,
    write_json,
    write_text,
)

THEIRS = (CARD, ".gitattributes", "LICENSE", "LICENSE.md")  # that a new repository may have


def push_run(
    run: RunFolder,
    hub: Hub,
    repository: Repository,
    *,
    every_checkpoint: bool = False,
    with_memory: bool = False,
    figures: bool = True,
    video: bool = True,
    private: bool = False,
    message: str | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = print,
) -> str:
    """Pushes a run; where it is then. The watcher is told of the frames of the film, and `say` of
    what had to be left out."""
    before = hub.contents(repository, None)
    if before is not None:
        refuse_foreign(list(before.files), MANIFEST, f"The repository {repository}", THEIRS)
    with hub.staging(repository) as folder:
        copied = copy_run(run, folder, every_checkpoint, with_memory)
        if figures:
            draw_figures(run, folder, say)
        if video:
            film_replay(copied, folder, watch, say)
        command = command_that_made(copied)
        write_text(folder / CARD, run_card(copied, repository, files_under(folder), command))
        write_hub_manifest(folder, "run")
        message = message or f"Push the run {repository.name}"
        gone = _left_behind(hub, before, "", folder)
        return hub.publish(repository, folder, before, gone, message, private)


def push_dataset(
    dataset: str | Path,
    hub: Hub,
    repository: Repository,
    *,
    root: Path | None = None,
    private: bool = False,
    message: str | None = None,
) -> str:
    """Pushes a Minari dataset, given by its id or its folder, as Minari's own functions for the
    Hugging Face hub have it: the dataset `hopper/element-v0` is in the folder `element-v0` of the
    repository `user/hopper`. Where it is then."""
    data = data_folder(dataset, root)
    about = read_json_object(data / METADATA)
    name = str(about["dataset_id"])
    top, _, rest = name.partition("/")
    if repository.name != top:
        raise HubError(
            f"Minari looks for the dataset {name} in a repository called {top}: push it to "
            f"{repository.user}/{top}."
        )
    place = f"{rest}/" if rest else ""
    before = hub.contents(repository, None)
    if before is not None:
        inside = [file for file in before.files if file.startswith(place)]
        kept = (*THEIRS, NAMESPACE) if not place else ()
        refuse_foreign(
            inside, place + MANIFEST, f"{place or 'The repository'} of {repository}", kept
        )
    with hub.staging(repository) as folder:
        _copy_dataset(data, folder / rest)
        write_hub_manifest(folder / rest, "dataset")
        gone = _left_behind(hub, before, place, folder)
        others = _other_datasets(hub, before, name)
        pushed = {name: read_json_object(folder / rest / "data" / METADATA)}
        _write_namespaces(folder, name, [*others, name])
        write_text(folder / CARD, dataset_card(repository, others | pushed))
        message = message or f"Push the dataset {name}"
        return hub.publish(repository, folder, before, gone, message, private)


def _copy_dataset(data: Path, folder: Path) -> None:
    """The data folder of a dataset; its metadata without the paths of this machine."""
    names = [name for name in files_under(data) if not name.startswith(".")]
    endings = ENDINGS["dataset"]
    refuse_names((f"data/{name}" for name in names), endings, f"The dataset in {data}")
    for name in names:
        target = folder / "data" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data / name, target)
    metadata = folder / "data" / METADATA
    write_json(metadata, without_paths(read_json_object(metadata)))


def _write_namespaces(folder: Path, name: str, names: list[str]) -> None:
    """What Minari lists the datasets of a repository by."""
    parts = name.split("/")
    inner = ["/".join(parts[:count]) for count in range(2, len(parts))]
    for namespace in inner:
        write_json(folder / namespace.partition("/")[2] / NAMESPACE, {})
    namespaces = {each.rpartition("/")[0] for each in names if each.count("/") > 1}
    listed: dict[str, Any] = {"datasets": sorted(names)}
    listed |= {"namespaces": sorted({*namespaces, *inner})} if namespaces else {}
    write_json(folder / NAMESPACE, listed)


def _other_datasets(hub: Hub, before: Contents | None, name: str) -> dict[str, Any]:
    """Those that the repository holds already: id → metadata."""
    ending, found = f"data/{METADATA}", {}
    for file in before.files if before is not None else ():
        if file.endswith(f"/{ending}") and before is not None:
            about = _read(hub, before, file)
            other = str(about.get("dataset_id"))
            if other != name and other.partition("/")[2] + "/" + ending == file:
                found[other] = about
    return found


def _read(hub: Hub, contents: Contents, name: str) -> dict[str, Any]:
    """A JSON file of a repository."""
    label = f"{name} of {contents.repository}"
    refuse_names([name], (".json",), str(contents.repository))
    if contents.files[name] > MOST_BYTES[".json"]:
        raise HubError(f"{label} is too large to be read: remove it first.")
    with tempfile.TemporaryDirectory(prefix="element-push-") as folder:
        hub.download(contents, [name], Path(folder))
        return read_json_object(Path(folder) / name, "remove it, or push to another repository")


def _left_behind(hub: Hub, before: Contents | None, place: str, folder: Path) -> set[str]:
    """Files of an earlier push, by its manifest, that are not staged."""
    if before is None or place + MANIFEST not in before.files:
        return set()
    if before.files[place + MANIFEST] > MOST_BYTES[".json"]:
        raise HubError(f"{place + MANIFEST} of {before.repository} is too large: remove it first.")
    with tempfile.TemporaryDirectory(prefix="element-push-") as kept:
        hub.download(before, [place + MANIFEST], Path(kept))
        old = read_hub_manifest(Path(kept) / place, str(before.repository))
    names = {place + name for name in old.sizes}
    return {name for name in names if name in before.files and not (folder / name).exists()}
