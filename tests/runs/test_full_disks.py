"""A full disk, a limit on file sizes or any other failure leaves the run as it was."""

import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import faiss
import numpy as np
import pytest
from support.known_checkpoints import CONFIG, check, row, save

from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_leaves_the_previous_state(small_disk: Path) -> None:
    run = RunFolder.create(small_disk / "run", CONFIG)
    run.append_metrics([row(1, 0, coverage=1)])
    save(run, 1)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    with pytest.raises(
        FileError, match=r"step_000000002/resume/arrays\.safetensors could not .*No space left"
    ) as caught:
        save(run, 2, size=10**6)
    assert "4,080,024 bytes are needed" in str(caught.value)
    with pytest.raises(
        FileError, match=r"step_000000002 could not be written \(No space left on device"
    ):
        save(run, 2, write_extra=write_large_index)
    with pytest.raises(FileError, match=r"summary\.json could not be written \(No space left"):
        run.write_summary({"text": "x" * 2_000_000})
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    check(run, 1)


def write_large_index(folder: Path) -> None:
    index = faiss.IndexFlatL2(8)
    index.add(np.zeros((50_000, 8), np.float32))
    faiss.write_index(index, str(folder / "memory.faiss"))


def test_full_disk_never_cuts_a_row_short(small_disk: Path) -> None:
    run = RunFolder.create(small_disk / "run", CONFIG)
    rows = [row(step, 0, coverage=step) for step in range(100)]
    (small_disk / "filler").write_bytes(bytes(900_000))

    def fill_the_disk() -> None:
        for _ in range(1000):
            run.append_metrics(rows)

    with pytest.raises(
        FileError, match=r"(metrics\.csv|tfevents\.\d+) could not be written \(No space left"
    ):
        fill_the_disk()
    assert len(run.read_metrics()["step"]) % 100 == 0
    assert run.metrics_path.read_text().endswith("\n")
    for file in run.path.glob("events.*"):
        assert (number_of_records(file) - 1) % 100 == 0


def number_of_records(file: Path) -> int:
    """Records of an events file, all of them whole."""
    data, number = file.read_bytes(), 0
    while data:
        length = 16 + struct.unpack("<Q", data[:8])[0]
        assert len(data) >= length
        data, number = data[length:], number + 1
    return number


def test_a_limit_on_file_size_is_reported_too(run: RunFolder) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        import numpy as np
        from element_rl.storage.files import FileError
        from element_rl.runs.folder import RunFolder
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            RunFolder.open(sys.argv[1]).save_checkpoint(2, {}, None, {"a": np.zeros(10**6)}, {})
        except FileError as error:
            print(error)
        """
    )
    save(run, 1)
    result = subprocess.run(
        [sys.executable, "-c", script, str(run.path)], capture_output=True, text=True, check=True
    )
    assert (
        "arrays.safetensors could not be written (File too large; 8,000,000 bytes are needed"
        in result.stdout
    )
    check(run, 1)
    assert [path.name for path in run.checkpoints_path.iterdir()] == ["step_000000001"]


def test_other_failures_leave_nothing_behind(run: RunFolder) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    save(run, 1)
    with pytest.raises(KeyboardInterrupt):
        save(run, 2, write_extra=fail)
    assert [path.name for path in run.checkpoints_path.iterdir()] == ["step_000000001"]
    check(run, 1)
