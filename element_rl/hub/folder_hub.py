"""A folder that stands for the hub: DIR/user/name, and DIR/datasets/user/name.

A repository is replaced in one go: its new folder is filled beside it under a name with a leading
dot, and takes its place when it is whole. Files that were not pushed, somebody's notes, go along.
Nothing is read through a link.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from element_rl.hub.repository import MOST_FILES, Contents, HubError, Repository, parents
from element_rl.storage.files import removing_on_failure, sync

BLOCK = 1 << 20  # bytes copied at once
KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISLNK: "a link",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


class FolderHub:
    """A hub in a folder, such as one that several machines share."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = f"the hub in {root}"

    def contents(self, repository: Repository, revision: str | None) -> Contents | None:
        if revision is not None:
            raise HubError(f"A folder keeps no revisions, and {self.root} is one: omit --revision.")
        folder = self._folder(repository)
        if not folder.is_dir():
            return None
        files: dict[str, int] = {}
        odd: dict[str, str] = {}
        for entry in self._entries(folder):
            name, mode = entry.relative_to(folder).as_posix(), entry.lstat()
            if stat.S_ISREG(mode.st_mode):
                files[name] = mode.st_size
            else:
                odd[name] = kind_of_entry(mode.st_mode)
            if len(files) + len(odd) > MOST_FILES:
                raise HubError(
                    f"{folder} holds more than {MOST_FILES:,} files: too many for a hub."
                )
        return Contents(repository, files, odd)

    def download(self, contents: Contents, names: Collection[str], folder: Path) -> None:
        source = self._folder(contents.repository)
        for name in names:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_plain(source / name, target, contents.files[name])

    @contextlib.contextmanager
    def staging(self, repository: Repository) -> Iterator[Path]:
        final = self._folder(repository)
        staged = final.with_name(f".{final.name}.push-{os.getpid()}")
        with removing_on_failure(staged, final):
            staged.mkdir(parents=True)
            yield staged
        shutil.rmtree(staged, ignore_errors=True)

    def publish(
        self,
        repository: Repository,
        staged: Path,
        before: Contents | None,
        gone: Collection[str],
        message: str,
        private: bool,
    ) -> str:
        final = self._folder(repository)
        old = final.with_name(f".{final.name}.old-{os.getpid()}")
        if before is not None:
            for name in (*before.files, *before.odd):
                if name not in gone:
                    keep(final / name, staged, name)
        for entry in (*staged.rglob("*"), staged):
            if entry.is_dir() or entry.is_file():
                sync(entry)
        with contextlib.suppress(FileNotFoundError):
            os.rename(final, old)
        try:
            os.rename(staged, final)
        except BaseException:
            if old.exists():
                os.rename(old, final)
            raise
        sync(final.parent)
        shutil.rmtree(old, ignore_errors=True)
        return str(final)

    def _folder(self, repository: Repository) -> Path:
        """Where a repository is; a link in place of it leads to somebody else's files."""
        folder = self.root
        for part in str(repository).split("/"):
            folder = folder / part
            if folder.is_symlink():
                raise HubError(
                    f"{folder} is a link to {os.readlink(folder)}, and a hub has its own folders "
                    "only: put a copy in its place."
                )
        return folder

    def _entries(self, folder: Path) -> Iterator[Path]:
        """All files under a folder, and whatever else is no folder; not through links."""
        waiting = [folder]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        yield Path(entry.path)


def kind_of_entry(mode: int) -> str:
    """What an entry of a folder is, where it is no plain file."""
    return next((text for is_kind, text in KINDS.items() if is_kind(mode)), "no plain file")


def copy_plain(source: Path, target: Path, size: int) -> None:
    """Copies a plain file of so many bytes. It may have been swapped since it was listed: a link is
    not followed, a pipe is not waited for, and no more than the bytes that are due are read."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(source, flags)
    except OSError as error:
        raise HubError(f"{source} cannot be read ({error.strerror}): restore it.") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise HubError(f"{source} is {kind_of_entry(mode)}, and no plain file: restore it.")
    with os.fdopen(descriptor, "rb") as file, target.open("xb") as copy:
        while size > 0 and (block := file.read(min(BLOCK, size))):
            copy.write(block)
            size -= len(block)
        if size > 0 or file.read(1):
            raise HubError(f"{source} has changed while it was read: try again.")


def keep(entry: Path, staged: Path, name: str) -> None:
    """Takes a file that was there before, or a link as a link, over into the new folder, unless a
    new file has its name."""
    target = staged / name
    if target.is_file():
        return
    if target.exists() or any((staged / parent).is_file() for parent in parents(name)):
        raise HubError(f"{entry} is in the way of a file that is pushed: move it elsewhere.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(entry, target, follow_symlinks=False)
    except OSError:  # a disk without hard links
        shutil.copy2(entry, target, follow_symlinks=False)
