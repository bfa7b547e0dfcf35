"""Files that one process at a time may hold.

create_locked    a new file that one of several processes makes, and holds from its first moment
locked           a file that is there already
is_locked        whether a process holds a file just now
"""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from element_rl.storage.files import removing_on_failure, sync

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of file systems that have none
# seconds; who asks `is_locked` is done in microseconds, unless the system lets it wait just then
GLANCE = 5.0


def create_locked(path: Path, text: str) -> int:
    """Writes a file that must not exist yet, and locks it as `locked` does; the descriptor that
    holds the lock.

    Of processes that do this at the same moment one succeeds, and the others get FileExistsError.
    The file is locked before it has its name, so nobody else can hold it first. Closing the
    descriptor lets go of it.
    """
    data = text.encode()
    # Another process, or the same number on another machine, may be making the same file.
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    with removing_on_failure(temporary, path, len(data)):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        sync(temporary)
    descriptor = os.open(temporary, os.O_RDWR)  # network file systems lock what can be written
    try:
        with removing_on_failure(temporary, path, len(data)):
            _lock(descriptor)
            taken = not _named(temporary, path)
            sync(path.parent)
        if taken:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _named(temporary: Path, path: Path) -> bool:
    """Gives a finished file its name, unless something has it; whether it did. The temporary name
    is gone then."""
    try:
        os.link(temporary, path)  # unlike a rename, this never takes the place of a file
    except FileExistsError:
        return False
    except OSError:  # a disk without hard links: there the name comes first
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def locked(path: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Within this the file is this process's own; one that dies lets go of it.

    BlockingIOError if it is another's for longer.
    """
    began = time.monotonic()
    while True:
        with path.open("r+b" if os.access(path, os.W_OK) else "rb") as file:
            try:
                _lock(file.fileno())
            except BlockingIOError:
                # a file that somebody only looks at, as `is_locked` does, is not taken
                patience = wait_seconds if _is_held(file.fileno()) else max(wait_seconds, GLANCE)
                if time.monotonic() >= began + patience:
                    raise
            else:
                # Whoever had it may have removed it meanwhile: then the lock is on a file that
                # nobody else can find.
                if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    yield
                    return
                continue
        time.sleep(0.05)


def is_locked(path: Path) -> bool | None:
    """Whether a process holds the file, on its own or on another machine that shares the lock; None
    where files cannot be locked. Who asks is in nobody's way."""
    with path.open("rb") as file:
        return _is_held(file.fileno())


def _is_held(descriptor: int) -> bool | None:
    if fcntl is None:
        return None
    try:
        # shared: several who ask at the same moment do not take each other for the holder
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _lock(descriptor: int) -> None:
    """Where files cannot be locked, on Windows and on some network file systems, nothing is."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
