"""One run, one folder: settings, metrics and checkpoints that survive being killed at any moment.

    config.json          kind and settings, written once
    metrics.csv          one row per logged step and seed
    events.*             the same numbers for TensorBoard
    summary.json         what came out
    random_visits.safetensors    visits per cell of the random policy that the run is compared with
    latest_visits.safetensors    visits per cell since the newest checkpoint, for who watches
    figures/             written by `element plot`
    evaluation/          written by `element evaluate`
    checkpoints/step_000500000/
        policy.safetensors    parameters of the population [P, ...]; kept for ever
        visits.safetensors    visits per coverage cell (`visits`); kept for ever
        manifest.json         size and SHA-256 of these two
        resume/               all else that a resumed run needs; kept for the newest checkpoint only
            arrays.safetensors, files of the caller, manifest.json

Files are written under a temporary name, fsynced and renamed; a checkpoint is a folder that is
renamed when all of it is on the disk. A name without a leading dot therefore always stands for
something complete. What belongs to `resume/` is listed in a manifest of its own, so that removing
it leaves the rest of the checkpoint whole.

Nothing here knows reinforcement learning, and reading a run folder loads neither JAX nor
TensorBoard's messages.
"""

import contextlib
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.metrics_log import METRIC_COLUMNS, MetricsLog
from element_rl.runs.visits import Stored, read_stored, written
from element_rl.storage.files import (
    MANIFEST,
    FileError,
    json_text,
    listed,
    num_bytes,
    read_arrays,
    read_json_object,
    read_manifest,
    removing_on_failure,
    sync,
    to_json,
    verify,
    write_arrays,
    write_arrays_directly,
    write_json,
    write_manifest,
)
from element_rl.storage.locks import create_locked, is_locked, locked

POLICY = "policy.safetensors"
VISITS = "visits.safetensors"
RANDOM_VISITS = "random_visits.safetensors"
LATEST_VISITS = "latest_visits.safetensors"
RESUME_ARRAYS = "arrays.safetensors"
# what is read of these files without the dataclass of a run's settings
CONFIG_TYPES = {
    "kind": str,
    "env": str,
    "reward": str,
    "settings": dict,
    "sees_frames": bool,
    "on_policy": bool,
    "coverage_axes": list[str] | None,
    "coverage_bounds": list[tuple[float, float]] | None,
    "coverage_cell_size": list[float] | None,
    "coverage_of": str | None,
    "coverage_cells": list[int] | None,
    "coverage_unit": str,
    "coverage_start": list[float] | None,
    "frame_shape": list[int],
}
SETTINGS_TYPES = {
    "env": str | None,
    "env_options": list[str],
    "reward": str,
    "steps": int,
    "seed": int,
    "seeds": int,
    "checkpoint_every": int | None,
    "chunk_steps": int | None,
    "log_every": int | None,
    "datasets": list[str],
    "position": list[str] | None,
    "bounds": list[tuple[float, float]] | None,
    "cell_size": list[float] | None,
    "frame_stack": int,
    "a3c": dict | None,
}
SUMMARY_TYPES = {
    "env": str,
    "steps": int,
    "seeds": list[int],
    "wall_seconds": float,
    "random_policy": dict | None,
    "hardware": dict | None,
    "versions": dict | None,
}


class RunError(FileError):
    """Something about a run folder that its user can put right; the message is one sentence.

    A single file of it that cannot be written or read, as on a full disk, is a `FileError`: catch
    that to catch both.
    """


class RunFolder:
    """A run on the disk. Make one with `create`, come back to it with `open`."""

    def __init__(self, path: Path, config: dict[str, Any], metric_columns: Sequence[str]):
        self.path = path
        self.config = config
        self.metrics_path = path / "metrics.csv"
        self.summary_path = path / "summary.json"
        self.figures_path = path / "figures"
        self.evaluation_path = path / "evaluation"
        self.checkpoints_path = path / "checkpoints"
        self._metrics = MetricsLog(self.metrics_path, metric_columns)
        # of the lock that a new run is made with
        self._let_go: weakref.finalize[..., RunFolder] | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        metric_columns: Sequence[str] = METRIC_COLUMNS,
    ) -> "RunFolder":
        """A new run; `metric_columns` becomes the header of metrics.csv.

        Of several processes that create a run in one folder at the same moment one succeeds. The
        folder is that process's own until it has left `exclusively`, or has dropped what is
        returned.
        """
        path = Path(path)
        for name in ("config.json", "metrics.csv", "checkpoints"):
            if (path / name).exists():
                raise _taken(path, name)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"The run folder {path} cannot be made ({error.strerror}): choose another --out."
            ) from error
        try:
            lock = create_locked(path / "config.json", json_text(config))
        except FileExistsError:
            raise _taken(path, "config.json") from None
        run = cls(path, to_json(config), metric_columns)
        run._let_go = weakref.finalize(run, os.close, lock)
        return run

    @classmethod
    def open(cls, path: str | Path, metric_columns: Sequence[str] = METRIC_COLUMNS) -> "RunFolder":
        """An existing run; `metric_columns` matters only if the run was killed before it logged
        anything."""
        path = Path(path)
        if not path.is_dir():
            raise RunError(
                f"There is no run folder {path}: give the --out folder of an earlier run."
            )
        if not (path / "config.json").is_file():
            raise RunError(
                f"{path} is not a run (it has no config.json): give the --out folder of an earlier "
                "run."
            )
        config = read_json_object(
            path / "config.json", "restore it from a copy, or start a new run with another --out"
        ).checked(CONFIG_TYPES)
        if "settings" in config:
            config["settings"].checked(SETTINGS_TYPES)
        return cls(path, config, metric_columns)

    @contextlib.contextmanager
    def exclusively(self, wait_seconds: float = 0.0) -> Iterator[None]:
        """Within this no other process may train in the folder; a process that dies lets go of it.

        Another one that is there already is given `wait_seconds` to finish: it may be writing its
        last checkpoint.
        """
        with contextlib.ExitStack() as held:
            if self._let_go is not None:  # locked since it was created
                held.callback(self._let_go)
                self._let_go = None
                yield
                return
            try:
                held.enter_context(locked(self.path / "config.json", wait_seconds))
            except BlockingIOError:
                raise RunError(
                    f"Another process is training in {self.path}: wait for it, or choose another "
                    "--out."
                ) from None
            yield

    def is_training(self) -> bool | None:
        """Whether a process is within `exclusively`; None where file systems have no locks."""
        return is_locked(self.path / "config.json")

    def append_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds one row per step and seed to metrics.csv and to TensorBoard; on the disk, whole, on
        return."""
        self._metrics.append(rows)

    def truncate_metrics(self, step: int) -> None:
        """Drops what was logged after `step`, when a run goes back to its checkpoint; TensorBoard
        hides it too."""
        self._metrics.truncate(step)
        (self.path / LATEST_VISITS).unlink(missing_ok=True)

    def read_metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv: `step` and `seed` as int64, the others as float64 with NaN for
        empty fields."""
        return self._metrics.read()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary_path, summary)

    def read_summary(self) -> dict[str, Any]:
        """summary.json, or an empty dict while the run has none."""
        if not self.summary_path.exists():
            return {}
        advice = "remove it or restore it from a copy"
        return read_json_object(self.summary_path, advice).checked(SUMMARY_TYPES)

    def write_random_visits(self, visits: Stored) -> None:
        """Visits per coverage cell of the random policy that the run is compared with."""
        write_arrays(self.path / RANDOM_VISITS, written(visits))

    def read_random_visits(self) -> Stored | None:
        """The opposite; None where there was none, as in older runs."""
        file = self.path / RANDOM_VISITS
        return read_stored(read_arrays(file)[0]) if file.exists() else None

    def write_latest_visits(self, step: int, visits: Stored) -> None:
        """Visits per coverage cell up to a step between two checkpoints. They are for
        who watches only: the next checkpoint removes them, and a resumed run does not read them."""
        text = {"step": str(step)}
        write_arrays(self.path / LATEST_VISITS, written(visits), text, durable=False)

    def read_latest_visits(self) -> tuple[int, Stored] | None:
        """The opposite: step and visits; None where there are none since the newest checkpoint."""
        file = self.path / LATEST_VISITS
        if not file.exists():
            return None
        arrays, text = read_arrays(file)
        if "visits" not in arrays or not text.get("step", "").isdecimal():
            raise FileError(f"The file {file} is damaged (it has no step or no visits): remove it.")
        return int(text["step"]), read_stored(arrays)

    def save_checkpoint(
        self,
        step: int,
        policy: Mapping[str, np.ndarray],
        visits: Stored | None,
        resume: Mapping[str, np.ndarray],
        metadata: Mapping[str, Any],
        write_extra: Callable[[Path], None] | None = None,
    ) -> Path:
        """Writes a checkpoint and, when it is complete, removes the `resume/` of the older ones.

        `visits` is None where the environment has no coverage cells. `metadata` is anything JSON
        can hold. `write_extra` gets the `resume/` folder and may put files of its own there. A step
        that is already saved is left as it is, so that an interrupt right after a checkpoint costs
        nothing.
        """
        final = self._checkpoint(step)
        if step in self.checkpoint_steps():
            return final
        temporary = self.checkpoints_path / f".{final.name}.tmp-{os.getpid()}"
        contents = {POLICY: policy, f"resume/{RESUME_ARRAYS}": resume}
        contents |= {} if visits is None else {VISITS: written(visits)}
        needed = sum(num_bytes(arrays) for arrays in contents.values())
        with removing_on_failure(temporary, final, needed):
            self._clear_leftovers(final)
        for name, arrays in contents.items():
            with removing_on_failure(temporary, final / name, needed):
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                write_arrays_directly(temporary / name, arrays)
        with removing_on_failure(temporary, final, needed):
            if write_extra is not None:
                write_extra(temporary / "resume")
            write_manifest(temporary / "resume", {"step": step})
            write_manifest(temporary, {"step": step, "metadata": metadata}, leave_out=("resume",))
            # What was logged before the checkpoint must not be lost when the checkpoint is not.
            logged = [self.metrics_path] if self.metrics_path.exists() else []
            for entry in (*temporary.rglob("*"), temporary, *logged, *self.path.glob("events.*")):
                sync(entry)
            os.replace(temporary, final)
            sync(self.checkpoints_path)
        for older in self.checkpoint_steps():
            if older < step:
                self._discard(self._checkpoint(older) / "resume")
        (self.path / LATEST_VISITS).unlink(missing_ok=True)
        return final

    def checkpoint_steps(self) -> list[int]:
        """Steps of all complete checkpoints, ascending. One whose manifest is missing counts, so
        that whoever reads it is told."""
        files = [
            file
            for name in (MANIFEST, POLICY)
            for file in self.checkpoints_path.glob(f"step_*/{name}")
        ]
        names = [re.fullmatch(r"step_(\d{9,})", file.parent.name) for file in files]
        return sorted({int(name[1]) for name in names if name})

    def check_manifests(self) -> None:
        """A FileError where the manifest of a checkpoint is missing or was altered."""
        for step in self.checkpoint_steps():
            self._manifest(self._checkpoint(step))

    def damaged_files(self) -> list[str]:
        """A sentence for each file of the folder that is not as it was written, or cannot be
        read."""
        found = []
        for step in self.checkpoint_steps():
            folder = self._checkpoint(step)
            for part in (folder, *(folder / "resume",) * (folder / "resume").exists()):
                found += self._damages(part)
        for read in (self.read_metrics, self.read_summary, self.read_random_visits):
            try:
                read()
            except FileError as error:
                found.append(str(error))
        return found

    def _damages(self, folder: Path) -> list[str]:
        try:
            names = list(self._manifest(folder)["files"])
        except FileError as error:
            return [str(error)]
        found = []
        for name in names:
            try:
                verify(folder, name, self._advice(folder))
            except FileError as error:
                found.append(str(error))
        return found

    def planned_checkpoints(self) -> list[int]:
        """Steps of the checkpoints that the settings ask for, and of the last; not of those that a
        stop has left."""
        settings, steps = self.config["settings"], self.checkpoint_steps()
        every, chunk = settings["checkpoint_every"], settings.get("chunk_steps", 1)
        return sorted({*(step for step in steps if step % every < chunk), *steps[-1:]})

    def latest_checkpoint(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return max(self.checkpoint_steps(), default=None)

    def load_policy(self, step: int | None = None) -> dict[str, np.ndarray]:
        """Parameters of the population [P, ...] at a step; the newest by default."""
        return self._load(step, POLICY)

    def load_visits(self, step: int | None = None) -> Any:
        """Visits per coverage cell: [P, X, Y] along the two coverage axes of a map with bounds,
        elsewhere the table of `visits`."""
        folder = self._complete(step)
        if VISITS not in self._manifest(folder)["files"] and not (folder / VISITS).exists():
            raise RunError(
                f"The run {self.path} counts no coverage: its environment has no coverage cells."
            )
        return read_stored(self._load(step, VISITS))

    def load_resume(
        self, step: int | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any], Path]:
        """Arrays, metadata and the folder with the caller's own files, all verified."""
        folder = self._complete(step) / "resume"
        if not folder.exists():
            newest = self.latest_checkpoint()
            if folder.parent == self._checkpoint(newest or 0):
                raise RunError(
                    f"The checkpoint {folder.parent} holds a policy only, as of a run that was "
                    "pushed without its memory: push it with --with-memory to go on with it."
                )
            raise RunError(
                f"The checkpoint {folder.parent} holds a policy only: a run resumes from its "
                f"newest checkpoint, step {newest}."
            )
        for name in self._manifest(folder)["files"]:
            verify(folder, name, self._advice(folder))
        return read_arrays(folder / RESUME_ARRAYS)[0], self.load_metadata(step), folder

    def load_metadata(self, step: int | None = None) -> dict[str, Any]:
        """What `save_checkpoint` was given as metadata; kept for ever."""
        return self._manifest(self._complete(step))["metadata"]

    def _load(self, step: int | None, name: str) -> dict[str, np.ndarray]:
        folder = self._complete(step)
        verify(folder, name, self._advice(folder))
        return read_arrays(folder / name)[0]

    def _complete(self, step: int | None) -> Path:
        steps = self.checkpoint_steps()
        if not steps:
            raise RunError(
                f"The run {self.path} has no complete checkpoint yet: train it for longer."
            )
        if step is not None and step not in steps:
            raise RunError(
                f"The run {self.path} has no checkpoint of step {step}: it has steps "
                f"{listed(steps)}."
            )
        return self._checkpoint(steps[-1] if step is None else step)

    def _manifest(self, folder: Path) -> dict[str, Any]:
        return read_manifest(folder, self._advice(folder))

    def _advice(self, folder: Path) -> str:
        """What to do where something in a folder of a checkpoint is damaged."""
        checkpoint = folder.parent if folder.name == "resume" else folder
        step = int(checkpoint.name.removeprefix("step_"))
        earlier = [other for other in self.checkpoint_steps() if other < step]
        left = "no earlier one exists"
        if earlier:
            left = f"earlier checkpoints keep the policies of steps {listed(earlier)}"
        return f"restore it from a copy, or start a new run with another --out ({left})"

    def _checkpoint(self, step: int) -> Path:
        return self.checkpoints_path / f"step_{step:09d}"

    def _clear_leftovers(self, final: Path) -> None:
        """Makes checkpoints/ and removes what a killed process left half done in it."""
        if not self.checkpoints_path.exists():
            self.checkpoints_path.mkdir()
            sync(self.path)
        for folder in (self.checkpoints_path, final):
            if folder.exists() and not self._is_own(folder):
                raise RunError(
                    f"{folder} is a link to {folder.resolve()}, and a run writes into its own "
                    "folder only: put a copy in its place."
                )
        for leftover in self.checkpoints_path.glob(".step_*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._discard(final)

    def _is_own(self, folder: Path) -> bool:
        """Whether a folder lies in this run's own, and not where a link leads to."""
        return folder.resolve() == self.path.resolve() / folder.relative_to(self.path)

    def _discard(self, folder: Path) -> None:
        """Removes a folder of a checkpoint: first its name, in one go, then its contents. What a
        link leads to is another's, and stays."""
        if folder.exists() and self._is_own(folder):
            name = "-".join(folder.relative_to(self.checkpoints_path).parts)
            hidden = self.checkpoints_path / f".{name}-old"
            os.replace(folder, hidden)
            sync(folder.parent)
            shutil.rmtree(hidden, ignore_errors=True)


def _taken(path: Path, name: str) -> RunError:
    return RunError(
        f"{path} already holds a run (it has {name}): continue it with --resume {path}, or choose "
        "another --out."
    )
