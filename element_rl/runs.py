"""One run, one folder: settings, metrics and checkpoints that survive being killed at any moment.

    config.json          the settings, written once
    metrics.csv          one row per logged step and seed
    events.*             the same numbers for TensorBoard
    summary.json         what came out
    figures/             written by `element plot`
    evaluation/          written by `element evaluate`
    checkpoints/step_000500000/
        policy.safetensors    parameters of the population [P, ...]; kept for ever
        visits.safetensors    visits per coverage cell [P, 100, 100]; kept for ever
        manifest.json         size and SHA-256 of these two
        resume/               everything else a resumed run needs; kept for the newest checkpoint only
            arrays.safetensors, files of the caller, manifest.json

Files are written under a temporary name, fsynced and renamed; a checkpoint is a folder that is renamed when all of it
is on the disk. A name without a leading dot therefore always stands for something complete. What belongs to `resume/`
is listed in a manifest of its own, so that removing it leaves the rest of the checkpoint whole.

Nothing here knows reinforcement learning. JAX and TensorBoard's messages are imported where they are used: figures are
drawn from run folders without loading either.
"""

import contextlib
import csv
import dataclasses
import errno
import hashlib
import importlib.metadata
import io
import json
import math
import os
import platform
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

import element_rl

METRIC_COLUMNS = (
    "step",  # environment steps per seed so far
    "seed",
    "episodes",
    "episode_length",
    "episodic_entropy",  # bits; matrix Rényi of order 1.001
    "entropy_saturation",  # episodic entropy / log2(episode length)
    "coverage",  # unique cells visited
    "memory_size",
    "reward_episodic",
    "reward_lifelong",
    "extrinsic_return",
    "critic_loss",
    "actor_loss",
    "temperature",
    "policy_entropy",
    "q_mean",
    "env_steps_per_second",
    "wall_seconds",
)
MANIFEST = "manifest.json"
POLICY = "policy.safetensors"
VISITS = "visits.safetensors"
RESUME_ARRAYS = "arrays.safetensors"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunError(ValueError):
    """Something about a run folder that its user can put right; the message is one sentence."""


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
        self._metric_columns = tuple(metric_columns)
        self._events_path: Path | None = None
        self._purge_step: int | None = None

    @classmethod
    def create(
        cls, path: str | Path, config: Mapping[str, Any], metric_columns: Sequence[str] = METRIC_COLUMNS
    ) -> "RunFolder":
        """A new run; `metric_columns` becomes the header of metrics.csv."""
        path = Path(path)
        for name in ("config.json", "metrics.csv", "checkpoints"):
            if (path / name).exists():
                raise RunError(
                    f"{path} already holds a run (it has {name}): continue it with --resume {path}, "
                    "or choose another --out."
                )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"The run folder {path} cannot be made ({error.strerror}): choose another --out.") from error
        write_json(path / "config.json", config)
        return cls(path, _to_json(config), metric_columns)

    @classmethod
    def open(cls, path: str | Path, metric_columns: Sequence[str] = METRIC_COLUMNS) -> "RunFolder":
        """An existing run; `metric_columns` matters only if the run was killed before it logged anything."""
        path = Path(path)
        if not path.is_dir():
            raise RunError(f"There is no run folder {path}: give the --out folder of an earlier run.")
        if not (path / "config.json").is_file():
            raise RunError(f"{path} is not a run (it has no config.json): give the --out folder of an earlier run.")
        config = _read_json(path / "config.json", "restore it from a copy, or start a new run with another --out")
        return cls(path, config, metric_columns)

    def append_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds one row per step and seed to metrics.csv and to TensorBoard; on the disk, whole, on return.

        Values are scalars; None, NaN and columns a row does not have become empty fields.
        """
        columns = self._columns_on_disk() or self._metric_columns
        lines = io.StringIO()
        if not self._columns_on_disk():
            lines.write(",".join(columns) + "\n")
        for row in rows:
            if unknown := sorted(set(row) - set(columns)):
                raise ValueError(
                    f"metrics.csv has no column {', '.join(unknown)}: name it in metric_columns when creating the run."
                )
            if "step" not in row or "seed" not in row:
                raise ValueError(f"A row of metrics needs step and seed, and has only {', '.join(row)}.")
            lines.write(",".join(_field(row.get(column)) for column in columns) + "\n")
        _append(self.metrics_path, lines.getvalue().encode())
        self._append_events(rows)

    def truncate_metrics(self, step: int) -> None:
        """Drops what was logged after `step`, when a run goes back to its checkpoint; TensorBoard hides it too."""
        self._purge_step, self._events_path = step + 1, None
        header, rows = self._metric_rows()
        if not header:
            self.metrics_path.unlink(missing_ok=True)
            return
        kept = [row for row in rows if int(float(row[header.index("step")])) <= step]
        text = "".join(",".join(row) + "\n" for row in [header, *kept])
        write_atomically(self.metrics_path, lambda temporary: _write_text(temporary, text), len(text))

    def read_metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv: `step` and `seed` as int64, the others as float64 with NaN for empty fields."""
        header, rows = self._metric_rows()
        metrics = {}
        for position, name in enumerate(header):
            dtype = np.int64 if name in ("step", "seed") else np.float64
            try:
                metrics[name] = np.array([float(row[position] or "nan") for row in rows], np.float64).astype(dtype)
            except ValueError as error:
                raise RunError(f"{self.metrics_path} holds something else than numbers in column {name}.") from error
        return metrics

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary_path, summary)

    def read_summary(self) -> dict[str, Any]:
        """summary.json, or an empty dict while the run has none."""
        if not self.summary_path.exists():
            return {}
        return _read_json(self.summary_path, "remove it or restore it from a copy")

    def save_checkpoint(
        self,
        step: int,
        policy: Mapping[str, np.ndarray],
        visits: np.ndarray | None,
        resume: Mapping[str, np.ndarray],
        metadata: Mapping[str, Any],
        write_extra: Callable[[Path], None] | None = None,
    ) -> Path:
        """Writes a checkpoint and, when it is complete, removes the `resume/` of the older ones.

        `visits` is None where the environment has no coverage cells. `metadata` is anything JSON can hold.
        `write_extra` gets the `resume/` folder and may put files of its own there. A step that is already saved is left
        as it is, so that an interrupt right after a checkpoint costs nothing.
        """
        final = self._checkpoint(step)
        if step in self.checkpoint_steps():
            return final
        self._clear_leftovers(final)
        temporary = self.checkpoints_path / f".{final.name}.tmp-{os.getpid()}"
        permanent = {POLICY: policy} if visits is None else {POLICY: policy, VISITS: {"visits": visits}}
        contents = permanent | {f"resume/{RESUME_ARRAYS}": resume}
        needed = sum(np.asarray(array).nbytes for arrays in contents.values() for array in arrays.values())
        for name, arrays in contents.items():
            with _removing_on_failure(temporary, final / name, needed):
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                _save_arrays(temporary / name, arrays, {})
        with _removing_on_failure(temporary, final, needed):
            if write_extra is not None:
                write_extra(temporary / "resume")
            _write_manifest(temporary / "resume", step, {})
            _write_manifest(temporary, step, metadata)
            # What was logged before the checkpoint must not be lost when the checkpoint is not.
            for entry in (*temporary.rglob("*"), temporary, self.metrics_path, *self.path.glob("events.*")):
                if entry.exists():
                    _sync(entry)
            os.replace(temporary, final)
            _sync(self.checkpoints_path)
        for older in self.checkpoint_steps():
            if older < step:
                self._discard(self._checkpoint(older) / "resume")
        return final

    def checkpoint_steps(self) -> list[int]:
        """Steps of all complete checkpoints, ascending."""
        manifests = self.checkpoints_path.glob(f"step_*/{MANIFEST}")
        names = [re.fullmatch(r"step_(\d{9,})", manifest.parent.name) for manifest in manifests]
        return sorted(int(name[1]) for name in names if name)

    def latest_checkpoint(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return max(self.checkpoint_steps(), default=None)

    def load_policy(self, step: int | None = None) -> dict[str, np.ndarray]:
        """Parameters of the population [P, ...] at a step; the newest by default."""
        return self._load(step, POLICY)

    def load_visits(self, step: int | None = None) -> np.ndarray:
        """Visits per coverage cell [P, 100, 100]; the first grid axis is the first coverage axis."""
        folder = self._complete(step)
        if not (folder / VISITS).exists() and VISITS not in self._manifest(folder)["files"]:
            raise RunError(f"The run {self.path} counts no coverage: its environment has no coverage bounds.")
        return self._load(step, VISITS)["visits"]

    def load_resume(self, step: int | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any], Path]:
        """Arrays, metadata and the folder with the caller's own files, all verified."""
        folder = self._complete(step) / "resume"
        if not folder.exists():
            raise RunError(
                f"The checkpoint {folder.parent} holds a policy only: a run resumes from its newest checkpoint, "
                f"step {self.latest_checkpoint()}."
            )
        for name in self._manifest(folder)["files"]:
            self._verify(folder, name)
        return read_arrays(folder / RESUME_ARRAYS)[0], self.load_metadata(step), folder

    def load_metadata(self, step: int | None = None) -> dict[str, Any]:
        """What `save_checkpoint` was given as metadata; kept for ever."""
        return self._manifest(self._complete(step))["metadata"]

    def _load(self, step: int | None, name: str) -> dict[str, np.ndarray]:
        folder = self._complete(step)
        self._verify(folder, name)
        return read_arrays(folder / name)[0]

    def _complete(self, step: int | None) -> Path:
        steps = self.checkpoint_steps()
        if not steps:
            raise RunError(f"The run {self.path} has no complete checkpoint yet: train it for longer.")
        if step is not None and step not in steps:
            raise RunError(f"The run {self.path} has no checkpoint of step {step}: it has steps {_listed(steps)}.")
        return self._checkpoint(steps[-1] if step is None else step)

    def _verify(self, folder: Path, name: str) -> None:
        """Compares one file with the manifest of its folder."""
        expected = self._manifest(folder)["files"].get(name)
        file = folder / name
        if expected is None or not file.is_file():
            raise RunError(f"The checkpoint file {file} is missing: {self._advice(folder)}.")
        if (found := file.stat().st_size) != expected["bytes"]:
            raise RunError(
                f"The checkpoint file {file} is damaged (it has {found:,} bytes, and had {expected['bytes']:,} when "
                f"written): {self._advice(folder)}."
            )
        if _sha256(file) != expected["sha256"]:
            raise RunError(
                f"The checkpoint file {file} is damaged (its SHA-256 is not the one it was written with): "
                f"{self._advice(folder)}."
            )

    def _manifest(self, folder: Path) -> dict[str, Any]:
        manifest = _read_json(folder / MANIFEST, self._advice(folder))
        if manifest.pop("checksum", None) != _checksum(manifest):
            raise RunError(f"The checkpoint file {folder / MANIFEST} was altered: {self._advice(folder)}.")
        return manifest

    def _advice(self, folder: Path) -> str:
        checkpoint = folder.parent if folder.name == "resume" else folder
        earlier = [step for step in self.checkpoint_steps() if step < int(checkpoint.name.removeprefix("step_"))]
        left = (
            f"earlier checkpoints keep the policies of steps {_listed(earlier)}" if earlier else "no earlier one exists"
        )
        return f"restore it from a copy, or start a new run with another --out ({left})"

    def _checkpoint(self, step: int) -> Path:
        return self.checkpoints_path / f"step_{step:09d}"

    def _clear_leftovers(self, final: Path) -> None:
        """Makes checkpoints/ and removes what a killed process left half done in it."""
        if not self.checkpoints_path.exists():
            self.checkpoints_path.mkdir()
            _sync(self.path)
        for leftover in self.checkpoints_path.glob(".step_*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._discard(final)

    def _discard(self, folder: Path) -> None:
        """Removes a folder of a checkpoint: first its name, in one go, then its contents."""
        if folder.exists():
            hidden = self.checkpoints_path / f".{folder.relative_to(self.checkpoints_path)}-old".replace("/", "-")
            os.replace(folder, hidden)
            _sync(folder.parent)
            shutil.rmtree(hidden, ignore_errors=True)

    def _columns_on_disk(self) -> Sequence[str]:
        """The header of metrics.csv; empty before the first row."""
        if not self.metrics_path.exists():
            return []
        with self.metrics_path.open(newline="") as file:
            return next(csv.reader(file), [])

    def _metric_rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows; a last line without its end was cut short by a kill and does not count."""
        text = self.metrics_path.read_text() if self.metrics_path.exists() else ""
        complete = text.rpartition("\n")[0]
        if not complete:
            return [], []
        header, *rows = csv.reader(io.StringIO(complete))
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise RunError(
                    f"{self.metrics_path} is damaged in line {number} ({len(row)} fields, {len(header)} columns): "
                    "remove that line."
                )
        return header, rows

    def _append_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """TensorBoard records, written in this thread.

        tensorboardX's own writer hands them to a background thread through a bounded queue; when the disk is full that
        thread dies and the training waits for it for ever.
        """
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        events = []
        if self._events_path is None:
            self._events_path = self.path / f"events.out.tfevents.{time.time_ns()}"
            events.append(Event(file_version="brain.Event:2"))
            if self._purge_step is not None:
                events.append(Event(step=self._purge_step, session_log=SessionLog(status=SessionLog.START)))
        for row in rows:
            values = [
                Summary.Value(tag=f"seed_{int(row['seed'])}/{name}", simple_value=float(value))
                for name, value in row.items()
                if name not in ("step", "seed") and _field(value)
            ]
            events.append(Event(step=int(row["step"]), summary=Summary(value=values)))
        for event in events:
            event.wall_time = time.time()
        _append(self._events_path, b"".join(_tensorboard_record(event.SerializeToString()) for event in events))


def config_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], may_differ: Collection[str] = ("steps", "out", "resume")
) -> str | None:
    """One sentence that names every setting in which two configs differ, or None; `may_differ` is left out."""
    before, now = (
        _flattened({name: value for name, value in _to_json(config).items() if name not in may_differ})
        for config in (old, new)
    )
    fields = [name for name in {**before, **now} if before.get(name, "absent") != now.get(name, "absent")]
    if not fields:
        return None
    changes = ", ".join(f"{name} was {before.get(name, 'absent')} and is {now.get(name, 'absent')}" for name in fields)
    return f"The run was started with other settings ({changes}): resume it with its own, or choose another --out."


def versions() -> dict[str, str | None]:
    """Versions of Python, of this package and of what its numbers depend on; None where not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "element_rl": element_rl.__version__}
    for name in ("jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "mujoco", "faiss"):
        distributions = ("faiss-cpu", "faiss-gpu", "faiss") if name == "faiss" else (name,)
        found[name] = None
        for distribution in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = found[name] or importlib.metadata.version(distribution)
    return found


def commit() -> str | None:
    """The git commit of this source tree, with `-dirty` if it was changed since; None if it is not a checkout."""
    package = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=30, env=environment).stdout

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a package installed inside some other checkout is not of it
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip()
    except (OSError, subprocess.SubprocessError):
        return None


def hardware() -> dict[str, Any]:
    """The number of CPUs this process may use, their model, and JAX's devices."""
    import jax

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = names[0] if names else model
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu_count": count, "cpu_model": model, "devices": [device.device_kind for device in jax.devices()]}


def tree_to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays of a JAX pytree under the names of their places, such as `agent/layers/0/weight`.

    Python numbers become arrays without axes and PRNG keys their data; functions, strings and other leaves are left
    out, for `arrays_to_tree` to take from its template. On the CPU the arrays may share memory with the tree.
    """
    import jax

    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree, prefix):
        if _is_stored(leaf):
            if name in arrays:
                raise ValueError(f"Two leaves of the tree are both called {name!r}: rename a key.")
            arrays[name] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return arrays


def arrays_to_tree(template: Any, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Any:
    """The tree that `tree_to_arrays` took apart; shapes, dtypes and what is no array come from `template`."""
    import jax

    names_and_leaves = _named_leaves(template, prefix)
    expected = {name for name, leaf in names_and_leaves if _is_stored(leaf)}
    present = {name for name in arrays if not prefix or name == prefix or name.startswith(f"{prefix}/")}
    if missing := sorted(expected - present):
        raise RunError(f"The stored arrays lack {_listed(missing)}: they belong to another model or version.")
    if surplus := sorted(present - expected):
        raise RunError(f"The stored arrays have {_listed(surplus)} too many: they belong to another model or version.")
    leaves = [_restored(name, leaf, arrays) if name in expected else leaf for name, leaf in names_and_leaves]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _restored(name: str, leaf: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    import jax

    wanted = np.asarray(leaf) if isinstance(leaf, bool | int | float) else leaf
    wanted = jax.random.key_data(leaf) if _is_key(leaf) else wanted
    stored = arrays[name]
    if stored.shape != wanted.shape or stored.dtype != wanted.dtype:
        raise RunError(
            f"The stored array {name} is {stored.dtype}{list(stored.shape)} where {wanted.dtype}{list(wanted.shape)} is "
            "needed: it belongs to another model or version."
        )
    if isinstance(leaf, bool | int | float):
        return type(leaf)(stored.item())
    if isinstance(leaf, np.ndarray | np.generic):
        return stored.copy()[()] if isinstance(leaf, np.generic) else stored.copy()
    # A copy: a JAX array that borrowed NumPy's memory could not be donated.
    restored = jax.numpy.array(stored)
    return jax.random.wrap_key_data(restored, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else restored


def _named_leaves(tree: Any, prefix: str) -> list[tuple[str, Any]]:
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    return [
        ("/".join(filter(None, (prefix, name))) or "leaf", leaf) for name, (_, leaf) in zip(names, leaves, strict=True)
    ]


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _is_key(leaf: Any) -> bool:
    import jax

    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def write_json(path: Path, obj: Any) -> None:
    """Dataclasses, paths and NumPy values are written as JSON's own; numbers that are not finite as null."""
    text = _json_text(obj)
    write_atomically(path, lambda temporary: _write_text(temporary, text), len(text))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    needed = sum(np.asarray(array).nbytes for array in arrays.values())
    write_atomically(path, lambda temporary: _save_arrays(temporary, arrays, metadata), needed)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file."""
    try:
        with safetensors.safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"The file {path} cannot be read ({error}): restore it from a copy or make it again.") from error


def write_atomically(path: Path, write: Callable[[Path], None], needed_bytes: int = 0) -> None:
    """`write` fills a file of another name in the same folder, which then takes the place of `path`."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with _removing_on_failure(temporary, path, needed_bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)


@contextlib.contextmanager
def _removing_on_failure(temporary: Path, target: Path, needed_bytes: int) -> Iterator[None]:
    """Whatever goes wrong, `temporary` is removed; a disk that is full or refuses is reported in one sentence."""
    try:
        yield
    except BaseException as error:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink()
        _report_disk_error(error, target, needed_bytes)
        raise


def _report_disk_error(error: BaseException, target: Path, needed_bytes: int) -> None:
    # safetensors and FAISS raise errors of their own, with the system's message inside.
    for code in NO_ROOM:
        if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
            folder = next(parent for parent in target.parents if parent.exists())
            free = shutil.disk_usage(folder).free
            raise RunError(
                f"{target} could not be written ({os.strerror(code)}; {needed_bytes:,} bytes are needed, {free:,} are "
                "free): make room and resume, all that was written before is untouched."
            ) from error
    if isinstance(error, OSError):
        raise RunError(f"{target} could not be written ({error.strerror}): put that right and resume.") from error


def _save_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    # order="C": safetensors writes the memory of an array as it lies, whatever its strides.
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in contiguous.items():
        if array.dtype.kind not in "biufc":
            raise ValueError(f"The array {name} has dtype {array.dtype}: only numbers can be stored.")
    path.touch()
    mode = path.stat().st_mode
    safetensors.numpy.save_file(contiguous, path, metadata=dict(metadata) or None)  # an empty dict makes a bad file
    path.chmod(mode)  # safetensors would leave a file that only its owner can read


def _append(path: Path, data: bytes) -> None:
    """Adds all of `data` to the end of a file, or nothing of it."""
    try:
        with path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                remaining = memoryview(data)
                while remaining:
                    remaining = remaining[file.write(remaining) :]
            except BaseException:
                file.truncate(size)
                raise
    except OSError as error:
        _report_disk_error(error, path, len(data))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_manifest(folder: Path, step: int, metadata: Mapping[str, Any]) -> None:
    """Lists every file under `folder` but those of `resume/`, which has a manifest of its own."""
    names = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file()]
    files = {
        name.as_posix(): {"bytes": (folder / name).stat().st_size, "sha256": _sha256(folder / name)}
        for name in names
        if name.parts[0] != "resume"
    }
    manifest = _to_json({"step": step, "metadata": metadata, "files": files})
    _write_text(folder / MANIFEST, _json_text({**manifest, "checksum": _checksum(manifest)}))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    """Waits until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_json(path: Path, advice: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"The file {path} cannot be read ({error}): {advice}.") from error
    if not isinstance(content, dict):
        raise RunError(f"The file {path} is damaged (it holds no JSON object): {advice}.")
    return content


def _json_text(obj: Any) -> str:
    return json.dumps(_to_json(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _to_json(obj: Any) -> Any:
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return _to_json({field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)})
    if isinstance(obj, Mapping):
        return {str(name): _to_json(value) for name, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [_to_json(value) for value in obj]
    if isinstance(obj, np.ndarray | np.generic):
        return _to_json(obj.tolist())
    if isinstance(obj, float) and not math.isfinite(obj):
        return None
    return str(obj) if isinstance(obj, Path) else obj


def _flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as text under dotted names."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat


def _field(value: Any) -> str:
    """One field of metrics.csv; the shortest text that reads back as the same number of its precision."""
    number = np.asarray(np.nan if value is None else value)[()]
    if np.isnan(number):
        return ""
    return str(int(number)) if isinstance(number, np.bool_) else str(number)


def _tensorboard_record(message: bytes) -> bytes:
    """One record of an events file: length, its checksum, the message, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", masked_crc32c(length)) + message + struct.pack("<I", masked_crc32c(message))


def _listed(names: Sequence[object], most: int = 5) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
