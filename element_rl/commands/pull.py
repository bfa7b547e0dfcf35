"""`element pull`: a run or a dataset out of a repository of a hub."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from element_rl.commands.options import read_options
from element_rl.hub import HubError, Pulled, hub_at, pull
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of

GIB = 1 << 30
NEXT = {  # of a kind of run → a command for it
    "explore": "element evaluate {}",
    "on-policy": "element evaluate {}",
    "offline": "element evaluate {}",
    "encoder": "element on-policy ENV --encoder {}",
}


@dataclass(frozen=True)
class Pull:
    """Get a run or a Minari dataset from the Hugging Face hub, or from a folder that stands for it.

    Every file is compared with the manifest that was pushed with it. Nothing is run or imported,
    and nothing has its name before all of it is checked.
    """

    # Name of the repository: USER/NAME, or USER/NAME/DATASET where it holds several datasets.
    repository: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="REPO")]]
    # Folder that stands for the hub, as in element push --to. (default: the Hugging Face hub)
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    # Folder of the run; of a dataset, the folder of all datasets.
    # (default: runs/NAME, and Minari's own)
    out: Path | None = None
    # Branch, tag or commit of the repository. (default: its newest commit)
    revision: str | None = None
    # Largest size to take, in GiB.
    max_size: float = 8.0


def main(arguments: list[str]) -> int:
    args = read_options(Pull, arguments, "element pull")
    if not args.max_size > 0:
        raise HubError(f"--max-size must be positive, got {args.max_size}.")
    pulled = pull(
        args.repository, hub_at(args.source), args.out, args.revision, int(args.max_size * GIB)
    )
    print(f"{'Run' if pulled.kind == 'run' else 'Dataset'}: {pulled.path}")
    print(f"Use it with: {_next(pulled)}")
    return 0


def _next(pulled: Pulled) -> str:
    if pulled.kind == "dataset":
        return f"element offline {pulled.path}"
    kind = kind_of(RunFolder.open(pulled.path).config)
    return NEXT[kind].format(shlex.quote(str(pulled.path)))
