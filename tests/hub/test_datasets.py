"""Datasets: pushed in Minari's own layout, pulled with every array as it was, and refused where
they are not what they say."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from huggingface_hub.errors import EntryNotFoundError
from huggingface_hub.utils import filter_repo_objects
from minari.storage.remotes.huggingface import HuggingFaceStorage
from support.collecting import assert_same
from support.small_hub import everything, replaced, rewritten

from element_rl.cli import main
from element_rl.datasets.minari_files import EpisodeRecord, read_dataset, write_dataset
from element_rl.hub import Repository, pull, push_dataset
from element_rl.hub.folder_hub import FolderHub

NAME = "car/one-v0"
REPO = "alice/car"
DATA = "one-v0/data/main_data.hdf5"
BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


def written(name: str, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)

    def episode(steps: int) -> EpisodeRecord:
        return EpisodeRecord.ended(
            generator.normal(size=(steps + 1, 2)).astype(np.float32),
            generator.uniform(-1, 1, size=(steps, 2)).astype(np.float32),
            generator.normal(size=steps),
            terminated=False,
            truncated=True,
            infos={"position": generator.normal(size=(steps + 1, 2)).astype(np.float32)},
            metadata={"agent": seed, "entropy": 0.5},
        )

    about = {"description": "Made up.", "element_rl": {"run": "/home/alice/runs/car"}}
    return write_dataset(name, map(episode, (5, 9, 3)), BOX, BOX, None, about)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


@pytest.fixture
def repository(root: Path) -> Path:
    """A repository of one dataset, which is no longer here."""
    written(NAME)
    assert main(["push", NAME, REPO, "--to", "hub"]) == 0
    shutil.rmtree(root)
    return Path("hub/datasets") / REPO


def refused(capsys: pytest.CaptureFixture[str], name: str = REPO) -> str:
    capsys.readouterr()
    before = everything(Path("hub"))
    assert main(["pull", name, "--from", "hub"]) == 2
    assert everything(Path("hub")) == before
    left = [path for path in Path("datasets").rglob("*")] if Path("datasets").exists() else []
    assert [path for path in left if path.is_file() or path.name.startswith(".")] == []
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_pushed_deleted_and_pulled(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_dataset(written(NAME))
    assert main(["push", str(root / NAME), REPO, "--to", "hub"]) == 0
    shutil.rmtree(root)
    for place in (REPO, f"datasets/{REPO}", f"{REPO}/one-v0"):
        assert main(["pull", place, "--from", "hub", "--out", place]) == 0
        assert_same(read_dataset(Path(place) / NAME), before)
    assert main(["pull", REPO, "--from", "hub"]) == 0
    assert "Dataset: " in capsys.readouterr().out
    assert sorted(os.listdir(root / "car")) == ["namespace_metadata.json", "one-v0"]
    theirs = minari.load_dataset(NAME)
    assert [len(episode) for episode in theirs.iterate_episodes()] == [5, 9, 3]
    assert theirs.storage.metadata["element_rl"] == {"run": "car"}
    assert f"The dataset {NAME} exists already" in _said(capsys, "pull", REPO, "--from", "hub")


def _said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_several_datasets_of_a_repository(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate(("one-v0", "deep/two-v0", "one-v0")):
        if not (root / "car" / name).exists():
            written(f"car/{name}", seed)
        assert main(["push", f"car/{name}", REPO, "--to", "hub"]) == 0
    folder = Path("hub/datasets") / REPO
    names = ["car/deep/two-v0", "car/one-v0"]
    assert json.loads((folder / "namespace_metadata.json").read_text()) == {
        "datasets": names,
        "namespaces": ["car/deep"],
    }
    card = (folder / "README.md").read_text()
    assert all(f"| `{name}` |" in card for name in names)
    shutil.rmtree(root)
    assert "name one of alice/car/deep/two-v0, alice/car/one-v0." in refused(capsys)
    assert main(["pull", f"{REPO}/deep/two-v0", "--from", "hub"]) == 0
    assert len(read_dataset("car/deep/two-v0").episodes.lengths) == 3


class FolderApi:
    """The functions of Hugging Face's library that Minari calls, on the hub of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_datasets(self, author: str, dataset_name: str | None = None) -> Iterator[Any]:
        for folder in sorted((self.root / author).iterdir()):
            if dataset_name is None or dataset_name in folder.name:
                yield SimpleNamespace(id=f"{author}/{folder.name}")

    def hf_hub_download(
        self, repo_id: str, filename: str, repo_type: str, local_dir: Path | None = None, **_: Any
    ) -> str:
        file = self.root / repo_id / filename
        if not file.exists():
            raise EntryNotFoundError(filename)
        if local_dir is not None:
            (local_dir / filename).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, local_dir / filename)
        return str(file)

    def snapshot_download(
        self, repo_id: str, allow_patterns: str, repo_type: str, local_dir: Path
    ) -> None:
        folder = self.root / repo_id
        names = [file.relative_to(folder).as_posix() for file in folder.rglob("*.*")]
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, local_dir / name)


@pytest.mark.parametrize("name", [NAME, "car/deep/two-v0", "car-v0"])
def test_minari_finds_and_downloads_it(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own functions for `hf://alice`, of which only the network is ours."""
    before = read_dataset(written(name))
    repository = Repository("dataset", "alice", name.split("/")[0])
    push_dataset(name, FolderHub(Path("hub")), repository)
    shutil.rmtree(root)
    root.mkdir()
    storage = HuggingFaceStorage("alice")
    storage._api = FolderApi(Path("hub/datasets").resolve())  # type: ignore[assignment]
    monkeypatch.setattr("minari.storage.hosting.get_cloud_storage", lambda **_: storage)
    monkeypatch.setattr("minari.namespace.get_cloud_storage", lambda **_: storage)
    assert list(minari.list_remote_datasets("hf://alice")) == [name]
    minari.download_dataset(f"hf://alice/{name}")
    assert_same(read_dataset(name), before)
    assert minari.load_dataset(name).total_episodes == 3


def test_a_dataset_without_a_namespace(root: Path) -> None:
    before = read_dataset(written("car-v0"))
    assert main(["push", "car-v0", "alice/car-v0", "--to", "hub"]) == 0
    assert main(["push", "car-v0", "alice/car-v0", "--to", "hub"]) == 0
    shutil.rmtree(root)
    pulled = pull("alice/car-v0", FolderHub(Path("hub")))
    assert (pulled.kind, pulled.path) == ("dataset", root / "car-v0")
    assert_same(read_dataset("car-v0"), before)


def test_what_is_not_pushed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(NAME)
    said = _said(capsys, "push", NAME, "alice/boat", "--to", "hub")
    assert f"looks for the dataset {NAME} in a repository called car: push it to alice/car" in said
    theirs = Path("hub/datasets/alice/car/one-v0/data")
    theirs.mkdir(parents=True)
    (theirs / "metadata.json").write_text("{}")
    assert "holds files that were not pushed" in _said(capsys, "push", NAME, REPO, "--to", "hub")
    (root / NAME / "data" / "evil.py").write_text("")
    shutil.rmtree("hub")
    assert "lists the file 'data/evil.py'" in _said(capsys, "push", NAME, REPO, "--to", "hub")


def test_damage(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((repository / DATA).read_bytes())
    data[1000] ^= 1
    (repository / DATA).write_bytes(data)
    assert "is damaged (its SHA-256 is not" in refused(capsys)
    (repository / DATA).unlink()
    assert f"{DATA} is missing" in refused(capsys)
    (repository / "one-v0" / "manifest.json").unlink()
    assert "has no one-v0/manifest.json" in refused(capsys)


@pytest.mark.parametrize("name", ["../../x", "other/one-v0", "car/two-v0", 7])
def test_a_dataset_of_another_name(
    repository: Path, name: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads((repository / "one-v0/data/metadata.json").read_text())
    text = json.dumps(about | {"dataset_id": name}).encode()
    replaced(repository / "one-v0", "data/metadata.json", text)
    refused(capsys)


def test_names_in_its_manifest(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"bytes": 1, "sha256": "0" * 64}
    rewritten(
        repository / "one-v0", lambda manifest: manifest["files"].update({"../../x.json": entry})
    )
    assert "which is no plain name within a folder" in refused(capsys)
    (repository / "one-v0").rename(repository / "..one-v0")
    refused(capsys)


def _external(file: h5py.File) -> None:
    file["episode_0/theirs"] = h5py.ExternalLink("/etc/other.hdf5", "/x")


def _soft(file: h5py.File) -> None:
    file["episode_0/theirs"] = h5py.SoftLink("/episode_1")


def _elsewhere(file: h5py.File) -> None:
    file.create_dataset("theirs", (10,), "u1", external=[("/etc/passwd", 0, 10)])


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((10,), "u1")
    layout[:] = h5py.VirtualSource("/etc/other.hdf5", "x", (10,))
    file.create_virtual_dataset("theirs", layout)


def _bomb(file: h5py.File) -> None:
    file.create_dataset("theirs", (1 << 40,), "f8", chunks=(1 << 10,), compression="gzip")


def _itself(file: h5py.File) -> None:
    file["episode_0/theirs"] = file["/"]
    _bomb(file)


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (_external, "has the link 'theirs', which may lead to another file"),
        (_soft, "has the link 'theirs', which may lead to another file"),
        (_elsewhere, "has the array 'theirs', which lies in another file"),
        (_virtual, "has the array 'theirs', which lies in another file"),
        (_bomb, "claims an array of 8.0 TiB, 'theirs', of which it holds"),
        (_itself, "claims an array of 8.0 TiB, 'theirs', of which it holds"),
    ],
)
def test_hdf5_that_does_harm(
    repository: Path, harm: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(repository / DATA, "a") as file:
        harm(file)
    replaced(repository / "one-v0", "data/main_data.hdf5", (repository / DATA).read_bytes())
    assert sentence in refused(capsys)


def test_hdf5_that_is_none(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(repository / "one-v0", "data/main_data.hdf5", b"no")
    assert "is damaged or no HDF5 file" in refused(capsys)
