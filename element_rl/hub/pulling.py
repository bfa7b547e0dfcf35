"""A run or a dataset out of a repository of a hub, checked before it has its name.

First the list of files with their sizes, then the manifest, then the names and sizes in it; only
then are files asked for, into a hidden folder beside the target. Each is compared with its size and
SHA-256, and looked into where a command would read it. The folder is renamed when all of that is
done; whatever goes wrong, nothing of it is left, and an existing folder is never touched.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from element_rl.datasets.minari_folders import METADATA, dataset_folder, require_minari
from element_rl.datasets.minari_writing import publish, refuse_existing, temporary_folder
from element_rl.hub.contents import check_dataset, check_run
from element_rl.hub.manifest import (
    CARD,
    MOST_BYTES,
    Manifest,
    check_file,
    read_hub_manifest,
    refuse_sizes,
)
from element_rl.hub.repository import Contents, Hub, HubError, Kind, Repository, repository_of
from element_rl.runs.folder import RunFolder
from element_rl.storage.capacity import refuse_beyond_disk
from element_rl.storage.files import MANIFEST, listed, removing_on_failure, sync

MOST = 8 << 30  # bytes that are taken unless more are asked for
SILENTLY_IGNORED = (".gitattributes",)  # Hugging Face's own


@dataclass(frozen=True)
class Pulled:
    """What was pulled, and where it is."""

    kind: Kind
    path: Path
    name: str  # of the repository, or the id of the dataset


def pull(
    name: str,
    hub: Hub,
    out: Path | None = None,
    revision: str | None = None,
    most_bytes: int = MOST,
    say: Callable[[str], None] = print,
) -> Pulled:
    """Pulls the run or the dataset of this name: USER/NAME, or USER/NAME/DATASET where a repository
    holds several.

    `out`: the folder of the run (runs/NAME unless given), or the folder of all datasets (Minari's
    own unless given).
    """
    repository, within = repository_of(name)
    contents = hub.contents(repository, revision)
    if contents is None and repository.kind == "run":
        contents = hub.contents(Repository("dataset", repository.user, repository.name), revision)
    if contents is None:
        raise HubError(
            f"There is no {repository} in {hub.name}: look at its name, or, if it is private, "
            "whether you are logged in."
        )
    if contents.repository.kind == "run":
        return _pull_run(hub, contents, out, most_bytes, say)
    return _pull_dataset(hub, contents, within, out, most_bytes, say)


def _pull_run(
    hub: Hub, contents: Contents, out: Path | None, most: int, say: Callable[[str], None]
) -> Pulled:
    repository = contents.repository
    final = Path("runs") / repository.name if out is None else out
    if os.path.lexists(final):
        raise HubError(f"{final} exists already, and is left alone: choose another --out.")
    temporary = final.with_name(f".{final.name}.pull-{os.getpid()}")
    with removing_on_failure(temporary, final):
        manifest = _download(hub, contents, "", "run", temporary, most, say)
        run = check_run(temporary, manifest.sizes, str(repository))
        _say_what_is_not_run(run, say)
        for entry in (*temporary.rglob("*"), temporary):
            sync(entry)
        if os.path.lexists(final):
            raise HubError(f"{final} was made by another process meanwhile: choose another --out.")
        os.rename(temporary, final)
        sync(final.parent)
    return Pulled("run", final, str(repository))


def _pull_dataset(
    hub: Hub,
    contents: Contents,
    within: str,
    out: Path | None,
    most: int,
    say: Callable[[str], None],
) -> Pulled:
    require_minari()
    repository = contents.repository
    within = within or _only_dataset(contents)
    place = f"{within}/" if within else ""
    name = f"{repository.name}/{within}" if within else repository.name
    final = dataset_folder(name, out)
    refuse_existing(name, final)
    temporary = temporary_folder(final)
    with removing_on_failure(temporary, final):
        manifest = _download(hub, contents, place, "dataset", temporary, most, say)
        # a repository is one folder deeper than its datasets
        folder = temporary / within
        about = check_dataset(folder, manifest.sizes, str(repository))
        if about["dataset_id"] != name:
            raise HubError(
                f"{repository} calls its dataset {str(about['dataset_id'])[:60]!r}, and {name} was "
                "asked for: nothing of it was taken."
            )
        for entry in (*folder.rglob("*"), folder):
            sync(entry)
        publish(folder, final, out)
        shutil.rmtree(temporary, ignore_errors=True)
    return Pulled("dataset", final, name)


def _only_dataset(contents: Contents) -> str:
    """The folder of a repository's only dataset."""
    ending = f"data/{METADATA}"
    places = [
        name.removesuffix(ending).rstrip("/") for name in contents.files if name.endswith(ending)
    ]
    if len(places) == 1:
        return places[0]
    if not places:
        raise HubError(f"{contents.repository} holds no dataset: look at its name.")
    names = [f"{contents.repository.id}/{place}" for place in sorted(places)]
    raise HubError(f"{contents.repository} holds several datasets: name one of {listed(names)}.")


def _download(
    hub: Hub,
    contents: Contents,
    place: str,
    kind: Kind,
    folder: Path,
    most: int,
    say: Callable[[str], None],
) -> Manifest:
    """Puts the files that a manifest lists into a folder, and compares them with it. `place`: the
    folder of the repository that they are in, with a slash."""
    label = str(contents.repository)
    size = contents.files.get(place + MANIFEST)
    if size is None:
        raise HubError(
            f"{label} has no {place}{MANIFEST}, by which its files could be checked: it was not "
            "made by element push."
        )
    if size > min(MOST_BYTES[".json"], most):
        raise HubError(f"The {MANIFEST} of {label} has {size:,} bytes: nothing of it was taken.")
    folder.mkdir(parents=True)
    hub.download(contents, [place + MANIFEST], folder)
    manifest = read_hub_manifest(folder / place, label)
    if manifest.kind != kind:
        raise HubError(f"{label} says that it is a {manifest.kind}: nothing of it was taken.")
    refuse_sizes(manifest, contents, place, most)
    refuse_beyond_disk(f"{label}", folder, sum(manifest.sizes.values()))
    changed_card = contents.files.get(CARD) != manifest.sizes.get(CARD)
    names = [name for name in manifest.sizes if not (name == CARD and changed_card)]
    hub.download(contents, [place + name for name in names], folder)
    _compare(folder / place, manifest, names, label, say)
    _say_ignored(contents, manifest, place, say)
    return manifest


def _compare(
    folder: Path, manifest: Manifest, names: list[str], label: str, say: Callable[[str], None]
) -> None:
    for name in names:
        if fault := check_file(folder, name, manifest):
            if name != CARD:
                raise HubError(f"{name} of {label} {fault}: it has to be pushed again.")
            (folder / CARD).unlink(missing_ok=True)
    if CARD in manifest.sizes and not (folder / CARD).exists():
        say(f"Left out {CARD}: it was edited since it was pushed.")


def _say_ignored(
    contents: Contents, manifest: Manifest, place: str, say: Callable[[str], None]
) -> None:
    """Files beside those of the manifest were neither checked nor taken."""
    known = {place + name for name in (*manifest.sizes, MANIFEST)}
    others = sorted(
        name
        for name in (*contents.files, *contents.odd)
        if name not in known and name not in SILENTLY_IGNORED and name.startswith(place)
    )
    if others and contents.repository.kind == "run":
        names = listed([ascii(name)[1:-1] for name in others])
        say(f"Left out what is not in {MANIFEST}: {names}.")


def _say_what_is_not_run(run: RunFolder, say: Callable[[str], None]) -> None:
    """Names in settings that stand for code; nothing of it was pulled."""
    env, reward = str(run.config.get("env") or ""), str(run.config.get("reward") or "")
    if ":" in env:
        module = env.partition(":")[0]
        say(
            f"Its environment {env!a} is made by the Python module {module!a}, which was "
            "not pulled: commands that act import the one that is installed here."
        )
    if ".py:" in reward:
        say(
            f"Its reward {reward!a} is a function in a file, which was not pulled: it is "
            "needed to continue the run, not to use its policies."
        )
    for place in (run.config.get("settings") or {}).get("position") or ():
        if ".py:" in str(place):
            say(
                f"Its position {place!a} is a function in a file, which was not pulled: commands "
                "that act call the one that is there under this name, if there is any."
            )
