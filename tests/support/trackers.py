"""Runs as the trackers' own libraries read them back, and whether processes of theirs are left."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from wandb.util import get_core_path

from element_rl.runs.folder import RunFolder

NAMES = ("wandb", "trackio", "mlflow")
PROJECT = "element-rl"
Logged = dict[str, list[tuple[int, float]]]  # metric → steps and values, in their order


def environment(folder: Path) -> dict[str, str]:
    """Variables with which trackers write into a folder, and ask no network."""
    return {
        "WANDB_MODE": "offline",
        "WANDB_CONFIG_DIR": str(folder / "wandb-config"),
        "WANDB_CACHE_DIR": str(folder / "wandb-cache"),
        "TRACKIO_DIR": str(folder / "trackio"),
        "HF_HOME": str(folder / "hugging-face"),
    }


def expected(run: RunFolder) -> Logged:
    """What metrics.csv has, under the names that trackers show."""
    metrics = run.read_metrics()
    steps, seeds = metrics["step"], metrics["seed"]
    found: Logged = {}
    for name, values in metrics.items():
        if name in ("step", "seed"):
            continue
        for step in np.unique(steps):
            here = (steps == step) & np.isfinite(values)
            if here.any():
                point = (int(step), float(np.mean(values[here])))
                found.setdefault(name, []).append(point)
            for seed, value in zip(seeds[here], values[here], strict=True):
                if len(np.unique(seeds)) > 1:
                    found.setdefault(f"seed_{seed}/{name}", []).append((int(step), float(value)))
    return found


def wandb_records(run: RunFolder) -> list[dict]:
    """Records of all offline files of a run, as wandb's own reader prints them, oldest first."""
    files = sorted((run.path / "tracking" / "wandb").glob("offline-run-*/run-*.wandb"))
    records = []
    for file in files:
        command = [get_core_path(), "leet", "inspect", "-json", "-no-observability"]
        command += ["-run-file", str(file), str(file.parent.parent)]
        read = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        records += [json.loads(line) for line in read.stdout.splitlines()]
    return records


def wandb_logged(run: RunFolder) -> Logged:
    found: Logged = {}
    for record in wandb_records(run):
        if record["type"] == "history":
            item = record["history"]["item"]
            for name, value in item.items():
                own = name.startswith("_") or "." in name  # wandb's, and what it knows of media
                if not own and isinstance(value, int | float):
                    found.setdefault(name, []).append((item["_step"], float(value)))
    return found


def trackio_logged(run: RunFolder) -> Logged:
    """In the folder that TRACKIO_DIR names; the library reads it when it is loaded."""
    name = stored(run, "trackio")["name"]
    script = f"""if True:
        import json
        from trackio.sqlite_storage import SQLiteStorage
        print("\\nREAD" + json.dumps(SQLiteStorage.get_logs({PROJECT!r}, {name!r})))"""
    found: Logged = {}
    for entry in of_trackio(script):
        for name, value in entry.items():
            if name != "step" and isinstance(value, int | float):
                found.setdefault(name, []).append((entry["step"], float(value)))
    return found


def of_trackio(script: str) -> Any:
    """What a script prints behind the word READ."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    read = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    (line,) = (line for line in read.stdout.splitlines() if line.startswith("READ"))
    return json.loads(line.removeprefix("READ"))


def mlflow_client(run: RunFolder):
    from mlflow.tracking import MlflowClient

    above = (folder / "mlruns" for folder in run.path.resolve().parents)
    return MlflowClient(tracking_uri=next(place for place in above if place.is_dir()).as_uri())


def mlflow_files(run: RunFolder) -> list[str]:
    """Paths in the run's folder of the files that MLflow has of it."""
    client, number = mlflow_client(run), identity(run, "mlflow")

    def within(folder: str) -> list[str]:
        entries = client.list_artifacts(number, folder)
        return [
            path
            for entry in entries
            for path in (within(entry.path) if entry.is_dir else [entry.path])
        ]

    return [path.removeprefix("run/") for path in within("run")]


def stored(run: RunFolder, tracker: str) -> dict[str, Any]:
    """What the run's folder keeps of a tracker."""
    return json.loads((run.path / "tracking" / f"{tracker}.json").read_text())


def identity(run: RunFolder, tracker: str) -> str:
    return stored(run, tracker)["id"]


def mlflow_logged(run: RunFolder) -> Logged:
    client, number = mlflow_client(run), identity(run, "mlflow")
    return {
        name: [(entry.step, entry.value) for entry in client.get_metric_history(number, name)]
        for name in client.get_run(number).data.metrics
    }


def without_results(logged: Logged) -> Logged:
    return {name: points for name, points in logged.items() if not name.startswith("final/")}


def processes_with(variable: str, value: str) -> list[str]:
    """Command lines of processes that have a variable of this value: of a command, of all that it
    started, and of all that those did."""
    found, wanted = [], f"{variable}={value}".encode()
    for folder in Path("/proc").iterdir():
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append((folder / "cmdline").read_text())
        except OSError:  # no process, or gone
            continue
    return found


def gone(variable: str, value: str, seconds: float) -> list[str]:
    """Those that are left after this time."""
    end = time.monotonic() + seconds
    while (left := processes_with(variable, value)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def marked(variables: Mapping[str, str], mark: str) -> dict[str, str]:
    return {**os.environ, **variables, "TRACKED_IN_A_TEST": mark}
