"""A run in Weights & Biases.

Its variables hold (WANDB_MODE, WANDB_ENTITY, WANDB_DIR, ...). Where nobody is logged in and no mode
is set, the run is written as an offline run. Its files are in the run's folder, unless WANDB_DIR
and WANDB_DATA_DIR say otherwise.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from element_rl.tracking.interface import Facts, Files, Outcome, artifact_name
from element_rl.tracking.settings import PROJECT

EXIT_CODES: dict[Outcome, int] = {"finished": 0, "failed": 1, "stopped": 130}


class WandbRun:
    """One run; see `Tracker`."""

    def begin(self, facts: Facts, stored: Mapping[str, Any], remember: Callable[..., None]) -> None:
        # before wandb is loaded, which reads them once
        os.environ.setdefault("WANDB_DATA_DIR", str(facts.own / "wandb"))  # copies to upload
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._name = facts.name
        identity = stored.get("id") or os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4)
        project = stored.get("project") or facts.project or os.environ.get("WANDB_PROJECT")
        remember(id=identity, project=project or PROJECT)
        options: dict[str, Any] = {
            "id": identity,
            "resume": "allow",
            "project": project or PROJECT,
            "name": os.environ.get("WANDB_NAME") or facts.name,
            "group": os.environ.get("WANDB_RUN_GROUP") or facts.group,
            "job_type": os.environ.get("WANDB_JOB_TYPE") or facts.kind,
            "dir": os.environ.get("WANDB_DIR") or str(facts.own),
            "config": dict(facts.config),
            "allow_val_change": True,
            "settings": _settings(wandb, facts.process),
        }
        try:
            self._run = wandb.init(**options)
        except wandb.errors.UsageError:
            if os.environ.get("WANDB_MODE"):
                raise
            self._run = wandb.init(**options, mode="offline")  # nobody is logged in

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step, commit=True)

    def send(self, files: Files) -> None:
        import wandb

        shown: dict[str, Any] = {
            name: wandb.Image(str(path)) for name, path in files.images.items()
        }
        shown |= {name: wandb.Video(str(path), format="mp4") for name, path in files.videos.items()}
        if shown:
            self._run.log(shown, commit=True)
        self._run.summary.update(dict(files.results))
        artifact = wandb.Artifact(
            artifact_name(self._name, self._run.id), type="run", metadata=files.note
        )
        for name, path in files.files.items():
            # Checkpoints never change, and are not copied; the copies of others are for uploading.
            policy: Any = "immutable" if _never_changes(name) else "mutable"
            artifact.add_file(str(path), name=name, policy=policy, skip_cache=True)
        self._run.log_artifact(artifact)

    def finish(self, outcome: Outcome) -> str:
        run = self._run
        offline = run.offline
        url, folder = None if offline else run.url, Path(run.settings.sync_dir)
        run.finish(exit_code=EXIT_CODES[outcome])
        return (
            f"wandb, offline; upload it with: wandb sync {folder}" if offline else f"wandb: {url}"
        )


def _settings(wandb: Any, process: int) -> Any:
    """Nothing is printed or recorded of this process, and what is measured is the training."""
    wanted = {
        "silent": True,
        "console": "off",
        "disable_code": True,
        "x_stats_pid": process,  # those with x_ may be gone in another version
        "x_stats_track_process_tree": True,
    }
    known = wandb.Settings.model_fields
    return wandb.Settings(**{name: value for name, value in wanted.items() if name in known})


def _never_changes(name: str) -> bool:
    return name.startswith("checkpoints/")
