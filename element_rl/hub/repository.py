"""What a hub is: named repositories of files.

A repository of a run is what Hugging Face calls a model, `user/name`; a repository of datasets is
`datasets/user/name`. A hub lists a repository's files with their sizes before anything is read,
gives files, and takes a folder of files in one go.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from element_rl.storage.files import FileError

MOST_FILES = 10_000  # of a repository
# Hugging Face's rule for names
_NAME = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_RESERVED = ("datasets", "models", "spaces")  # Hugging Face's addresses begin with these

Kind = Literal["run", "dataset"]


class HubError(FileError):
    """Something about a hub or a repository that its user can put right; the message is one
    sentence."""


@dataclass(frozen=True)
class Repository:
    """`user/name` of a run, or `datasets/user/name`."""

    kind: Kind
    user: str
    name: str

    @property
    def id(self) -> str:
        """As Hugging Face's functions take it, beside the kind."""
        return f"{self.user}/{self.name}"

    def __str__(self) -> str:
        return f"datasets/{self.id}" if self.kind == "dataset" else self.id


@dataclass(frozen=True)
class Contents:
    """The files of a repository at one moment."""

    repository: Repository
    files: Mapping[str, int]  # name with slashes → bytes
    odd: Mapping[str, str]  # name → what it is, of entries that are no plain files: a link, a pipe
    revision: str | None = None  # by which the same files are found again


@runtime_checkable
class Hub(Protocol):
    """Where repositories are."""

    name: str  # in sentences: "the Hugging Face hub"

    def contents(self, repository: Repository, revision: str | None) -> Contents | None:
        """What is in a repository; None where there is none."""
        ...

    def download(self, contents: Contents, names: Collection[str], folder: Path) -> None:
        """Puts files of a repository into a folder under their own names. These have been checked:
        they stay within the folder."""
        ...

    def staging(self, repository: Repository) -> AbstractContextManager[Path]:
        """An empty folder for the files of a push; it is gone in the end, whatever happens."""
        ...

    def publish(
        self,
        repository: Repository,
        staged: Path,
        before: Contents | None,
        gone: Collection[str],
        message: str,
        private: bool,
    ) -> str:
        """Makes the staged files the repository's, removes the files that are `gone` and leaves all
        others; everything or nothing. Returns where it is now."""
        ...


def repository_of(text: str, kind: Kind | None = None) -> tuple[Repository, str]:
    """A repository by its name, and what is named within it, as in `user/hopper/element-v0`;
    `datasets/` before the name, or `kind`, tells what it holds."""
    parts = text.split("/")
    if parts[0] == "datasets" and len(parts) > 2:
        parts, kind = parts[1:], "dataset"
    if len(parts) < 2 or parts[0] in _RESERVED or not all(map(_NAME.fullmatch, parts)):
        raise HubError(
            f"{text!r} is no name of a repository: give USER/NAME, of letters, digits, -, _ and . "
            "as in alice/ant-explorer."
        )
    within = "/".join(parts[2:])
    return Repository(kind or ("dataset" if within else "run"), *parts[:2]), within


def parents(name: str) -> Iterator[str]:
    """The folders that a file of a repository is in."""
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
