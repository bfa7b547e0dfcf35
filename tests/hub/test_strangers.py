"""Repositories that somebody else made: each is refused in one sentence, and nothing is written."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.small_hub import REPO, everything, known_run, pushed, replaced, rewritten

from element_rl.cli import main
from element_rl.hub import HubError, pull
from element_rl.hub.folder_hub import FolderHub

HEX = "0" * 64
CHECKPOINT = "checkpoints/step_000000020"
POLICY = f"{CHECKPOINT}/policy.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as it should be."""
    place = tmp_path_factory.mktemp("made")
    return pushed(place / "hub", known_run(place / "run"))


@pytest.fixture
def repository(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the hub `hub` of the current folder, which has a neighbour."""
    monkeypatch.chdir(tmp_path)
    folder = Path("hub") / REPO
    for name, data in everything(made).items():
        if data or (made / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    Path("runs/other").mkdir(parents=True)
    Path("runs/other/config.json").write_text("mine")
    return folder


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Pulls; the sentence. Nothing is there afterwards that was not there before."""
    before = everything(Path())
    capsys.readouterr()
    assert main(["pull", REPO, "--from", "hub", *options]) == 2
    assert everything(Path()) == before
    error = capsys.readouterr().err
    assert error.startswith("element: ")
    assert error.count("\n") == 1
    return error


def listing(name: str, size: Any = 1, sha256: Any = HEX) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["files"].update({name: {"bytes": size, "sha256": sha256}})


def test_what_is_as_it_was_pushed_is_pulled(repository: Path) -> None:
    pulled = pull(REPO, FolderHub(Path("hub")), say=lambda text: pytest.fail(text))
    assert pulled.path == Path("runs/car")
    assert everything(pulled.path) == everything(repository)
    assert sorted(os.listdir("runs")) == ["car", "other"]


@pytest.mark.parametrize(
    "name",
    [
        "../../runs/other/config.json",
        "/tmp/config.json",
        "a/../../b.json",
        "..",
        "a\\..\\b.json",
        "C:\\x.json",
        "C:x.json",
        ".config.json",
        "a/.git/x.json",
        "a//b.json",
        "./b.json",
        "a/b.json/",
        "",
        "x\n.json",
        "x\0.json",
        "ä.json",
        "a/" * 20 + "b.json",
        "a" * 300 + ".json",
        "-rf.json",
        "CON:.json",
    ],
)
def test_names_that_lead_elsewhere(
    repository: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(repository, listing(name))
    assert "which is no plain name within a folder" in refused(capsys)


@pytest.mark.parametrize("name", ["reward.py", "x.pkl", "x.so", "x.svg", "x.html", "manifest.json"])
def test_files_that_no_run_has(
    repository: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(repository, name, b"x") if name != "manifest.json" else rewritten(
        repository, listing(name)
    )
    assert f"lists the file '{name}', and takes files that end in" in refused(capsys)


def test_names_that_a_disk_takes_for_one(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(repository, listing("CONFIG.json"))
    assert "lists both CONFIG.json and config.json" in refused(capsys)


def test_a_file_within_a_file(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewritten(repository, listing("config.json/x.json"))
    assert "lists config.json/x.json within a file" in refused(capsys)


@pytest.mark.parametrize(
    ("size", "digest"), [(-1, HEX), ("1", HEX), (True, HEX), (1.0, HEX), (1, "x"), (1, None)]
)
def test_sizes_and_sums_of_other_types(
    repository: Path, size: Any, digest: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(repository, listing("config.json", size, digest))
    assert "has no size and SHA-256 for 'config.json'" in refused(capsys)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"files": [1]}, "has no list of at most"),
        ({"files": None}, "has no list of at most"),
        ({"files": {"a.json": 3}}, "has no size and SHA-256 for 'a.json'"),
        ({"format": "other"}, "is not one of element push"),
        ({"kind": "program"}, "is not one of element push"),
        ({"kind": ["run"]}, "is not one of element push"),
        ({"kind": "dataset"}, "and takes files that end in .json, .hdf5"),
        ({"version": 2}, "was pushed by another version"),
    ],
)
def test_manifests_of_other_forms(
    repository: Path, change: dict, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(repository, lambda manifest: manifest.update(change))
    assert sentence in refused(capsys)


@pytest.mark.parametrize("text", ["", "3", "[" * 100_000, '{"files": {}}', "\x00", '{"a": NaN}'])
def test_manifests_that_are_none(
    repository: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "manifest.json").write_text(text)
    refused(capsys)


def test_without_a_manifest(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "manifest.json").unlink()
    assert "alice/car has no manifest.json" in refused(capsys)


def test_a_damaged_byte(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((repository / POLICY).read_bytes())
    data[-1] ^= 1
    (repository / POLICY).write_bytes(data)
    assert f"{POLICY} of alice/car is damaged (its SHA-256 is not" in refused(capsys)


def test_a_file_that_is_cut(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = (repository / POLICY).stat().st_size
    os.truncate(repository / POLICY, size - 1)
    assert f"has {size - 1:,} bytes, and had {size:,} when it was pushed" in refused(capsys)


def test_a_missing_file(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / POLICY).unlink()
    assert f"{POLICY} is missing in alice/car" in refused(capsys)


def test_other_files_are_left_out(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "reward.py").write_text("raise SystemExit")
    (repository / ".gitattributes").write_text("")
    (repository / "link.json").symlink_to("/etc/passwd")
    assert main(["pull", REPO, "--from", "hub"]) == 0
    said = capsys.readouterr().out
    assert "Left out what is not in manifest.json: link.json, reward.py.\n" in said
    assert {"reward.py", "link.json"}.isdisjoint(everything(Path("runs/car")))


@pytest.mark.parametrize("edit", ["# Mine", None, "same size"])
def test_a_card_that_was_edited_is_left_out(
    repository: Path, edit: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """People write in it on the hub's own page; the run is as it was."""
    card = repository / "README.md"
    text = card.read_text()
    card.unlink() if edit is None else card.write_text(
        text.replace("car", "cat") if edit == "same size" else edit
    )
    assert main(["pull", REPO, "--from", "hub"]) == 0
    assert "Left out README.md: it was edited since" in capsys.readouterr().out
    assert not Path("runs/car/README.md").exists()


def test_links_pipes_and_folders(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = repository / "config.json"
    text = config.read_bytes()
    Path("secret.json").write_bytes(text)
    for make, what in (
        (lambda: config.symlink_to(Path("secret.json").resolve()), "is a link"),
        (lambda: os.mkfifo(config), "is a pipe"),
    ):
        config.unlink()
        make()
        assert f"config.json of alice/car {what}, and no plain file" in refused(capsys)
    config.unlink()
    config.mkdir()
    assert "config.json is missing in alice/car" in refused(capsys)
    config.rmdir()
    config.write_bytes(text)
    (repository / "checkpoints").rename("elsewhere")
    (repository / "checkpoints").symlink_to(Path("elsewhere").resolve())
    assert "checkpoints of alice/car is a link" in refused(capsys)


def test_a_repository_that_is_a_link(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository.rename("elsewhere")
    repository.symlink_to(Path("elsewhere").resolve())
    assert "hub/alice/car is a link to" in refused(capsys)


def test_sizes_are_looked_at_before_anything_is_read(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (repository / "big.mp4").open("wb") as file:
        file.truncate(1 << 40)  # takes no room
    rewritten(repository, listing("big.mp4", 1 << 40))
    assert "alice/car has 1.0 TiB, and 8.0 GiB are taken at most" in refused(capsys)
    assert "and 1.0 MiB are taken at most" in refused(capsys, "--max-size", str(1 / 1024))
    assert "would need 1.0 TiB of the disk" in refused(capsys, "--max-size", "1e6")
    with (repository / "big.json").open("wb") as file:
        file.truncate(1 << 30)
    rewritten(repository, lambda manifest: manifest["files"].pop("big.mp4"))
    rewritten(repository, listing("big.json", 1 << 30))
    assert "big.json of alice/car has 1.0 GiB, and such a file has 64.0 MiB" in refused(capsys)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 1 << 62),
        struct.pack("<Q", 40 << 20) + b" " * (41 << 20),
        b"",
        struct.pack("<Q", 2) + b"[]",
        b"x" * 100,
    ],
    ids=["longer than the file", "too long", "empty", "a list", "none"],
)
def test_headers_of_arrays(
    repository: Path, header: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(repository, "warm_up.safetensors", header)
    assert "warm_up.safetensors of alice/car" in refused(capsys)


@pytest.mark.parametrize("shape", [[1 << 62, 1 << 62], [0, 1 << 62], [3]])
def test_arrays_that_are_not_there(
    repository: Path, shape: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
    header = json.dumps(entry).encode()
    replaced(repository, "warm_up.safetensors", struct.pack("<Q", len(header)) + header)
    assert "warm_up.safetensors of alice/car" in refused(capsys)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "[" * 100_000),
        ("config.json", "[]"),
        ("config.json", '{"kind": "virus"}'),
        ("config.json", '{"settings": []}'),
        ("summary.json", "[" * 100_000),
        ("metrics.csv", "step,seed\nx,y\n"),
        (f"{CHECKPOINT}/manifest.json", "{}"),
    ],
)
def test_texts_that_commands_would_stumble_over(
    repository: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced(repository, name, text.encode())
    refused(capsys)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"../../../../etc/passwd": {"bytes": 1, "sha256": HEX}}, "which was not pushed"),
        ({"policy.safetensors": 7}, "has no size and SHA-256"),
        ([], "has no list of"),
    ],
)
def test_a_checkpoint_that_lists_what_is_not_its_own(
    repository: Path, files: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(repository / CHECKPOINT, lambda manifest: manifest.update(files=files))
    name = f"{CHECKPOINT}/manifest.json"
    replaced(repository, name, (repository / name).read_bytes())
    assert sentence in refused(capsys)


def test_code_is_named_and_not_run(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('it was run')")
    config = json.loads((repository / "config.json").read_text())
    config |= {"env": "trap:Trap-v0", "reward": "trap.py:reward"}
    replaced(repository, "config.json", json.dumps(config).encode())
    assert main(["pull", REPO, "--from", "hub"]) == 0
    said = capsys.readouterr().out
    assert "Its environment 'trap:Trap-v0' is made by the Python module 'trap', which was" in said
    assert "Its reward 'trap.py:reward' is a function in a file, which was not pulled" in said


def test_what_exists_is_left_alone(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "runs/other exists already" in refused(capsys, "--out", "runs/other")
    Path("runs/dangling").symlink_to("nowhere")
    assert "runs/dangling exists already" in refused(capsys, "--out", "runs/dangling")


def test_an_interrupted_pull_leaves_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        assert any(name.startswith(".car") for name in os.listdir("runs"))
        raise KeyboardInterrupt

    before = everything(Path())
    monkeypatch.setattr("element_rl.hub.pulling.check_run", interrupt)
    assert main(["pull", REPO, "--from", "hub"]) == 130
    assert everything(Path()) == before


@pytest.mark.parametrize(
    "name", ["car", "alice/../x", "/x/y", "a/b\\c", "datasets/x", "a/-b", "a/"]
)
def test_names_of_repositories(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", name, "--from", str(tmp_path)]) == 2
    assert "is no name of a repository" in capsys.readouterr().err


def test_what_a_folder_has_not(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "alice/boat", "--from", "hub"]) == 2
    assert "There is no alice/boat in the hub in hub" in capsys.readouterr().err
    assert "A folder keeps no revisions" in refused(capsys, "--revision", "main")
    assert "--max-size must be positive" in refused(capsys, "--max-size", "0")


def test_a_file_that_is_swapped_while_it_is_read(repository: Path, tmp_path: Path) -> None:
    """Between the list and the copy."""
    hub = FolderHub(Path("hub"))
    contents = hub.contents(_repository(), None)
    assert contents is not None
    config = repository / "config.json"
    for number, swap in enumerate((lambda: config.symlink_to("/etc/passwd"), config.mkdir)):
        config.unlink()
        swap()
        with pytest.raises(HubError, match=r"config\.json"):
            hub.download(contents, ["config.json"], tmp_path / f"copy{number}")
    config.rmdir()
    config.write_bytes(b"x" * (contents.files["config.json"] + 1))
    with pytest.raises(HubError, match="has changed while it was read"):
        hub.download(contents, ["config.json"], tmp_path / "copy")


def _repository() -> Any:
    from element_rl.hub import repository_of

    return repository_of(REPO)[0]
