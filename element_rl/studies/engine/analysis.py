"""What studies make of finished cells: scores, curves, maps and notes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from element_rl.runs.visits import has_map
from element_rl.studies.engine.grid import FinishedCell
from element_rl.studies.engine.maps import visits_map
from element_rl.studies.engine.results import COUNTED, Curves, Map, Series, Table
from element_rl.studies.engine.statistics import curve_with_interval

BAND = "Line: interquartile mean over seeds. Band: 95 % bootstrap interval. Points: every seed."

# environment → method → one score per seed
SeedScores = dict[str, dict[str, np.ndarray]]


def by_environment(cells: Sequence[FinishedCell]) -> dict[str, list[FinishedCell]]:
    """Cells of each environment, in their order."""
    groups: dict[str, list[FinishedCell]] = {}
    for entry in cells:
        groups.setdefault(entry.cell.env, []).append(entry)
    return groups


def measured(
    cells: Sequence[FinishedCell], measure: Callable[[FinishedCell], np.ndarray]
) -> SeedScores:
    """A measure of every cell, one number per seed."""
    return {
        env: {entry.cell.method: measure(entry) for entry in entries}
        for env, entries in by_environment(cells).items()
    }


def scores_of(cells: Sequence[FinishedCell], quantity: str) -> SeedScores:
    """A quantity of the summaries; NaN where a seed has none."""
    return measured(cells, lambda entry: np.array(entry.summary[quantity], np.float64))


def means_over_training(cells: Sequence[FinishedCell], column: str) -> SeedScores:
    """The mean of a column of the metrics over all of training."""
    return measured(cells, lambda entry: mean_over_training(entry, column))


def mean_over_training(entry: FinishedCell, column: str) -> Float[np.ndarray, " R"]:
    """Over its steps, however unevenly they were logged; before its first finished episode a run
    has no return."""
    steps, values = entry.curves(column)
    weights = np.diff(steps, prepend=0) * np.isfinite(values)
    return np.asarray(
        np.sum(weights * np.nan_to_num(values), axis=1) / np.maximum(np.sum(weights, axis=1), 1)
    )


def mean_of(summary: Mapping[str, object], quantity: str) -> float | None:
    """The mean over seeds of a quantity of a summary; None where it has none."""
    values = [value for value in summary.get(quantity) or () if value is not None]  # type: ignore[attr-defined]
    return float(np.mean(values)) if values else None


def means_table(
    name: str,
    title: str,
    cells: Sequence[FinishedCell],
    quantities: Mapping[str, str],
    note: str = "",
) -> Table:
    """Quantities of the summaries, as means over seeds; by the headings of their columns."""
    rows = tuple(
        (env, entry.cell.method, *(mean_of(entry.summary, part) for part in quantities.values()))
        for env, entries in by_environment(cells).items()
        for entry in entries
    )
    return Table(name, title, ("environment", "method", *quantities), rows, note)


def curves_of(
    cells: Sequence[FinishedCell],
    column: str,
    y_label: str,
    x_label: str = "environment steps per seed",
) -> tuple[Curves, ...]:
    """One set of axes per environment, one line per method."""
    return tuple(
        Curves(
            f"{column}_{env}",
            env,
            x_label,
            y_label,
            tuple(_series(entry, column) for entry in entries),
            BAND,
            counts=column in COUNTED,
        )
        for env, entries in by_environment(cells).items()
    )


def _series(entry: FinishedCell, column: str) -> Series:
    steps, values = entry.curves(column)
    logged = np.isfinite(values).any(axis=0)
    steps, values = steps[logged], values[:, logged]
    return Series.of(entry.cell.method, steps, curve_with_interval(values), values)


def maps_of(cells: Sequence[FinishedCell]) -> tuple[Map, ...]:
    """Where the agents of each cell have been, all seeds together, up to each checkpoint."""
    return tuple(
        visits_map(
            entry.run,
            entry.checkpoints(),
            name=f"visits_{entry.cell.env}_{entry.cell.method}",
            title=entry.cell.method,
            value_label="visits, all seeds",
            group=f"{entry.cell.env}: where the agents have been",
        )
        for entry in cells
        if has_map(entry.run.config) and entry.checkpoints()
    )


def length_notes(cells: Sequence[FinishedCell]) -> tuple[str, ...]:
    """U and T_u as they were, and how long episodes are: both matter to every entropy."""
    notes = []
    for env, entries in by_environment(cells).items():
        summary = next((e.summary for e in entries if e.summary["reward"] == "element"), {})
        if "update_interval" in summary:  # a run on frames tells it when it is done
            notes.append(
                f"{env}: {summary['steps']:,} steps per seed; the lifelong memory takes in "
                f"{summary['update_steps']:,} steps every {summary['update_interval']:,} (the "
                "paper: 50,000 every 500,000, shrunk in proportion)."
            )
    return tuple(notes)
