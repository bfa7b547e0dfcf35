"""One try of a command in a process of its own, and what to say of it.

Processes are forked from one that has loaded the package but computed nothing, so that a try of a
command that is refused costs no second of imports.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"
ANSWERS = (0, 2, 130)  # done, refused, told to stop
UNHEALTHY = 1  # what `element doctor` and a study with failed cells end with


@dataclass(frozen=True)
class Attempt:
    """What a command did."""

    arguments: tuple[str, ...]
    code: int | None  # None: it was still at work when its time was up
    output: str
    seconds: float

    @property
    def fault(self) -> str:
        """What the command did that none should do; empty where it did well."""
        if TRACEBACK in self.output:
            return "traceback"
        if self.code is None:
            return "" if self.output.strip() else "without a word"
        if self.code not in ANSWERS and not (self.code == UNHEALTHY and self.output.strip()):
            return f"exit code {self.code}"
        return "refused without a sentence" if self.code == 2 and not self.output.strip() else ""

    def __str__(self) -> str:
        last = self.output.strip().rpartition("\n")[2][:200]
        return f"element {' '.join(self.arguments)} → {self.fault or self.code}: {last}"


def attempt(arguments: Sequence[str], place: Path, seconds: float) -> Attempt:
    """`element ARGUMENTS`, in the folder `place`, ended after so many seconds."""
    place.mkdir(parents=True, exist_ok=True)
    output = place.parent / f".{place.name}.output"
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(lambda: _command(arguments), place, output)
    code = ended(child, seconds)
    text = output.read_text(errors="replace")
    output.unlink()
    return Attempt(tuple(arguments), code, text, time.monotonic() - began)


def ended(process: int, seconds: float) -> int | None:
    """The exit code of a child; where it is at work for longer, it and its children are killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # its own group: `_become` made it
    os.waitpid(process, 0)
    return None


def _become(work: Callable[[], int], place: Path, output: Path) -> None:
    """The child: a group of its own, its output in a file. It never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        written = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, source in ((0, nothing), (1, written), (2, written)):
            os.dup2(source, descriptor)
        os.chdir(place)
        code = work()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _command(arguments: Sequence[str]) -> int:
    from element_rl.cli import main

    return main(arguments)
