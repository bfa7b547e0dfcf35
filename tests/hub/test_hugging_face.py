"""The Hugging Face hub without network: what its library is asked for is what it takes, and what it
answers becomes a sentence. Nothing here was answered by the hub itself."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from support.small_hub import REPO, everything, known_run, pushed

from element_rl.cli import main
from element_rl.hub import Hub, HubError, pull, push_run, repository_of
from element_rl.hub.folder_hub import FolderHub
from element_rl.hub.hugging_face import HuggingFaceHub

NOWHERE = "http://127.0.0.1:9"  # nobody listens there
REPOSITORY = repository_of(REPO)[0]


class Recorded:
    """Real functions of the library: arguments are bound to their signatures, and answered by
    us."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Callable[..., Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        for name, answer in answers.items():
            owner: Any = huggingface_hub if name == "snapshot_download" else huggingface_hub.HfApi
            monkeypatch.setattr(owner, name, self._bound(name, getattr(owner, name), answer))

    def _bound(self, name: str, real: Any, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            bound = dict(inspect.signature(real).bind(*arguments, **options).arguments)
            bound.pop("self", None)
            self.calls.append((name, bound))
            return answer(**bound)

        return call


def tree_of(folder: Path) -> list[Any]:
    """As `list_repo_tree` gives it: files have sizes, folders have none."""
    return [
        SimpleNamespace(
            path=entry.relative_to(folder).as_posix(),
            **({"size": entry.stat().st_size} if entry.is_file() else {}),
        )
        for entry in sorted(folder.rglob("*"))
    ]


def test_both_hubs_are_hubs(tmp_path: Path) -> None:
    for hub in (HuggingFaceHub(), FolderHub(tmp_path)):
        assert isinstance(hub, Hub)


def test_entries_of_the_real_library_have_what_is_asked_of_them() -> None:
    file = huggingface_hub.hf_api.RepoFile(path="a/b.json", size=3, oid="x")
    folder = huggingface_hub.hf_api.RepoFolder(path="a", oid="x")
    assert (file.path, file.size) == ("a/b.json", 3)
    assert not hasattr(folder, "size")


def test_a_push_is_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On what an earlier push left: two files of it are gone, and a stranger's stays."""
    run = known_run(tmp_path / "run")
    before = pushed(tmp_path / "hub", run, every_checkpoint=True)
    (before / "notes.txt").write_text("theirs")
    staged: dict[str, bytes] = {}

    def download(local_dir: Path, allow_patterns: list[str], **_: Any) -> str:
        for name in allow_patterns:
            (local_dir / name).write_bytes((before / name).read_bytes())
        return str(local_dir)

    recorded = Recorded(
        monkeypatch,
        repo_info=lambda **_: SimpleNamespace(sha="c0ffee"),
        list_repo_tree=lambda **_: iter(tree_of(before)),
        snapshot_download=download,
        create_repo=lambda **_: "https://huggingface.co/alice/car",
        upload_folder=lambda folder_path, **_: staged.update(everything(Path(folder_path))),
    )
    options: dict[str, Any] = {"video": False, "figures": False, "private": True}
    place = push_run(run, HuggingFaceHub(), REPOSITORY, message="Second", **options)
    assert place == "https://huggingface.co/alice/car"
    assert [name for name, _ in recorded.calls] == [
        "repo_info",
        "list_repo_tree",
        "snapshot_download",
        "create_repo",
        "upload_folder",
    ]
    calls = dict(recorded.calls)
    made, uploaded = calls["create_repo"], calls["upload_folder"]
    assert made == {"repo_id": REPO, "repo_type": "model", "private": True, "exist_ok": True}
    older = "checkpoints/step_000000010"
    assert uploaded["delete_patterns"] == [
        f"{older}/{name}" for name in ("manifest.json", "policy.safetensors", "visits.safetensors")
    ]
    assert uploaded["parent_commit"] == "c0ffee"
    assert uploaded["commit_message"] == "Second"
    assert {"manifest.json", "config.json", "README.md"} <= staged.keys()
    assert "notes.txt" not in staged
    assert not Path(uploaded["folder_path"]).exists()


def test_a_pull_takes_the_files_of_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = pushed(tmp_path / "hub", known_run(tmp_path / "run"))
    (there / ".gitattributes").write_text("")

    def download(local_dir: Path, allow_patterns: list[str], **_: Any) -> str:
        for name in allow_patterns:
            (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (local_dir / name).write_bytes((there / name).read_bytes())
        (local_dir / ".cache/huggingface").mkdir(parents=True)  # as the library does
        return str(local_dir)

    recorded = Recorded(
        monkeypatch,
        repo_info=lambda **_: SimpleNamespace(sha="c0ffee"),
        list_repo_tree=lambda **_: iter(tree_of(there)),
        snapshot_download=download,
    )
    pulled = pull(REPO, HuggingFaceHub(), revision="v1", say=lambda text: pytest.fail(text))
    (there / ".gitattributes").unlink()
    assert everything(pulled.path) == everything(there)
    assert recorded.calls[0][1]["revision"] == "v1"
    assert all(call["revision"] == "c0ffee" for _, call in recorded.calls[1:])
    assert all(call["repo_type"] == "model" for _, call in recorded.calls)


def test_a_repository_of_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (SimpleNamespace(path=f"{number}.json", size=1) for number in iter(int, 1))
    Recorded(
        monkeypatch,
        repo_info=lambda **_: SimpleNamespace(sha="c0ffee"),
        list_repo_tree=lambda **_: endless,
    )
    with pytest.raises(HubError, match="holds more than 10,000 files"):
        HuggingFaceHub().contents(REPOSITORY, None)


def refusing(kind: type[errors.HfHubHTTPError], status: int) -> Callable[..., Any]:
    response = SimpleNamespace(status_code=status, headers={}, request=None)

    def refuse(**_: Any) -> Any:
        raise kind("Forbidden: you may not.\nMore.", response=response)  # type: ignore[arg-type]

    return refuse


@pytest.mark.parametrize(
    ("kind", "status", "sentence"),
    [
        (errors.HfHubHTTPError, 401, "refused alice/car (401: Forbidden: you may not): log in"),
        (errors.HfHubHTTPError, 403, "(403: Forbidden: you may not): ask its owner, or log in"),
        (errors.HfHubHTTPError, 500, "(500: Forbidden: you may not): try again later"),
        (errors.GatedRepoError, 403, "(403: Forbidden: you may not): ask its owner"),
        (errors.RevisionNotFoundError, 404, "(404: Forbidden: you may not): look at its name"),
        (errors.RepositoryNotFoundError, 404, "There is no alice/car in the Hugging Face hub"),
    ],
)
def test_refusals(
    kind: type[errors.HfHubHTTPError],
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Recorded(monkeypatch, repo_info=refusing(kind, status))
    assert main(["pull", REPO]) == 2
    # below it is where the error was raised: in this file, which is not the package's
    assert sentence in capsys.readouterr().err.splitlines()[0]


def both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What push and pull say, each with exit code 2, and with nothing left behind."""
    known_run(tmp_path / "run")
    before, said = everything(tmp_path), []
    for arguments in (["push", str(tmp_path / "run"), REPO, "--no-video"], ["pull", REPO]):
        assert main(arguments) == 2
        said.append(capsys.readouterr().err)
        assert said[-1].count("\n") == 1
    assert everything(tmp_path) == before
    return said


def test_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real library, which is told not to ask (HF_HUB_OFFLINE is read when it is imported)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for sentence in both_ways(tmp_path, capsys):
        assert "is not asked while HF_HUB_OFFLINE is set" in sentence


def test_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real library, and a real connection that is refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for spelled in (name, name.upper()):
            monkeypatch.delenv(spelled, raising=False)
    real = huggingface_hub.HfApi

    def at_nowhere(**options: Any) -> Any:
        return real(endpoint=NOWHERE, token=False, **options)

    monkeypatch.setattr(huggingface_hub, "HfApi", at_nowhere)
    for sentence in both_ways(tmp_path, capsys):
        assert "The Hugging Face hub could not be used for alice/car (ConnectError" in sentence


def test_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for sentence in both_ways(tmp_path, capsys):
        assert "is not installed: pip install 'element-rl[hub]'." in sentence
