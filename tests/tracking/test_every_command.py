"""Every command that trains, in every tracker at once: what the trackers' own libraries read back
is what metrics.csv has, with the run's settings and files. What `element explore` sends besides,
figures and a film, is in `test_trackers.py`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.trackers import (
    NAMES,
    environment,
    expected,
    identity,
    mlflow_client,
    mlflow_files,
    mlflow_logged,
    stored,
    trackio_logged,
    wandb_logged,
    wandb_records,
    without_results,
)

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of

pytestmark = [
    # of MLflow, about folders as stores
    pytest.mark.filterwarnings("ignore:.*filesystem tracking backend.*:FutureWarning"),
]
HERE = ("--workers", "0")
EXPLORE = (
    *("explore", "PointMaze", "--steps", "300", "--env-options", "max_episode_steps=50", *HERE),
    *("--replay-size", "600", "--chunk-steps", "50", "--random-seeds", "0", "--no-figures"),
    *("--sac.hidden-sizes", "8", "--sac.batch-size", "8", "--sac.learn-start", "100"),
)
ROOMS = (
    *("on-policy", "Rooms-v0", "--steps", "60", "--env-options", "max_episode_steps=30", *HERE),
    *("--state-dim", "3", "--random-seeds", "0", "--checkpoint-every", "30", "--no-figures"),
    *("--a3c.channels", "2", "2", "--a3c.hidden-size", "8", "--a3c.local-steps", "10"),
)
ENCODER = (
    *("pretrain-encoder", "Rooms-v0", "--steps", "400", "--epochs", "2", "--no-figures", *HERE),
    *("--env-options", "max_episode_steps=40", "--epoch-updates", "3", "--batch-size", "8"),
    *("--entropy-threshold", "0", "--probe-frames", "100"),
    *("--network.hidden", "8", "--network.channels", "2", "2", "4"),
)


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment(tmp_path_factory.mktemp("trackers")).items():
            patched.setenv(name, value)
        patched.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for reading, in this process
        patched.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without trackers, which others begin with."""
    folder = tmp_path_factory.mktemp("explored") / "run"
    assert main([*EXPLORE, "--out", str(folder)]) == 0
    return folder


def tracked(*arguments: str) -> None:
    assert main([*arguments, "--track", *NAMES]) == 0


def on_images(out: Path, explored: Path) -> list[Path]:
    tracked(*ROOMS, "--out", str(out))
    return [out]


def encoder(out: Path, explored: Path) -> list[Path]:
    tracked(*ENCODER, "--out", str(out))
    return [out]


def offline(out: Path, explored: Path) -> list[Path]:
    root = out.parent / "datasets"
    collect = ("collect", str(explored), "--steps", "100", "--dataset", "maze/one-v0")
    assert main([*collect, "--out", str(root), *HERE]) == 0
    tracked(
        *("offline", "maze/one-v0", "--root", str(root), "--steps", "20", "--episodes", "1"),
        *("--chunk-updates", "10", "--evaluate-every", "10", "--no-figures", *HERE),
        *("--cql.hidden-sizes", "8", "--cql.batch-size", "8", "--out", str(out)),
    )
    return [out]


def finetune(out: Path, explored: Path) -> list[Path]:
    tracked(
        *("finetune", str(explored), "--steps", "200", "--episodes", "1", "--log-every", "100"),
        *("--critic-warmup", "20", "--checkpoint-every", "100", *HERE, "--out", str(out)),
    )
    return [out / "transferred", out / "scratch"]


def study(out: Path, explored: Path) -> list[Path]:
    tracked(
        *("study", "coverage", "--scale", "smoke", "--envs", "PointMaze"),
        *("--methods", "random", "--steps", "300", "--out", str(out)),
    )
    return [path.parent for path in (out / "cells").glob("*/config.json")]


@pytest.mark.parametrize(
    ("train", "kinds"),
    [
        (on_images, ["on-policy"]),
        (encoder, ["encoder"]),
        (offline, ["offline"]),
        (finetune, ["explore", "explore"]),
        (study, ["explore"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_trackers_have_what_the_run_has(
    train: Callable[[Path, Path], list[Path]],
    kinds: list[str],
    explored: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs = [RunFolder.open(folder) for folder in train(tmp_path / "out", explored)]
    assert [kind_of(run.config) for run in runs] == kinds
    assert "failed (" not in capfd.readouterr().err
    for run in runs:
        rows = expected(run)
        assert rows
        for logged in (wandb_logged, trackio_logged, mlflow_logged):
            assert without_results(logged(run)) == rows, logged.__name__
        check_wandb(run)
        check_mlflow(run)
    for tracker in NAMES:  # one run each
        assert len({identity(run, tracker) for run in runs}) == len(runs)


def check_wandb(run: RunFolder) -> None:
    records = wandb_records(run)
    (begun,) = (record["run"] for record in records if record["type"] == "run")
    assert begun["display_name"] == stored(run, "trackio")["name"]
    assert begun["config"]["update"]["settings"] == run.config["settings"]
    (artifact,) = (record["artifact"] for record in records if record["type"] == "artifact")
    files = [entry["path"] for entry in artifact["manifest"]["contents"]]
    assert {"config.json", "metrics.csv"} < set(files)
    assert sorted(files) == sorted(mlflow_files(run))


def check_mlflow(run: RunFolder) -> None:
    told = mlflow_client(run).get_run(identity(run, "mlflow"))
    assert told.info.status == "FINISHED"
    assert told.data.params["env"] == run.config["env"]
