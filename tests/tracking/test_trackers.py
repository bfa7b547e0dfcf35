"""A run in every tracker: its offline files, read back by the tracker's own library, have what
metrics.csv has; and a run is the same with and without trackers, whatever those do."""

import dataclasses
import textwrap
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from support.run_outcomes import TIMING, assert_same, outcome
from support.trackers import (
    NAMES,
    PROJECT,
    environment,
    expected,
    identity,
    mlflow_client,
    mlflow_files,
    mlflow_logged,
    of_trackio,
    trackio_logged,
    wandb_logged,
    wandb_records,
    without_results,
)

from element_rl.cli import main
from element_rl.commands.explore import COMMAND
from element_rl.commands.training import run_training
from element_rl.doctor.run_folder import check_run, opened_run
from element_rl.runs.folder import RunFolder
from element_rl.tracking import processes, settings

pytestmark = [
    # of MLflow, about folders as stores
    pytest.mark.filterwarnings("ignore:.*filesystem tracking backend.*:FutureWarning"),
]
TINY = [
    *("--steps", "300", "--seeds", "2", "--env-options", "max_episode_steps=50"),
    *(
        "--log-every",
        "50",
        "--replay-size",
        "2500",
        "--sac.hidden-sizes",
        "8",
        "--sac.batch-size",
        "8",
    ),
    *("--workers", "0", "--chunk-steps", "50", "--random-seeds", "0", "--no-figures"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(scope="module", autouse=True)
def _offline(place: Path):
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment(place).items():
            patched.setenv(name, value)
        patched.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for reading, in this process
        patched.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


def drawn(given, run: RunFolder) -> list[Path]:
    path = run.figures_path / "coverage.png"
    path.parent.mkdir(exist_ok=True)
    imageio.imwrite(path, np.zeros((8, 8, 3), np.uint8))
    return [path]


def filmed(given, run: RunFolder) -> None:
    run.evaluation_path.mkdir(exist_ok=True)
    (run.evaluation_path / "step_000000300.mp4").write_bytes(b"sent as it is")


@pytest.fixture(scope="module")
def plain(place: Path) -> RunFolder:
    """The run without trackers."""
    assert main(["explore", "PointMaze", *TINY, "--out", str(place / "plain")]) == 0
    return RunFolder.open(place / "plain")


@pytest.fixture(scope="module")
def run(place: Path, plain: RunFolder) -> RunFolder:
    """The same with all three, and with a figure and a film that take no time."""
    command = dataclasses.replace(COMMAND, draw=drawn, film=filmed)
    arguments = ["PointMaze", *TINY, "--out", str(place / "run"), "--video", "--track", *NAMES]
    arguments.remove("--no-figures")
    assert run_training(command, arguments, "element explore") == 0
    return RunFolder.open(place / "run")


@pytest.mark.parametrize(
    "logged", [wandb_logged, trackio_logged, mlflow_logged], ids=lambda read: read.__name__
)
def test_metrics_are_those_of_the_run(run: RunFolder, logged) -> None:
    read = without_results(logged(run))
    assert read == expected(run)
    assert {"coverage", "seed_0/coverage", "seed_1/episodes"} <= read.keys()
    assert len(read["coverage"]) == len(np.unique(run.read_metrics()["step"])) > 3


def test_wandb_has_settings_figures_film_and_files(run: RunFolder) -> None:
    records = wandb_records(run)
    (begun,) = (record["run"] for record in records if record["type"] == "run")
    assert begun["run_id"] == identity(run, "wandb")
    assert (begun["project"], begun["display_name"]) == (PROJECT, "run")
    assert (begun["run_group"], begun["job_type"]) == ("PointMaze-v0-element", "explore")
    assert begun["config"]["update"]["settings"] == run.config["settings"]
    shown = {
        name.removesuffix("._type"): value
        for record in records
        if record["type"] == "history"
        for name, value in record["history"]["item"].items()
        if name.endswith("._type")
    }
    assert shown == {
        "figures/coverage": "image-file",
        "evaluation/step_000000300": "video-file",
    }
    (artifact,) = (record["artifact"] for record in records if record["type"] == "artifact")
    check_files(run, [entry["path"] for entry in artifact["manifest"]["contents"]])
    summary = {
        name: value
        for record in records
        if record["type"] == "summary"
        for name, value in record["summary"].get("update", {}).items()
    }
    assert summary["final/coverage"] == np.mean(run.read_summary()["coverage"])
    assert records[-1]["exit"]["exit_code"] == 0


def test_trackio_has_settings_figures_film_and_files(run: RunFolder) -> None:
    script = f"""if True:
        import json, trackio
        from trackio.sqlite_storage import SQLiteStorage as stored
        (run,) = trackio.Api().runs({PROJECT!r})
        logs = stored.get_logs({PROJECT!r}, "run")
        (artifact,) = stored.get_artifacts({PROJECT!r})
        trackio.init(project={PROJECT!r}, name="reader", embed=False, auto_log_cpu=False)
        files = trackio.use_artifact(artifact["name"] + ":latest").manifest
        print("\\nREAD" + json.dumps([run.id, run.config, logs, files]))"""
    number, config, logs, files = of_trackio(script)
    assert number == identity(run, "trackio")
    assert config["settings"] == run.config["settings"]
    assert config["_Group"] == "PointMaze-v0-element"
    shown = {name: value["_type"] for name, value in logs[-1].items() if isinstance(value, dict)}
    assert shown == {
        "figures/coverage": "trackio.image",
        "evaluation/step_000000300": "trackio.video",
    }
    assert logs[-1]["final/coverage"] == np.mean(run.read_summary()["coverage"])
    check_files(run, [entry["path"] for entry in files])


def test_mlflow_has_settings_figures_film_and_files(run: RunFolder) -> None:
    client, number = mlflow_client(run), identity(run, "mlflow")
    stored = client.get_run(number)
    assert client.get_experiment(stored.info.experiment_id).name == PROJECT
    assert (stored.info.run_name, stored.info.status) == ("run", "FINISHED")
    assert stored.data.params["settings.sac.batch_size"] == "8"
    assert stored.data.params["settings.env"] == "PointMaze-v0"
    assert stored.data.tags["group"] == "PointMaze-v0-element"
    assert stored.data.metrics["final/coverage"] == np.mean(run.read_summary()["coverage"])
    check_files(run, mlflow_files(run))


def check_files(run: RunFolder, paths: list[str]) -> None:
    """What every tracker has of the run's folder."""
    step = f"checkpoints/step_{run.latest_checkpoint():09d}"
    assert {"config.json", "metrics.csv", "summary.json", f"{step}/policy.safetensors"} < set(paths)
    assert {"figures/coverage.png", "evaluation/step_000000300.mp4"} < set(paths)
    assert not [path for path in paths if "resume" in path or "tracking" in path]


def test_the_run_is_the_same_without_trackers(run: RunFolder, plain: RunFolder) -> None:
    assert_same_run(run, plain)
    sentences = [finding.sentence for finding in check_run(*opened_run(run.path))]
    assert sentences == [
        sentence.replace("/plain", "/run")
        for sentence in (finding.sentence for finding in check_run(*opened_run(plain.path)))
    ]


def assert_same_run(run: RunFolder, plain: RunFolder) -> None:
    """All but timing: settings, metrics, summary, and every array of the checkpoints."""
    assert run.config == plain.config
    assert_same(outcome(run), outcome(plain))
    summaries = [
        {name: value for name, value in one.read_summary().items() if name not in TIMING}
        for one in (run, plain)
    ]
    assert summaries[0] == summaries[1]
    assert run.checkpoint_steps() == plain.checkpoint_steps()
    ours, theirs = (one.load_resume()[0] for one in (run, plain))
    assert ours.keys() == theirs.keys()
    for name in ours:
        if "seconds" not in name:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


BROKEN = {
    "wandb": """
        import time
        class Settings:
            model_fields = ()
        def init(**options):
            time.sleep(600)
        """,
    "trackio": """
        class Run:
            id = "x"
            def log(self, metrics, step):
                raise ConnectionError("no route to the hub\\nand more of it")
        def init(**options):
            return Run()
        """,
    "mlflow": "import os; os.abort()",
}


def test_trackers_that_hang_raise_or_crash_change_nothing_and_say_one_sentence(
    tmp_path: Path,
    plain: RunFolder,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, code in BROKEN.items():  # which the trackers' processes find before the true ones
        (tmp_path / "broken" / name).mkdir(parents=True)
        (tmp_path / "broken" / name / "__init__.py").write_text(textwrap.dedent(code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"), prepend=":")
    monkeypatch.setattr(processes, "PATIENCE", 4.0)
    out = tmp_path / "run"
    assert main(["explore", "PointMaze", *TINY, "--out", str(out), "--track", *NAMES]) == 0
    assert_same_run(RunFolder.open(out), plain)
    said = capfd.readouterr().err.splitlines()
    again = (
        f"the run goes on, and what is missing there is sent when it is resumed with --resume {out}"
    )
    assert sorted(said) == [
        "Not done in 4 s, and left: wandb; the run is complete, and --resume with --track sends "
        "what is missing.",
        f"mlflow failed (it ended with code -6): {again} --track mlflow.",
        f"trackio failed (ConnectionError: no route to the hub and more of it): {again} "
        "--track trackio.",
    ]


def test_what_failed_is_sent_when_the_run_is_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """Also of a run that is done, and that no tracker was asked for before."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    arguments = ["explore", "--resume", str(place / "plain"), "--track", "mlflow"]
    assert main(arguments) == 0
    run = RunFolder.open(place / "plain")
    assert without_results(mlflow_logged(run)) == expected(run)
    assert "Tracked by mlflow, in file://" in capfd.readouterr().out


def test_a_tracker_that_is_not_installed_or_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "is_installed", lambda name: name == "trackio")
    arguments = ["explore", "PointMaze", *TINY, "--out", str(tmp_path / "run")]
    assert main([*arguments, "--track", "wandb", "trackio", "mlflow"]) == 2
    assert capsys.readouterr().err == (
        "element: --track wandb mlflow needs a package that is not installed: pip install "
        "'element-rl[wandb,mlflow]'.\n"
    )
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--track", "neptune"])
    assert exit_.value.code == 2
    assert not (tmp_path / "run").exists()


def test_a_folder_of_a_trackers_name_is_no_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandbish").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not settings.is_installed("wandbish")
    assert not settings.is_installed("nowhere_to_be_found")
    assert settings.is_installed("wandb")
