"""What a run has logged: metrics.csv for people and programs, and the same numbers for TensorBoard
beside it.

A row is on the disk whole or not at all; a line that a kill cut short does not count.
"""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.events import first_records, metric_records
from element_rl.storage.files import FileError, append, write_text

FINAL_SHARE = 0.1  # the last tenth of a run's metrics is averaged in its summary
AVERAGED = ("episodic_entropy", "entropy_saturation", "extrinsic_return", "episode_length")


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
    """Task return and length of each seed's best episode; None for a seed that has finished none."""
    best = [
        (float(task_return), int(length)) if np.isfinite(task_return) else (None, None)
        for task_return, length in zip(returns, lengths, strict=True)
    ]
    return {
        "best_return": [task_return for task_return, _ in best],
        "best_length": [length for _, length in best],
    }


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
        lines = io.StringIO()
        columns = self._columns_on_disk()
        if not columns:
            columns = self._columns
            lines.write(",".join(columns) + "\n")
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
            lines.write(",".join(_field(row.get(column)) for column in columns) + "\n")
        append(self.path, lines.getvalue().encode())
        self._append_events(rows)

    def truncate(self, step: int) -> None:
        """Drops what was logged after `step`, when a run goes back to its checkpoint; TensorBoard
        hides it too."""
        self._purge_step, self._events_path = step + 1, None
        header, rows = self._rows()
        if not header:
            self.path.unlink(missing_ok=True)
            return
        kept = [row for row in rows if int(float(row[header.index("step")])) <= step]
        text = "".join(",".join(row) + "\n" for row in [header, *kept])
        write_text(self.path, text)

    def read(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv: `step` and `seed` as int64, the others as float64 with NaN for
        empty fields."""
        header, rows = self._rows()
        metrics = {}
        for position, name in enumerate(header):
            dtype = np.int64 if name in ("step", "seed") else np.float64
            try:
                metrics[name] = np.array(
                    [float(row[position] or "nan") for row in rows], np.float64
                ).astype(dtype)
            except ValueError as error:
                raise FileError(
                    f"{self.path} holds something else than numbers in column {name}."
                ) from error
        return metrics

    def _columns_on_disk(self) -> Sequence[str]:
        """The header of metrics.csv; empty before the first row."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return next(csv.reader(file), [])

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows; a last line without its end was cut short by a kill and does not count."""
        text = self.path.read_text() if self.path.exists() else ""
        complete = text.rpartition("\n")[0]
        if not complete:
            return [], []
        header, *rows = csv.reader(io.StringIO(complete))
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise FileError(
                    f"{self.path} is damaged in line {number} ({len(row)} fields, {len(header)} "
                    "columns): "
                    "remove that line."
                )
        return header, rows

    def _append_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        path = self._events_path or self.path.with_name(f"events.out.tfevents.{time.time_ns()}")
        start = b"" if self._events_path else first_records(self._purge_step)
        append(path, start + metric_records(rows))
        self._events_path = path


def _field(value: Any) -> str:
    """One field of metrics.csv; the shortest text that reads back as the same number of its
    precision."""
    number = np.asarray(np.nan if value is None else value)[()]
    if np.isnan(number):
        return ""
    return str(int(number)) if isinstance(number, np.bool_) else str(number)
