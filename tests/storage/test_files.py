"""Files appear whole or not at all; manifests find what was changed, and say which file it was."""

import dataclasses
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest

from element_rl.storage.files import (
    MANIFEST,
    FileError,
    append,
    read_arrays,
    read_json,
    read_json_object,
    read_manifest,
    verify,
    write_arrays,
    write_atomically,
    write_json,
    write_manifest,
)
from element_rl.storage.locks import locked


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.asarray(np.float32(3)),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3), np.int64),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "strided": np.arange(10, dtype=np.uint8)[::3],
        "big_endian": np.arange(3, dtype=">i4"),
        "not_a_number": np.array([np.nan, np.inf, -0.0]),
    }
    write_arrays(tmp_path / "deep" / "a.safetensors", arrays, {"source": "test"})
    read, metadata = read_arrays(tmp_path / "deep" / "a.safetensors")
    assert metadata == {"source": "test"}
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array, strict=name != "big_endian")
    assert np.signbit(read["not_a_number"][2])
    assert os.listdir(tmp_path / "deep") == ["a.safetensors"]


@pytest.mark.parametrize("metadata", [None, {}])
def test_no_arrays_and_no_metadata(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    write_arrays(tmp_path / "a.safetensors", {}, metadata)
    assert read_arrays(tmp_path / "a.safetensors") == ({}, {})


def test_arrays_of_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"array words has dtype <U1: only numbers"):
        write_arrays(tmp_path / "a.safetensors", {"words": np.array(["a"])})
    assert os.listdir(tmp_path) == []


@dataclasses.dataclass(frozen=True)
class Settings:
    out: Path
    sizes: tuple[int, ...] = (1, 2)
    clip: float = float("inf")


def test_json_comes_back(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"β": [1, 2.5, None], 3: "three"})
    assert read_json(tmp_path / "x.json") == {"β": [1, 2.5, None], "3": "three"}
    value = {
        "settings": Settings(Path("runs/a")),
        "coverage": np.array([1.0, np.nan]),
        "steps": np.int32(4),
    }
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == {
        "settings": {"out": "runs/a", "sizes": [1, 2], "clip": None},
        "coverage": [1.0, None],
        "steps": 4,
    }
    write_json(tmp_path / "x.json", [1])
    with pytest.raises(
        FileError, match=r"x\.json is damaged \(it holds no JSON object\): ask a friend\."
    ):
        read_json_object(tmp_path / "x.json", "ask a friend")


def test_files_can_be_read_by_others(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_arrays(tmp_path / "a.safetensors", {"a": np.zeros(3)})
        write_json(tmp_path / "a.json", {})
    finally:
        os.umask(old)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "a.safetensors": 0o644,
        "a.json": 0o644,
    }


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]
    with pytest.raises(
        FileError, match=r"x\.txt/deep/y\.json could not be written \(Not a directory\)"
    ):
        write_json(path / "deep" / "y.json", {})


@pytest.fixture
def small_files() -> Iterator[None]:
    """The operating system refuses more than 64 kB per file: a longer write fails half way, for
    real."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_no_room_for_more(tmp_path: Path) -> None:
    arrays, text, index = (tmp_path / name for name in ("x.safetensors", "x.json", "x.faiss"))
    write_arrays(arrays, {"a": np.zeros(10)})
    write_json(text, "short")
    index.write_bytes(b"old")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        FileError,
        match=r"x\.safetensors could not be written \(File too large; "
        r"8,000,000 bytes are needed, [\d,]+ bytes are free\)",
    ) as caught:
        write_arrays(arrays, {"a": np.zeros(1_000_000)})
    assert str(caught.value).count("\n") == 0
    with pytest.raises(
        FileError, match=r"x\.json could not be written \(File too large; 100,003 bytes are needed"
    ):
        write_json(text, "x" * 100_000)
    vectors = faiss.IndexFlatL2(8)
    vectors.add(np.zeros((50_000, 8), np.float32))
    with pytest.raises(
        FileError, match=r"x\.faiss could not be written \(File too large; [\d,]+ bytes are free\)"
    ):
        write_atomically(index, lambda path: faiss.write_index(vectors, str(path)))
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.usefixtures("small_files")
def test_what_is_appended_is_never_cut_short(tmp_path: Path) -> None:
    append(tmp_path / "x.csv", b"a" * 60_000)
    with pytest.raises(
        FileError, match=r"x\.csv could not be written \(File too large; 10,000 bytes are needed"
    ):
        append(tmp_path / "x.csv", b"b" * 10_000)
    append(tmp_path / "x.csv", b"c" * 5_000)
    assert (tmp_path / "x.csv").read_bytes() == b"a" * 60_000 + b"c" * 5_000


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for read, name in ((read_arrays, "a.safetensors"), (read_json, "a.json")):
        with pytest.raises(FileError, match=rf"{name} does not exist: restore it"):
            read(tmp_path / name)
        (tmp_path / name).write_bytes(b"{nonsense\xff")
        with pytest.raises(FileError, match=rf"{name} is damaged or no \w+ file"):
            read(tmp_path / name)
        with pytest.raises(FileError, match=r"folder cannot be read"):
            read(tmp_path / "folder")


def test_a_lock_is_never_on_a_file_that_was_removed(tmp_path: Path) -> None:
    """Who waits for a file that is replaced meanwhile has the new one, which all others see."""
    path, has_it, done = tmp_path / "lock", threading.Event(), threading.Event()
    path.touch()

    def wait() -> None:
        with locked(path, wait_seconds=30.0):
            has_it.set()
            done.wait(30)

    with locked(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)  # until it has looked at the file
        (tmp_path / "new").touch()
        os.replace(tmp_path / "new", path)
    assert has_it.wait(30)
    with pytest.raises(BlockingIOError), locked(path):
        pass
    done.set()
    waiting.join()


@pytest.fixture
def listed_folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("a", "deep/b", "deep/manifest.json", "other/c"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, {"step": 3}, leave_out=("other",))
    return tmp_path


def test_a_manifest_lists_all_but_what_it_should_leave_out(listed_folder: Path) -> None:
    manifest = read_manifest(listed_folder, "ask a friend")
    assert manifest["step"] == 3
    assert list(manifest["files"]) == ["a", "deep/b", "deep/manifest.json"]
    assert manifest["files"]["deep/b"]["bytes"] == 6
    for name in manifest["files"]:
        verify(listed_folder, name, "ask a friend")


def test_damage_is_named(listed_folder: Path) -> None:
    (listed_folder / "a").write_text("b")
    with pytest.raises(FileError, match=r"/a is damaged \(its SHA-256 is not .*\): ask a friend\."):
        verify(listed_folder, "a", "ask a friend")
    (listed_folder / "a").write_text("longer")
    with pytest.raises(
        FileError, match=r"/a is damaged \(it has 6 bytes, and had 1 when written\): ask a friend\."
    ):
        verify(listed_folder, "a", "ask a friend")
    (listed_folder / "a").unlink()
    with pytest.raises(FileError, match=r"/a is missing: ask a friend\."):
        verify(listed_folder, "a", "ask a friend")
    manifest = listed_folder / MANIFEST
    manifest.write_text(manifest.read_text().replace('"step": 3', '"step": 4'))
    with pytest.raises(FileError, match=r"manifest\.json was altered: ask a friend\."):
        read_manifest(listed_folder, "ask a friend")
