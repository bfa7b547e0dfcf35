"""Command lines that cannot be meant: one sentence and exit code 2, at once and before anything is
written."""

import shutil
from pathlib import Path

import pytest
from support.car_run import written_run

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.storage.capacity import refuse_beyond_disk

SMALL_RUN = ("--no-figures", "--workers", "0", "--out", "run")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says to that; it wrote no run."""
    try:
        code = main(arguments)
    except SystemExit as leaving:  # tyro's, of an option that it cannot read
        code = int(leaving.code or 0)
    said = capsys.readouterr().err
    assert code == 2, said
    assert "Traceback" not in said
    assert not (Path("run") / "config.json").exists()
    return " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize("number", ["99999999999", "1e11", "2147483648", "-1e300"])
def test_more_than_can_be_counted_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    said = refused(capsys, "explore", "PointMaze", "--steps", number, *SMALL_RUN)
    assert "at most 2147483647" in said


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_numbers_are_finite(here: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    said = refused(capsys, "explore", "PointMaze", "--beta", number, *SMALL_RUN)
    assert "a finite number is needed" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("maze", "--seeds", "2e9"),
        ("maze", "--episodes", "2e9"),
        ("maze", "--steps", "2e9"),
        ("explore", "PointMaze", "--seeds", "2e9", *SMALL_RUN),
        ("explore", "PointMaze", "--random-seeds", "2e9", *SMALL_RUN),
        ("on-policy", "Rooms-v0", "--random-seeds", "2e9", *SMALL_RUN),
        ("explore", "PointMaze", "--sac.hidden-sizes", "2e9", "2e9", *SMALL_RUN),
        ("on-policy", "Rooms-v0", "--a3c.hidden-size", "2e9", *SMALL_RUN),
        ("finetune", "source", "--episodes", "2e9"),
        ("offline", "a/data-v0", "--episodes", "2e9", *SMALL_RUN),
        ("offline", "a/data-v0", "--seeds", "2e9", *SMALL_RUN),
        ("evaluate", "source", "--episodes", "2e9"),
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
def test_more_than_the_machine_holds_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    if "source" in arguments:
        written_run(Path("source"))
    said = refused(capsys, *arguments)
    assert "of memory, and this machine has" in said


def test_more_than_the_disk_holds_is_refused(here: Path) -> None:
    free = shutil.disk_usage(here).free
    refuse_beyond_disk("A little", here / "not" / "yet", 1)
    with pytest.raises(
        ValueError, match=r"^All of it would need .* of the disk of .*not/yet, wher"
    ):
        refuse_beyond_disk("All of it", here / "not" / "yet", 2 * free + 2**40)


def test_runs_of_other_kinds_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_run(Path("source"))
    for kind in ("offline", "encoder"):
        RunFolder.create(kind, {"kind": kind, "settings": {"env": "PointMaze-v0"}})
        said = refused(capsys, "collect", kind, "--dataset", "car/other-v0", "--steps", "10")
        assert f"{kind} is a run of the kind {kind}, and collecting takes explore or" in said
    said = refused(capsys, "on-policy", "Rooms-v0", "--begin", "source", *SMALL_RUN)
    assert "source is a run of the kind explore, and --begin takes on-policy only" in said


@pytest.mark.parametrize("option", ["name=x", "id=x", "disable_env_checker=1"])
def test_options_with_names_of_ours_go_to_the_environment(
    here: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    written_run(Path("source"))
    task = ("--env-options", option, "--steps", "100")
    said = refused(capsys, "finetune", "source", "--out", "run", *task)
    assert "cannot be made" in said
    said = refused(capsys, "explore", "PointMaze", *task, *SMALL_RUN)
    assert "cannot be made" in said


def test_an_episode_without_an_end_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = ("--env-options", "max_episode_steps=2000000000")
    said = refused(capsys, "explore", "PointMaze", *endless, *SMALL_RUN)
    assert "max_episode_steps must be a whole number from 1 to 10,000,000" in said
