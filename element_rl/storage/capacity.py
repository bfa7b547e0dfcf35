"""How much this machine can hold, and a sentence for what it cannot."""

import contextlib
import os
import shutil
from pathlib import Path

# of a group of processes (containers, batch systems), in versions 2 and 1 of the kernel's files
GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def memory_bytes() -> int | None:
    """The memory that this process may use at most; None where the system does not tell."""
    found = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in GROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # it says "max" where there is none
            found.append(int(Path(file).read_text()))
    return min(found, default=None)


def refuse_beyond_memory(what: str, needed_bytes: int) -> None:
    """A ValueError where something needs more than all memory of this machine. `what` begins the
    sentence."""
    there = memory_bytes()
    if there is not None and needed_bytes > there:
        raise ValueError(
            f"{what} would need {size_text(needed_bytes)} of memory, and this machine has "
            f"{size_text(there)}: choose less."
        )


def refuse_beyond_disk(what: str, folder: Path, needed_bytes: int) -> None:
    """The same of the disk that a folder is on, or will be."""
    there = next(
        parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists()
    )
    free = shutil.disk_usage(there).free
    if needed_bytes > free:
        raise ValueError(
            f"{what} would need {size_text(needed_bytes)} of the disk of {folder}, where "
            f"{size_text(free)} are free: choose less, or another --out."
        )


def size_text(size: int) -> str:
    """`23.4 GiB`."""
    power = min((max(size, 1).bit_length() - 1) // 10, len(UNITS) - 1)
    return f"{size:,} bytes" if power == 0 else f"{size / 1024**power:,.1f} {UNITS[power]}"
