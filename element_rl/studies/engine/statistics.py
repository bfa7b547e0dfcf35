"""What a few runs tell: robust averages, intervals and comparisons.

With R scores of runs that differ in their seed only, x_(1) ≤ … ≤ x_(R),

    mean, std       x̄ = Σ x_i / R,  s = √( Σ (x_i − x̄)² / (R − 1) )
    IQM             2 ∫ Q(u) du for u from 1/4 to 3/4, where Q is the empirical quantile function, x_(i) on ((i−1)/R, i/R]
    P(X > Y)        Σ_ij [x_i > y_j] + ½ [x_i = y_j]  /  (R_x R_y), averaged over strata

The interquartile mean (IQM) is the mean of the middle half of the scores. Where 4 divides R that is
`scipy.stats.trim_mean` with 0.25, which drops ⌊R/4⌋ scores at either end; elsewhere the two scores
at the edges count by the part of them that lies in the middle half, so that exactly half of the
mass counts for every R (for R = 5: weights 0, 0.3, 0.4, 0.3, 0). The IQM of one or two runs is
their mean.

Intervals are 95 % percentile intervals of the stratified bootstrap: runs are drawn with replacement
within their stratum (an environment), so that every resample has as many runs of each environment
as there were. They speak of the seeds, not of the environments, which are not resampled. With few
runs they are too narrow: for normally distributed scores the interval of the IQM holds the truth in
75 % of the cases with 3 runs, 91 % with 5, 94 % with 10 and with 20 (6,000 simulations each).

Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021,
https://arxiv.org/abs/2108.13264, sections 4.1 (stratified bootstrap), 4.2 (sample efficiency
curves) and 4.3 (IQM, probability of improvement).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

REPETITIONS = 2_000
CONFIDENCE = 0.95

Statistic = Callable[[Num[np.ndarray, "*B R"]], Float[np.ndarray, "*B"]]
Runs = Num[np.ndarray, " _"]  # one score per run


class Estimate(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


class EstimatedCurve(NamedTuple):
    """The same at every step; NaN where no run has a value."""

    value: Float[np.ndarray, " T"]
    low: Float[np.ndarray, " T"]
    high: Float[np.ndarray, " T"]


def interquartile_mean(scores: Num[np.ndarray, "*B R"]) -> Float[np.ndarray, "*B"]:
    """The mean of the middle half of the scores, along the last axis."""
    runs = scores.shape[-1]
    if runs == 0:
        raise ValueError("The interquartile mean of no scores does not exist: give at least one.")
    # Counted in quarters of a run all edges are integers, and so are the weights.
    edges = np.clip(4 * np.arange(runs + 1), runs, 3 * runs)
    return np.asarray(np.sort(scores, axis=-1) @ np.diff(edges).astype(np.float64) / (2 * runs))


def mean_and_std(scores: Runs) -> tuple[float, float]:
    """Mean and sample standard deviation (R − 1 in its denominator; NaN for a single run)."""
    return float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else float(
        "nan"
    )


def stratified_bootstrap(
    strata: Sequence[Runs],
    statistic: Statistic = interquartile_mean,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> Estimate:
    """A statistic of all scores together and its interval, runs resampled within their stratum.

    `statistic` maps [B, R] to [B], such as `interquartile_mean` or `partial(np.mean, axis=-1)`. A
    stratum with more runs than another has more weight in it.
    """
    draws = _draws(strata, repetitions, seed)
    resampled = np.concatenate(
        [np.asarray(runs)[drawn] for runs, drawn in zip(strata, draws, strict=True)], axis=-1
    )
    value = statistic(np.concatenate([np.asarray(runs) for runs in strata])[None])
    return Estimate(float(value[0]), *_interval(statistic(resampled)).tolist())


def probability_of_improvement(
    x: Sequence[Runs], y: Sequence[Runs], repetitions: int = REPETITIONS, seed: int = 0
) -> Estimate:
    """How likely a run of X scores higher than a run of Y, ties counting half: the mean over
    strata, and its interval.

    x[e] and y[e] are the scores in stratum e; within one this is the Mann–Whitney U of X over R_x
    R_y.
    """
    if len(x) != len(y):
        raise ValueError(f"Both sides need the same strata, got {len(x)} and {len(y)}.")
    draws = _draws([*x, *y], repetitions, seed)
    values, resampled = [], []
    for runs_x, runs_y, drawn_x, drawn_y in zip(
        x, y, draws[: len(x)], draws[len(x) :], strict=True
    ):
        difference = np.asarray(runs_x)[:, None] - np.asarray(runs_y)[None, :]
        wins = (np.sign(difference) + 1) / 2
        values.append(np.mean(wins))
        # How often each run was drawn says all: no comparison is made twice.
        counts_x, counts_y = _counts(drawn_x, len(runs_x)), _counts(drawn_y, len(runs_y))
        resampled.append(np.sum(counts_x @ wins * counts_y, axis=1) / wins.size)
    return Estimate(float(np.mean(values)), *_interval(np.mean(resampled, axis=0)).tolist())


def curve_with_interval(
    values: Num[np.ndarray, "R T"],
    statistic: Statistic = interquartile_mean,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> EstimatedCurve:
    """A statistic over runs at every step, and its interval; whole runs are resampled.

    NaN stands for a run that has no value at a step: the statistic there is that of the others.
    """
    values = np.asarray(values, np.float64)
    curve = EstimatedCurve(*np.full((3, values.shape[1]), np.nan))
    present = np.isfinite(values)
    # Nearly always all runs have a value, or all of those that have begun: a few sets of steps.
    for pattern in np.unique(present, axis=1).T:
        steps = np.flatnonzero((present == pattern[:, None]).all(axis=0))
        if pattern.any():
            runs = values[np.ix_(pattern, steps)].T
            (drawn,) = _draws([runs[0]], repetitions, seed)
            curve.value[steps] = statistic(runs)
            curve.low[steps], curve.high[steps] = _interval(statistic(runs[:, drawn]).T)
    return curve


def _draws(strata: Sequence[Runs], repetitions: int, seed: int) -> list[Int[np.ndarray, "B R"]]:
    """Which runs each repetition draws, for every stratum."""
    if not strata or any(len(runs) == 0 for runs in strata):
        raise ValueError(
            f"Every stratum needs at least one run, got {[len(runs) for runs in strata]}."
        )
    if repetitions < 1:
        raise ValueError(f"The bootstrap needs at least one repetition, got {repetitions}.")
    random = np.random.default_rng(seed)
    return [random.integers(len(runs), size=(repetitions, len(runs))) for runs in strata]


def _interval(resampled: Float[np.ndarray, "B ..."]) -> Float[np.ndarray, "2 ..."]:
    return np.asarray(np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0))


def _counts(drawn: Int[np.ndarray, "B R"], runs: int) -> Int[np.ndarray, "B R"]:
    return np.asarray((drawn[:, :, None] == np.arange(runs)).sum(axis=1))
