"""Manifests find what was changed, and say which file it was."""

from pathlib import Path

import pytest

from element_rl.storage.files import MANIFEST, FileError, read_manifest, verify, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("a", "deep/b", "deep/manifest.json", "other/c"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, {"step": 3}, leave_out=("other",))
    return tmp_path


def test_a_manifest_lists_all_but_what_it_should_leave_out(folder: Path) -> None:
    manifest = read_manifest(folder, "ask a friend")
    assert manifest["step"] == 3
    assert list(manifest["files"]) == ["a", "deep/b", "deep/manifest.json"]
    assert manifest["files"]["deep/b"]["bytes"] == 6
    for name in manifest["files"]:
        verify(folder, name, "ask a friend")


def test_damage_is_named(folder: Path) -> None:
    (folder / "a").write_text("b")
    with pytest.raises(FileError, match=r"/a is damaged \(its SHA-256 is not .*\): ask a friend\."):
        verify(folder, "a", "ask a friend")
    (folder / "a").write_text("longer")
    with pytest.raises(
        FileError, match=r"/a is damaged \(it has 6 bytes, and had 1 when written\): ask a friend\."
    ):
        verify(folder, "a", "ask a friend")
    (folder / "a").unlink()
    with pytest.raises(FileError, match=r"/a is missing: ask a friend\."):
        verify(folder, "a", "ask a friend")
    manifest = folder / MANIFEST
    manifest.write_text(manifest.read_text().replace('"step": 3', '"step": 4'))
    with pytest.raises(FileError, match=r"manifest\.json was altered: ask a friend\."):
        read_manifest(folder, "ask a friend")
