"""`element push`: a run or a dataset into a repository of a hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from element_rl.commands.bars import Bar, bar_or_lines
from element_rl.commands.options import read_options
from element_rl.datasets.minari_folders import METADATA, datasets_root
from element_rl.hub import Hub, HubError, hub_at, push_dataset, push_run, repository_of
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.studies.engine.results import FILE


@dataclass(frozen=True)
class Push:
    """Put a run or a Minari dataset on the Hugging Face hub, or into a folder that stands for it.

    A run goes with its settings, metrics, newest policies, figures, a film and a card; a dataset as
    Minari's own functions have it. A second push to the same repository replaces the first.
    """

    # Folder of a run, or a Minari dataset by its id or its folder.
    what: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|DATASET")]]
    # Name of the repository, USER/NAME; of the dataset hopper/element-v0 it is USER/hopper.
    repository: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="REPO")]]
    # Folder that stands for the hub; nothing goes over the network then.
    # (default: the Hugging Face hub)
    to: Path | None = None
    # Push the memory too, and all else with which the run can be continued; this is large.
    with_memory: bool = False
    # Which policies of a run to push: of its newest checkpoint, or of all of them.
    checkpoints: Literal["latest", "all"] = "latest"
    # Draw the run's figures for the card.
    figures: bool = True
    # Film an episode of the first agent for the card.
    video: bool = True
    # Make a new repository a private one.
    private: bool = False
    # Text of the commit. (default: it names the run or the dataset)
    message: str | None = None


def main(arguments: list[str]) -> int:
    args = read_options(Push, arguments, "element push")
    path = Path(args.what)
    is_run = (path / "config.json").exists()
    if not is_run:
        _refuse_others(args.what)
    repository, within = repository_of(args.repository, "run" if is_run else "dataset")
    if within or repository.kind != ("run" if is_run else "dataset"):
        raise HubError(
            f"A push is to USER/NAME, and {args.repository!r} is not: leave the rest out."
        )
    hub = hub_at(args.to)
    if is_run:
        place = _push_run(args, RunFolder.open(path), hub)
    else:
        dataset = path if (path / "data" / METADATA).exists() else args.what
        place = push_dataset(dataset, hub, repository, private=args.private, message=args.message)
    print(f"Pushed to {place}")
    source = "" if args.to is None else f" --from {args.to}"
    print(f"Get it with: element pull {repository}{source}")
    return 0


def _push_run(args: Push, run: RunFolder, hub: Hub) -> str:
    notes: list[str] = []
    films = args.video and kind_of(run.config) != "encoder"
    with bar_or_lines(Console(), Bar("frames"), name="film") as watch:
        place = push_run(
            run,
            hub,
            repository_of(args.repository, "run")[0],
            every_checkpoint=args.checkpoints == "all",
            with_memory=args.with_memory,
            figures=args.figures,
            video=films,
            private=args.private,
            message=args.message,
            watch=watch,
            say=notes.append,
        )
    for note in notes:  # after the bar
        print(note)
    return place


def _refuse_others(what: str) -> None:
    """What is neither a run nor a dataset."""
    path = Path(what)
    if (path / FILE).exists():
        raise HubError(f"{path} is a study, and runs or datasets are pushed: name one of its runs.")
    is_dataset = any(
        (folder / METADATA).exists()
        for place in (path, datasets_root(None) / what)
        for folder in (place, place / "data")
    )
    if not is_dataset:
        raise HubError(
            f"{what} is neither a run (a folder with config.json) nor a Minari dataset in "
            f"{datasets_root(None)}: name one that is."
        )
