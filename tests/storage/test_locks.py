"""Who holds a file is told without being in anybody's way."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from element_rl.storage import locks
from element_rl.storage.locks import create_locked, is_locked, locked

HOLD = """
import sys
from pathlib import Path
from element_rl.storage.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_holds_a_file_until_it_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert is_locked(file) is False
    command = [sys.executable, "-c", HOLD, str(file)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_locked(file) is True
        with pytest.raises(BlockingIOError), locked(file):
            pass
        process.kill()
    assert is_locked(file) is False


def test_a_file_is_held_from_its_first_moment(tmp_path: Path) -> None:
    descriptor = create_locked(tmp_path / "file", "text")
    assert is_locked(tmp_path / "file") is True
    locks.os.close(descriptor)
    assert is_locked(tmp_path / "file") is False


def test_who_only_looks_is_in_nobodys_way(tmp_path: Path) -> None:
    """Somebody looks, and the system lets them wait in the middle of it: another who looks takes
    nobody for the holder, and a run that begins then waits for a moment."""
    file = tmp_path / "file"
    file.touch()
    looking = file.open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert is_locked(file) is False
    later = threading.Timer(0.2, looking.close)
    later.start()
    with locked(file):
        assert looking.closed
        assert is_locked(file) is True
    later.join()


def test_without_locks_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(locks, "fcntl", None)
    assert is_locked(tmp_path / "file") is None
