"""A run in MLflow.

Its variables hold (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...). Without a server or a
database the run is in the folder `mlruns` beside the run's own, where all runs there are together.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from element_rl.tracking.interface import Facts, Files, Outcome, flattened
from element_rl.tracking.settings import PROJECT

STATES: dict[Outcome, str] = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
METRICS_AT_ONCE, PARAMETERS_AT_ONCE = 1000, 100  # that a server takes
LONGEST_PARAMETER = 500  # characters that every store takes


class MlflowRun:
    """One run; see `Tracker`."""

    def begin(self, facts: Facts, stored: Mapping[str, Any], remember: Callable[..., None]) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else folders are refused
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        given = stored.get("uri") or os.environ.get("MLFLOW_TRACKING_URI")
        self._place = given or (facts.beside / "mlruns").as_uri()
        self._client = MlflowClient(tracking_uri=self._place)
        self._id = stored.get("id")
        if self._id is None:
            project = facts.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
            run = self._client.create_run(
                self._experiment(project), run_name=facts.name, tags=facts.tags()
            )
            self._id = run.info.run_id
            remember(id=self._id, uri=given)
        else:
            self._client.update_run(self._id, status="RUNNING")
        if not stored.get("has_settings"):  # they cannot be changed: those that it began with
            self._log_settings(facts.config)
            remember(has_settings=True)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        for first in range(0, len(metrics), METRICS_AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[first : first + METRICS_AT_ONCE])

    def send(self, files: Files) -> None:
        if files.results:
            self.log(files.step, files.results)
        self._client.set_tag(self._id, "files", json.dumps(files.note))
        for name, path in files.files.items():
            parent = PurePosixPath(name).parent
            # figures and films are shown from where they are
            self._client.log_artifact(self._id, str(path), str(PurePosixPath("run") / parent))

    def finish(self, outcome: Outcome) -> str:
        self._client.set_terminated(self._id, STATES[outcome])
        return f"mlflow, in {self._place}"

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if found := self._client.get_experiment_by_name(name):
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException:  # another run has just made it
            if found := self._client.get_experiment_by_name(name):
                return str(found.experiment_id)
            raise

    def _log_settings(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        settings = [
            Param(
                name, (value if isinstance(value, str) else json.dumps(value))[:LONGEST_PARAMETER]
            )
            for name, value in flattened(config).items()
        ]
        for first in range(0, len(settings), PARAMETERS_AT_ONCE):
            self._client.log_batch(self._id, params=settings[first : first + PARAMETERS_AT_ONCE])
