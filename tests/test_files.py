"""Files appear whole or not at all."""

import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from element_rl.files import FileError, read_arrays, read_json, write_arrays, write_atomically, write_json


def test_arrays_and_json_come_back(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.int32).reshape(2, 3).T,
        "flag": np.array([True, False]),
        "scalar": np.float32(2),
    }
    write_arrays(tmp_path / "x.safetensors", arrays, {"step": "7"})
    back, metadata = read_arrays(tmp_path / "x.safetensors")
    assert metadata == {"step": "7"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name].reshape(np.shape(array)), array)
    write_json(tmp_path / "x.json", {"β": [1, 2.5, None]})
    assert read_json(tmp_path / "x.json") == {"β": [1, 2.5, None]}


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match=r"Could not write .*x\.txt.*No space left"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """The operating system refuses more than 64 kB per file: the write fails half way, for real."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    write_arrays(tmp_path / "x.safetensors", {"a": np.zeros(10)})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
        with pytest.raises(FileError, match="Could not write"):
            write_arrays(tmp_path / "x.safetensors", {"a": np.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert read_arrays(tmp_path / "x.safetensors")[0]["a"].shape == (10,)
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"a\.safetensors does not exist"):
        read_arrays(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FileError, match=r"a\.safetensors is damaged"):
        read_arrays(tmp_path / "a.safetensors")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(FileError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")
