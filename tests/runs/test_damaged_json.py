"""Damaged text files of a run: one sentence that names the file, and exit code 2."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.car_run import written_run

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError

DEEP = "[" * 100_000 + "]" * 100_000
COMMANDS = {
    "evaluate": ("evaluate", "run", "--episodes", "1", "--workers", "0"),
    "collect": ("collect", "run", "--dataset", "car/one-v0", "--steps", "20", "--out", "data"),
    "finetune": ("finetune", "run", "--steps", "100", "--episodes", "1", "--out", "tuned"),
    "resume": ("explore", "--resume", "run"),
    "doctor": ("doctor", "run"),
    "report": ("report", "run"),
    "plot": ("plot", "run"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    return written_run(Path("run"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


def changed(run: RunFolder, **settings: Any) -> None:
    config = json.loads((run.path / "config.json").read_text())
    config["settings"] |= settings
    (run.path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("command", COMMANDS)
def test_deeply_nested(run: RunFolder, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (run.path / "config.json").write_text(DEEP)
    sentence = said(capsys, *COMMANDS[command])
    assert "run/config.json is damaged or no JSON file" in sentence


@pytest.mark.parametrize("wrong", [None, [1], "x", 7])
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_settings(
    run: RunFolder, capsys: pytest.CaptureFixture[str], command: str, wrong: Any
) -> None:
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps(config | {"settings": wrong}))
    assert "run/config.json is damaged (its 'settings' is" in said(capsys, *COMMANDS[command])


@pytest.mark.parametrize("name", ["env", "steps", "seeds", "seed", "env_options"])
@pytest.mark.parametrize("command", ["evaluate", "collect", "finetune", "resume"])
def test_wrong_types_in_settings(
    run: RunFolder, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    changed(run, **{name: {"a": 1}})
    sentence = said(capsys, *COMMANDS[command])
    assert f"run/config.json is damaged (its '{name}' is {{\"a\": 1}}, no" in sentence


def test_wrong_types_in_settings_of_a_learner(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(run, sac={"hidden_sizes": "wide"})
    sentence = said(capsys, *COMMANDS["resume"])
    assert "'hidden_sizes' of SACConfig in run/config.json is \"wide\", no tuple" in sentence


def test_without_settings(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((run.path / "config.json").read_text())
    del config["settings"]
    (run.path / "config.json").write_text(json.dumps(config))
    for command in ("evaluate", "collect", "resume"):
        sentence = said(capsys, *COMMANDS[command])
        assert "run/config.json is damaged (it has no 'settings')" in sentence


@pytest.mark.parametrize("step", ["inf", "nan", "1e300", ""])
def test_a_step_that_is_no_number(run: RunFolder, step: str) -> None:
    run.append_metrics([{"step": 1, "seed": 0}])
    lines = run.metrics_path.read_text().splitlines()
    run.metrics_path.write_text("\n".join([*lines, step + "," * lines[0].count(",")]) + "\n")
    for read in (run.read_metrics, lambda: run.truncate_metrics(1)):
        with pytest.raises(
            FileError, match=r"metrics\.csv holds something else than whole numbers"
        ):
            read()


def test_a_summary_of_wrong_types(run: RunFolder) -> None:
    (run.path / "summary.json").write_text('{"steps": "many"}')
    with pytest.raises(FileError, match=r"summary\.json is damaged \(its 'steps' is \"many\", no"):
        run.read_summary()
    (run.path / "summary.json").write_text(DEEP)
    with pytest.raises(FileError, match=r"summary\.json is damaged"):
        run.read_summary()
