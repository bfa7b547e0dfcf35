"""Tables and sentences that compare methods, made of one score per run.

    score_table          environment × method: mean ± std, IQM and its interval
    improvement_table    how likely one method scores higher than each of the others, per
                         environment and over all, and whether that can be chance
    aggregate_table      scores of all environments together, each divided by a reference's mean
    sentences            the comparisons of `improvement_table`, one sentence each

`statistics.py` says what intervals and p-values are. A method that was not measured in an
environment keeps its row, with no numbers; a score that is not finite is left out. The IQM of a
single run has no interval. Where all scores are whole, as numbers of cells are, so are those means
that can be: 76, and not 76.00.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from element_rl.studies.engine.power import CHANCE, pooled_deviation, power_sentence
from element_rl.studies.engine.results import Table
from element_rl.studies.engine.statistics import (
    Estimate,
    holm,
    mean_and_std,
    permutation_p_value,
    probability_of_improvement,
    stratified_bootstrap,
)
from element_rl.studies.engine.table_text import Cell, cell_text

ALL = "all"  # environments
NO_ESTIMATE = (None, None, None)

MaybeEstimate = Estimate | tuple[float | None, None, None]
# environment → method → one score per run
Scores = Mapping[str, Mapping[str, Num[np.ndarray, " _"]]]


class Comparison(NamedTuple):
    """One method against another, in an environment or over all; None where one has no runs."""

    environment: str
    other: str
    better: MaybeEstimate  # P(better)
    p_value: float | None
    corrected: float | None  # the p-value, for all comparisons that were made together


def score_table(name: str, title: str, unit: str, scores: Scores) -> Table:
    """One row per environment and method."""
    rows: list[tuple[Cell, ...]] = []
    for environment, runs_of in scores.items():
        for method in _methods(scores):
            runs = _runs(runs_of, method)
            average, iqm = _mean_and_std(runs), _iqm([runs])
            mean, std, *interval = (_as_count(number, runs) for number in (*average, *iqm))
            rows.append((environment, method, len(runs), _spread_text(mean, std), *interval))
    columns = ("environment", "method", "seeds", f"mean ± std ({unit})", "IQM", "95 % from", "to")
    note = (
        "IQM: mean of the middle half of the runs. Interval: bootstrap over runs. "
        "std: of the runs, with R − 1."
    )
    return Table(name, title, columns, tuple(rows), note)


def improvement_table(name: str, title: str, scores: Scores, ours: str = "element") -> Table:
    """How likely a run of `ours` scores higher than one of each other method; last, the mean over
    environments."""
    made = comparisons(scores, ours)
    rows = tuple(
        (entry.environment, ours, entry.other, *entry.better, entry.p_value, entry.corrected)
        for entry in made
    )
    against = ("environment", "method", "against")
    columns = (*against, "P(better)", "95 % from", "to", "p", "p, corrected")
    note = (
        "P(better): probability that a run of the method scores higher than a run of the other, a "
        "tie counting half; Newcombe's interval. p: exact permutation test (Mann–Whitney) that the "
        f"two do not differ; corrected (Holm) for the {_made(made)} comparisons of this table. "
        f"Above {CHANCE:g} there is no clear difference. {_power(scores, ours, made)}"
    )
    return Table(name, title, columns, rows, note)


def aggregate_table(name: str, title: str, scores: Scores, reference: str = "random") -> Table:
    """Scores divided by the reference's mean in their environment, of all environments where both
    were measured."""
    rows: list[tuple[Cell, ...]] = []
    for method in _methods(scores):
        strata = []
        for environment, runs_of in scores.items():
            runs, divisors = _runs(runs_of, method), _runs(runs_of, reference)
            if len(runs) and len(divisors):
                strata.append(runs / _divisor(float(np.mean(divisors)), reference, environment))
        pooled = np.concatenate([*strata, np.zeros(0)])
        average = _spread_text(*_mean_and_std(pooled))
        rows.append((method, len(strata), len(pooled), average, *_iqm(strata)))
    columns = ("method", "environments", "runs", "mean ± std", "IQM", "95 % from", "to")
    note = (
        f"Scores are divided by the mean of {reference} in the same environment, which is taken as "
        "a constant. Interval: bootstrap over runs within each environment."
    )
    return Table(name, title, columns, tuple(rows), note)


def sentences(
    scores: Scores,
    more: str = "scores more than",
    less: str = "scores less than",
    ours: str = "element",
) -> tuple[str, ...]:
    """For every environment and other method: which of the two is ahead, if the runs can tell.

    `more` and `less` stand between their names: "On Ant-v5 element covers more than rnd: IQM …".
    """
    made = comparisons(scores, ours)
    found = []
    for entry in made:
        if entry.environment == ALL or entry.p_value is None or entry.corrected is None:
            continue
        runs_of = scores[entry.environment]
        mine, others = _runs(runs_of, ours), _runs(runs_of, entry.other)
        if 2 / math.comb(len(mine) + len(others), len(mine)) > CHANCE:
            # Even if all runs of one side beat all of the other, that would often be chance.
            number = f"{len(mine)} and {len(others)} runs"
            verdict = f"{number} are too few to tell {ours} from {entry.other}"
        elif entry.p_value > CHANCE:
            verdict = f"there is no clear difference between {ours} and {entry.other}"
        else:
            verdict = f"{ours} {more if (entry.better[0] or 0.0) > 0.5 else less} {entry.other}"
            if entry.corrected > CHANCE:
                verdict += f", though not clearly, as one of {_made(made)} comparisons"
        found.append(
            f"On {entry.environment} {verdict}: IQM {_iqm_text(mine)} against {_iqm_text(others)}, "
            f"P(better) {_estimate_text(entry.better, '.2f')}, "
            f"p {cell_text(entry.p_value)}, corrected {cell_text(entry.corrected)}."
        )
    return tuple(found)


def comparisons(scores: Scores, ours: str) -> list[Comparison]:
    """`ours` against every other method in every environment and, where there are several, over
    all of them; p-values are corrected for the number of these."""
    made = []
    for environment in [*scores, *([ALL] if len(scores) > 1 else [])]:
        strata = list(scores.values()) if environment == ALL else [scores[environment]]
        for other in [method for method in _methods(scores) if method != ours]:
            pairs = [(_runs(runs_of, ours), _runs(runs_of, other)) for runs_of in strata]
            pairs = [(mine, others) for mine, others in pairs if len(mine) and len(others)]
            if not pairs:
                made.append(Comparison(environment, other, NO_ESTIMATE, None, None))
                continue
            mine, others = zip(*pairs, strict=True)
            better = probability_of_improvement(mine, others)
            p_value = permutation_p_value(mine, others)
            made.append(Comparison(environment, other, better, p_value, None))
    corrected = iter(holm([entry.p_value for entry in made if entry.p_value is not None]))
    return [
        entry if entry.p_value is None else entry._replace(corrected=next(corrected))
        for entry in made
    ]


def _power(scores: Scores, ours: str, made: Sequence[Comparison]) -> str:
    """What these comparisons can find, from the spread of the runs in each environment."""
    runs = {
        env: [found for name in runs_of if len(found := _runs(runs_of, name))]
        for env, runs_of in scores.items()
        if len(_runs(runs_of, ours))
    }
    fewest = min((len(found) for methods in runs.values() for found in methods), default=0)
    deviations = {env: pooled_deviation(methods) for env, methods in runs.items()}
    return power_sentence(fewest, deviations, _made(made))


def _made(entries: Sequence[Comparison]) -> int:
    return sum(entry.p_value is not None for entry in entries)


def _mean_and_std(runs: Num[np.ndarray, " R"]) -> tuple[float | None, float | None]:
    return mean_and_std(runs) if len(runs) else (None, None)


def _spread_text(mean: float | int | None, std: float | int | None) -> str | None:
    return None if mean is None else f"{cell_text(mean)} ± {cell_text(std)}"


def _as_count(number: float | None, runs: Num[np.ndarray, " R"]) -> float | int | None:
    """A whole number of whole scores as an integer; all others as they are."""
    if number is None or not float(number).is_integer() or np.any(runs % 1):
        return number
    return int(number)


def _iqm_text(runs: Num[np.ndarray, " R"]) -> str:
    value, low, high = (_as_count(number, runs) for number in _iqm([runs]))
    return _estimate_text((value, low, high))


def _estimate_text(estimate: Sequence[float | int | None], digits: str = "") -> str:
    value, low, high = (
        format(number, digits) if digits and number is not None else cell_text(number)
        for number in estimate
    )
    return value if estimate[1] is None else f"{value} ({low} to {high})"


def _iqm(strata: Sequence[Float[np.ndarray, " _"]]) -> MaybeEstimate:
    """The IQM of all strata together, and its interval if every stratum has runs to resample."""
    if not strata or not all(len(runs) for runs in strata):
        return NO_ESTIMATE
    estimate = stratified_bootstrap(strata)
    return estimate if all(len(runs) > 1 for runs in strata) else (estimate.value, None, None)


def _divisor(mean: float, reference: str, environment: str) -> float:
    if not mean > 0:
        raise ValueError(
            f"Scores cannot be divided by those of {reference} in {environment}, whose mean is "
            f"{mean:g}: choose another reference, with a mean above 0."
        )
    return mean


def _methods(scores: Scores) -> list[str]:
    return list(dict.fromkeys(method for runs_of in scores.values() for method in runs_of))


def _runs(runs_of: Mapping[str, Num[np.ndarray, " _"]], method: str) -> Float[np.ndarray, " R"]:
    runs = np.asarray(runs_of.get(method, ()), np.float64)
    return runs[np.isfinite(runs)]
