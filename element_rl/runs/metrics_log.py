"""What a run has logged: metrics.csv for people and programs, and the same numbers for TensorBoard
beside it, in events files.

A row is on the disk whole or not at all; a line that a kill cut short does not count. tensorboardX
has a writer of events files too. It hands its records to a background thread through a bounded
queue; when the disk is full that thread dies and the training waits for it for ever. Only its
messages and its checksum are used here, and they are imported where they are used: run folders are
read without loading them.
"""

import csv
import io
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.storage.files import FileError, append, write_text

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
FINAL_SHARE = 0.1  # the last tenth of a run's metrics is averaged in its summary
AVERAGED = ("episodic_entropy", "entropy_saturation", "extrinsic_return", "episode_length")


class MetricsLog:
    """metrics.csv at `path`; `columns` becomes its header with the first row."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = tuple(columns)
        self._events_path: Path | None = None
        self._purge_step: int | None = None

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds one row per step and seed to metrics.csv and to TensorBoard; on the disk, whole, on
        return.

        Values are scalars; None, NaN and columns a row does not have become empty fields.
        """
        header = self._header()
        columns = header or self._columns
        lines = [] if header else [",".join(columns)]
        for row in rows:
            if unknown := sorted(set(row) - set(columns)):
                raise ValueError(
                    f"metrics.csv has no column {', '.join(unknown)}: name it in metric_columns "
                    "when creating the run."
                )
            if "step" not in row or "seed" not in row:
                raise ValueError(
                    f"A row of metrics needs step and seed, and has only {', '.join(row)}."
                )
            lines.append(",".join(_field(row.get(column)) for column in columns))
        append(self.path, "".join(f"{line}\n" for line in lines).encode())
        events = self._events_path or self.path.with_name(f"events.out.tfevents.{time.time_ns()}")
        start = b"" if self._events_path else first_records(self._purge_step)
        append(events, start + metric_records(rows))
        self._events_path = events

    def truncate(self, step: int) -> None:
        """Drops what was logged after `step`, when a run goes back to its checkpoint; TensorBoard
        hides it too."""
        self._purge_step, self._events_path = step + 1, None
        header, rows = self._rows()
        if not header:
            self.path.unlink(missing_ok=True)
            return
        if "step" not in header:
            raise FileError(f"{self.path} has no column step: restore it from a copy.")
        steps = self._whole_numbers("step", [row[header.index("step")] for row in rows])
        kept = [row for row, number in zip(rows, steps.tolist(), strict=True) if number <= step]
        write_text(self.path, "".join(",".join(row) + "\n" for row in [header, *kept]))

    def read(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv: `step` and `seed` as int64, the others as float64 with NaN for
        empty fields."""
        header, rows = self._rows()
        metrics = {}
        for position, name in enumerate(header):
            fields = [row[position] for row in rows]
            whole = name in ("step", "seed")
            metrics[name] = (self._whole_numbers if whole else self._numbers)(name, fields)
        return metrics

    def _numbers(self, name: str, fields: Sequence[str]) -> np.ndarray:
        try:
            return np.array([float(field or "nan") for field in fields], np.float64)
        except ValueError as error:
            raise FileError(
                f"{self.path} holds something else than numbers in column {name}."
            ) from error

    def _whole_numbers(self, name: str, fields: Sequence[str]) -> np.ndarray:
        numbers = self._numbers(name, fields)
        if not (np.abs(numbers) < 2**53).all():  # nor is NaN
            raise FileError(
                f"{self.path} holds something else than whole numbers in column {name}."
            )
        return numbers.astype(np.int64)

    def _header(self) -> Sequence[str]:
        """The columns on the disk; none before the first row."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return next(csv.reader(file), [])

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows; a last line without its end was cut short by a kill and does not
        count."""
        text = self.path.read_text() if self.path.exists() else ""
        complete = text.rpartition("\n")[0]
        if not complete:
            return [], []
        header, *rows = csv.reader(io.StringIO(complete))
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise FileError(
                    f"{self.path} is damaged in line {number} ({len(row)} fields, {len(header)} "
                    "columns): remove that line."
                )
        return header, rows


def _field(value: Any) -> str:
    """One field of metrics.csv; the shortest text that reads back as the same number of its
    precision."""
    number = np.asarray(np.nan if value is None else value)[()]
    if np.isnan(number):
        return ""
    return str(int(number)) if isinstance(number, np.bool_) else str(number)


def metric_records(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One record of an events file per row; a column becomes `seed_0/coverage`, None and NaN are
    left out."""
    from tensorboardX.proto.summary_pb2 import Summary

    records = []
    for row in rows:
        values = [
            Summary.Value(tag=f"seed_{int(row['seed'])}/{name}", simple_value=float(value))
            for name, value in row.items()
            if name not in ("step", "seed") and value is not None and not np.isnan(float(value))
        ]
        records.append(_record(step=int(row["step"]), summary=Summary(value=values)))
    return b"".join(records)


def first_records(purge_step: int | None) -> bytes:
    """What an events file begins with; TensorBoard hides what earlier files of the run have from
    `purge_step` on."""
    from tensorboardX.proto.event_pb2 import SessionLog

    version = _record(file_version="brain.Event:2")
    if purge_step is None:
        return version
    return version + _record(step=purge_step, session_log=SessionLog(status=SessionLog.START))


def _record(**content: Any) -> bytes:
    """Length, its checksum, the message, its checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    message = Event(wall_time=time.time(), **content).SerializeToString()
    length = struct.pack("<Q", len(message))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, message)]
    return length + checksums[0] + message + checksums[1]


def final_averages(
    logged: Mapping[str, np.ndarray], step: int, seeds: Sequence[int], share: float = FINAL_SHARE
) -> dict[str, list[float | None]]:
    """Entropy, return and length of episodes, per seed, averaged over the last `share` of the steps
    up to `step`."""
    recent = (logged["step"] > (1 - share) * step) & (logged["step"] <= step)
    averages: dict[str, list[float | None]] = {}
    for name in AVERAGED:
        values = [logged[name][recent & (logged["seed"] == seed)] for seed in seeds]
        averages[name] = [float(np.nanmean(v)) if np.isfinite(v).any() else None for v in values]
    return averages


def best_episodes(
    returns: Sequence[float], lengths: Sequence[float | int]
) -> dict[str, list[float | int | None]]:
    """Task return and length of each seed's best episode; None for a seed that has finished
    none."""
    ended = [bool(np.isfinite(task_return)) for task_return in returns]
    return {
        "best_return": [float(r) if e else None for r, e in zip(returns, ended, strict=True)],
        "best_length": [int(n) if e else None for n, e in zip(lengths, ended, strict=True)],
    }
