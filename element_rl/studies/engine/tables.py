"""Tables of studies: scores of methods and their comparison, as Markdown and as CSV.

    write_tables         NAME.md and NAME.csv of every table of a study's results
    show_tables          all of them on a terminal
    score_table          environment × method: mean ± std, IQM and its interval
    improvement_table    how likely one method scores higher than each of the others, per environment and over all
    aggregate_table      scores of all environments together, each divided by a reference method's mean
    sentences            the same comparisons, one sentence each

Intervals are 95 % bootstrap intervals over runs, as `statistics.py` has them. A method that was not
measured in an environment keeps its row, with no numbers; a score that is not finite is left out. A
single run has no interval.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Num
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from element_rl.storage.files import write_text
from element_rl.studies.engine.results import Results, Table
from element_rl.studies.engine.statistics import (
    Estimate,
    mean_and_std,
    probability_of_improvement,
    stratified_bootstrap,
)

NOTHING = "–"
ALL = "all"  # environments

Cell = str | float | int | None
_Estimate = tuple[float | None, float | None, float | None]  # value, low, high
# environment → method → one score per run
Scores = Mapping[str, Mapping[str, Num[np.ndarray, " _"]]]


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Writes every table twice, for people and for programs; the files."""
    written = []
    for table in results.tables:
        note = f"\n{_one_line(table.note)}\n" if table.note else ""
        for kind, text in (
            ("md", f"# {_one_line(table.title)}\n\n{markdown(table)}{note}"),
            ("csv", csv_text(table)),
        ):
            written.append(folder / f"{file_stem(table.name)}.{kind}")
            write_text(written[-1], text)
    return written


def markdown(table: Table) -> str:
    """The table alone: columns of numbers to the right, thousands separated, digits as many as a
    reader takes in."""
    columns = list(zip(*table.rows, strict=True)) or [() for _ in table.columns]
    rulers = ["---:" if _is_of_numbers(column) else "---" for column in columns]
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    lines = [
        [_escaped(name) for name in table.columns],
        rulers,
        *[[_escaped(text) for text in row] for row in rows],
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def show_tables(results: Results, console: Console | None = None) -> None:
    """Prints every table: drawn with lines for whoever watches, as Markdown into a file or a pipe."""
    console = console or Console()
    for table in results.tables:
        if console.file.isatty():
            console.print()
            console.print(terminal_table(table))
        else:
            print(f"\n{table.title}\n\n{markdown(table)}", file=console.file)


def terminal_table(table: Table) -> RichTable:
    """The table as it is drawn on a terminal; what has no room is folded, never cut."""
    columns = list(zip(*table.rows, strict=True)) or [() for _ in table.columns]
    drawn = RichTable(title=escape(table.title), title_justify="left")
    for name, column in zip(table.columns, columns, strict=True):
        drawn.add_column(
            escape(name), justify="right" if _is_of_numbers(column) else "left", overflow="fold"
        )
    for row in table.rows:
        drawn.add_row(*(escape(cell_text(cell)) for cell in row))
    return drawn


def csv_text(table: Table) -> str:
    """A header and the rows; numbers with all their digits, empty fields for what was not measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if _is_missing(cell) else cell for cell in row] for row in table.rows)
    return text.getvalue()


def score_table(
    name: str,
    title: str,
    unit: str,
    scores: Scores,
    methods: Sequence[str] | None = None,
    seed: int = 0,
) -> Table:
    """One row per environment and method, in the order of `methods` (default: as they come)."""
    rows: list[tuple[Cell, ...]] = []
    for environment, runs_of in scores.items():
        for method in methods or _methods(scores):
            runs = _runs(runs_of, method)
            estimate = _estimate([runs], seed)
            rows.append((environment, method, len(runs), _mean_and_std_text(runs), *estimate))
    columns = ("environment", "method", "seeds", f"mean ± std ({unit})", "IQM", "95 % from", "to")
    note = "IQM: mean of the middle half of the runs. Interval: bootstrap over runs. std: of the runs, with R − 1."
    return Table(name, title, columns, tuple(rows), note)


def improvement_table(
    name: str,
    title: str,
    scores: Scores,
    methods: Sequence[str] | None = None,
    ours: str = "element",
    seed: int = 0,
) -> Table:
    """How likely a run of `ours` scores higher than one of each other method; last, the mean over
    environments."""
    others = [method for method in methods or _methods(scores) if method != ours]
    rows: list[tuple[Cell, ...]] = []
    for environment in [*scores, *([ALL] if len(scores) > 1 else [])]:
        for other in others:
            strata = list(scores.values()) if environment == ALL else [scores[environment]]
            rows.append((environment, ours, other, *_improvement(strata, ours, other, seed)))
    columns = ("environment", "method", "against", "P(better)", "95 % from", "to")
    note = (
        "P(better): probability that a run of the method scores higher than a run of the other, a "
        "tie counting half. "
        "An interval that holds 0.5 shows no clear difference."
    )
    return Table(name, title, columns, tuple(rows), note)


def aggregate_table(
    name: str,
    title: str,
    scores: Scores,
    reference: str = "random",
    methods: Sequence[str] | None = None,
    seed: int = 0,
) -> Table:
    """Scores divided by the reference's mean in their environment, of all environments where both
    were measured."""
    rows: list[tuple[Cell, ...]] = []
    for method in methods or _methods(scores):
        strata = []
        for environment, runs_of in scores.items():
            runs, divisors = _runs(runs_of, method), _runs(runs_of, reference)
            if len(runs) and len(divisors):
                strata.append(runs / _divisor(float(np.mean(divisors)), reference, environment))
        pooled = np.concatenate([*strata, np.zeros(0)])
        rows.append(
            (method, len(strata), len(pooled), _mean_and_std_text(pooled), *_estimate(strata, seed))
        )
    columns = ("method", "environments", "runs", "mean ± std", "IQM", "95 % from", "to")
    note = (
        f"Scores are divided by the mean of {reference} in the same environment, which is taken as "
        "a constant. "
        "Interval: bootstrap over runs within each environment."
    )
    return Table(name, title, columns, tuple(rows), note)


def sentences(
    scores: Scores,
    more: str = "scores more than",
    less: str = "scores less than",
    methods: Sequence[str] | None = None,
    ours: str = "element",
    seed: int = 0,
) -> tuple[str, ...]:
    """For every environment and other method: which of the two is ahead, if the runs can tell.

    `more` and `less` stand between their names: "On Ant-v5 element covers more than rnd: IQM …".
    """
    said = []
    for environment, runs_of in scores.items():
        for other in [method for method in methods or _methods(scores) if method != ours]:
            mine, theirs = _runs(runs_of, ours), _runs(runs_of, other)
            if not len(mine) or not len(theirs):
                continue
            better = _improvement([runs_of], ours, other, seed)
            _, low, high = better
            if low is None or high is None or _is_too_few(len(mine), len(theirs)):
                verdict = (
                    f"{len(mine)} and {len(theirs)} runs are too few to tell {ours} from {other}"
                )
            elif low <= 0.5 <= high:
                verdict = f"there is no clear difference between {ours} and {other}"
            else:
                verdict = f"{ours} {more if low > 0.5 else less} {other}"
            averages = f"IQM {_estimate_text(_estimate([mine], seed))} against {_estimate_text(_estimate([theirs], seed))}"
            said.append(
                f"On {environment} {verdict}: {averages}, P(better) "
                f"{_estimate_text(better, '.2f')}."
            )
    return tuple(said)


def file_stem(name: str) -> str:
    """A name of a table or a figure as that of a file, whatever is in it."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "unnamed"


def cell_text(cell: Cell) -> str:
    """A cell as a person would write it: 2,140 and 3.422 and –."""
    if _is_missing(cell):
        return NOTHING
    if isinstance(cell, float):
        return _number_text(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _number_text(value: float) -> str:
    """Four digits, or as many as stand before the point; an exponent only where a person would
    write one."""
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.2e}"
    # 999.96 is written with four digits before the point
    before = len(str(int(float(f"{size:.4g}"))))
    return f"{value:,.{max(4 - before, 0)}f}"


def _mean_and_std_text(runs: Num[np.ndarray, " R"]) -> str | None:
    if not len(runs):
        return None
    mean, std = mean_and_std(runs)
    return f"{_number_text(mean)} ± {cell_text(std)}"


def _estimate_text(estimate: _Estimate, digits: str = "") -> str:
    value, low, high = [
        None if number is None else format(number, digits) if digits else cell_text(number)
        for number in estimate
    ]
    return f"{value} ({low} to {high})" if low is not None else f"{value}"


def _estimate(strata: Sequence[Float[np.ndarray, " _"]], seed: int) -> _Estimate:
    """The IQM of all strata together, and its interval if every stratum has runs to resample."""
    if not strata or not all(len(runs) for runs in strata):
        return None, None, None
    return _with_interval_if(
        all(len(runs) > 1 for runs in strata), stratified_bootstrap(strata, seed=seed)
    )


def _improvement(
    strata: Sequence[Mapping[str, Num[np.ndarray, " _"]]], ours: str, other: str, seed: int
) -> _Estimate:
    """P(better) over the strata that have runs of both methods."""
    pairs = [(_runs(runs_of, ours), _runs(runs_of, other)) for runs_of in strata]
    pairs = [(mine, theirs) for mine, theirs in pairs if len(mine) and len(theirs)]
    if not pairs:
        return None, None, None
    mine, theirs = zip(*pairs, strict=True)
    resampled = all(len(runs) > 1 for runs in (*mine, *theirs))
    return _with_interval_if(resampled, probability_of_improvement(mine, theirs, seed=seed))


def _with_interval_if(resampled: bool, estimate: Estimate) -> _Estimate:
    return (
        (estimate.value, estimate.low, estimate.high) if resampled else (estimate.value, None, None)
    )


def _is_too_few(runs: int, others: int) -> bool:
    """Whether even complete separation happens by chance more often than once in twenty: 2 / C(n +
    m, n) > 0.05."""
    return 2 / math.comb(runs + others, runs) > 0.05


def _divisor(mean: float, reference: str, environment: str) -> float:
    if not mean > 0:
        raise ValueError(
            f"Scores cannot be divided by those of {reference} in {environment}, whose mean is "
            f"{mean:g}: choose another "
            "reference, with a mean above 0."
        )
    return mean


def _methods(scores: Scores) -> list[str]:
    return list(dict.fromkeys(method for runs_of in scores.values() for method in runs_of))


def _runs(runs_of: Mapping[str, Num[np.ndarray, " _"]], method: str) -> Float[np.ndarray, " R"]:
    runs = np.asarray(runs_of.get(method, ()), np.float64)
    return runs[np.isfinite(runs)]


def _is_missing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _is_of_numbers(column: Sequence[Cell]) -> bool:
    """Whether a column has no text; an all-empty one counts as text."""
    present = [cell for cell in column if cell is not None]
    return bool(present) and not any(isinstance(cell, str) for cell in present)


def _escaped(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())
