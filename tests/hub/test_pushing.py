"""A second push replaces the first, and nothing else; what cannot be pushed is said in a
sentence."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.known_checkpoints import save
from support.small_hub import REPO, everything, known_run, pushed, rewritten

from element_rl.cli import main
from element_rl.hub import HubError, pull
from element_rl.hub.folder_hub import FolderHub
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    return known_run(tmp_path / "run")


def push(*arguments: str) -> int:
    return main(["push", *arguments, "--to", "hub", "--no-video", "--no-figures"])


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = everything(Path())
    assert push(*arguments) == 2
    assert everything(Path()).keys() - {"hub", "hub/alice"} == before.keys() - {"hub", "hub/alice"}
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_what_is_in_a_repository(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert push("run", REPO) == 0
    assert "Get it with: element pull alice/car --from hub\n" in capsys.readouterr().out
    files = {name for name in everything(Path("hub/alice/car")) if "." in name}
    checkpoint = "checkpoints/step_000000020"
    names = ("policy.safetensors", "visits.safetensors", "manifest.json")
    assert files == {"README.md", "config.json", "manifest.json"} | {
        f"{checkpoint}/{name}" for name in names
    }
    manifest = json.loads(Path("hub/alice/car/manifest.json").read_text())
    assert manifest["files"].keys() == files - {"manifest.json"}
    assert os.listdir("hub/alice") == ["car"]


def test_a_second_push_replaces_the_first(run: RunFolder) -> None:
    folder = pushed(Path("hub"), run, with_memory=True, every_checkpoint=True)
    (folder / "LICENSE").write_text("mine")
    (folder / "notes").mkdir()
    (folder / "notes" / "reward.py").write_text("theirs")
    outside = Path("outside.txt")
    outside.write_text("outside")
    (folder / "notes" / "link").symlink_to(outside.resolve())
    os.mkfifo(folder / "notes" / "pipe")
    save(run, 30, size=10)
    pushed(Path("hub"), run)
    pulled = pull(REPO, FolderHub(Path("hub")), say=lambda text: None)
    assert RunFolder.open(pulled.path).checkpoint_steps() == [30]
    assert not list(folder.glob("checkpoints/step_000000020"))
    assert (folder / "LICENSE").read_text() == "mine"
    assert (folder / "notes" / "reward.py").read_text() == "theirs"
    assert (folder / "notes" / "link").is_symlink()
    assert (folder / "notes" / "pipe").is_fifo()
    assert outside.read_text() == "outside"
    assert os.listdir("hub/alice") == ["car"]


@pytest.mark.parametrize("fails", ["write_hub_manifest", "run_card"])
def test_a_push_that_fails_leaves_the_repository_as_it_was(
    run: RunFolder, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(Path("hub"), run)
    before = everything(Path("hub"))

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"element_rl.hub.pushing.{fails}", interrupt)
    save(run, 30, size=10)
    with pytest.raises(KeyboardInterrupt):
        pushed(Path("hub"), run)
    assert everything(Path("hub")) == before


def test_a_rename_that_fails_is_taken_back(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed(Path("hub"), run)
    before = everything(Path("hub"))
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if Path(target).name == "car" and ".push" in Path(source).name:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(FileError, match="could not be written"):
        pushed(Path("hub"), run)
    assert everything(Path("hub")) == before


def test_files_that_were_not_pushed_are_not_replaced(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    known_run(Path("hub") / REPO)
    assert "holds files that were not pushed (" in said(capsys, "run", REPO)
    Path("hub/alice/new").mkdir()
    Path("hub/alice/new/README.md").write_text("# Soon")  # as Hugging Face makes a new one
    assert push("run", "alice/new") == 0
    assert Path("hub/alice/new/README.md").read_text().startswith("---\n")


def test_a_manifest_that_somebody_altered_removes_nothing(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pushed(Path("hub"), run)
    entry = {"bytes": 1, "sha256": "0" * 64}
    rewritten(
        folder, lambda manifest: manifest["files"].update({"../../../run/config.json": entry})
    )
    assert "which is no plain name within a folder" in said(capsys, "run", REPO)


def test_links_in_the_way(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pushed(Path("hub"), run)
    folder.rename("elsewhere")
    folder.symlink_to(Path("elsewhere").resolve())
    assert "hub/alice/car is a link to" in said(capsys, "run", REPO)


def test_what_cannot_be_pushed(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("nothing", "hub"):
        assert f"{what} is neither a run" in said(capsys, what, REPO)
    Path("study").mkdir()
    Path("study/results.json").write_text("{}")
    assert "study is a study, and runs or datasets are pushed" in said(capsys, "study", REPO)
    RunFolder.create("empty", {"kind": "explore", "settings": {}})
    assert "has no complete checkpoint yet" in said(capsys, "empty", REPO)
    known_run(Path("cell"), kind="collect")
    assert "is a run of the kind collect" in said(capsys, "cell", REPO)
    assert "'car' is no name of a repository" in said(capsys, "run", "car")
    for wrong in ("alice/car/more", "datasets/alice/car"):
        assert "A push is to USER/NAME" in said(capsys, "run", wrong)
    Path("file").write_text("")
    assert main(["push", "run", REPO, "--to", "file", "--no-video"]) == 2
    capsys.readouterr()


def test_a_damaged_run_is_not_pushed(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.path / "checkpoints/step_000000020/policy.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "run/checkpoints/step_000000020/policy.safetensors is damaged" in said(
        capsys, "run", REPO
    )


def test_a_film_that_cannot_be_made_is_left_out(run: RunFolder) -> None:
    notes: list[str] = []
    config = json.loads((run.path / "config.json").read_text()) | {"env": "nowhere:Nothing-v0"}
    config["settings"]["env"] = config["env"]
    (run.path / "config.json").write_text(json.dumps(config))
    folder = pushed(Path("hub"), RunFolder.open(run.path), video=True, say=notes.append)
    assert len(notes) == 1
    assert notes[0].startswith("Left out replay.mp4: ")
    assert not (folder / "replay.mp4").exists()


def test_a_file_in_the_way_of_a_folder(run: RunFolder) -> None:
    folder = pushed(Path("hub"), run)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_text("a note")
    with pytest.raises(HubError, match="checkpoints is in the way of a file that is pushed"):
        pushed(Path("hub"), run)
    assert (folder / "checkpoints").read_text() == "a note"
