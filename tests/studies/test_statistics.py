"""Statistics against numbers worked out by hand, against SciPy, and against what intervals promise."""

import time
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from element_rl.studies.engine.statistics import (
    curve_with_interval,
    interquartile_mean,
    mean_and_std,
    probability_of_improvement,
    stratified_bootstrap,
)

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0], 1.5),
        (
            [0.0, 1.0, 100.0],
            (0.25 * 0 + 1 + 0.25 * 100) / 1.5,
        ),  # one and a half of three runs count
        ([100.0, 1.0, 2.0, -50.0], 1.5),
        ([0.0, 1.0, 2.0, 4.0, 90.0], 0.3 * 1 + 0.4 * 2 + 0.3 * 4),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 90.0], (0.5 * 1 + 2 + 3 + 0.5 * 4) / 3),
    ],
)
def test_interquartile_mean_by_hand(scores: list[float], expected: float) -> None:
    np.testing.assert_allclose(interquartile_mean(np.array(scores)), expected, rtol=1e-12)


@pytest.mark.parametrize("runs", [4, 8, 20])
def test_interquartile_mean_is_scipys_trimmed_mean_where_4_divides(runs: int) -> None:
    scores = RANDOM.normal(size=(3, 5, runs))
    np.testing.assert_allclose(
        interquartile_mean(scores), scipy.stats.trim_mean(scores, 0.25, axis=-1)
    )


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=30), st.integers(-100, 100))
def test_interquartile_mean_is_an_average(scores: list[int], shift: int) -> None:
    values = np.array(scores)
    mean = float(interquartile_mean(values))
    assert values.min() <= mean <= values.max()
    np.testing.assert_allclose(interquartile_mean(values[::-1] + shift), mean + shift, atol=1e-9)
    # as its quantile function
    np.testing.assert_allclose(interquartile_mean(np.repeat(values, 4)), mean, atol=1e-9)


def test_mean_and_sample_deviation() -> None:
    assert mean_and_std(np.array([1.0, 2.0, 3.0])) == (2.0, 1.0)
    mean, std = mean_and_std(np.array([4]))
    assert mean == 4.0
    assert np.isnan(std)


def test_the_bootstrap_of_one_stratum_is_scipys() -> None:
    scores = RANDOM.lognormal(size=12)
    ours = stratified_bootstrap([scores], interquartile_mean, repetitions=20_000, seed=1)
    theirs = scipy.stats.bootstrap(
        (scores,),
        partial(scipy.stats.trim_mean, proportiontocut=0.25),
        n_resamples=20_000,
        method="percentile",
        rng=2,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert abs(ours.low - theirs.low) < 0.03 * width
    assert abs(ours.high - theirs.high) < 0.03 * width
    np.testing.assert_allclose(ours.value, scipy.stats.trim_mean(scores, 0.25))


def test_runs_are_resampled_within_their_stratum() -> None:
    """Strata far apart, each without spread: a resample that kept to them never changes."""
    mean = partial(np.mean, axis=-1)
    estimate = stratified_bootstrap([np.zeros(3), np.full(5, 100.0)], mean)
    assert estimate == (62.5, 62.5, 62.5)
    pooled = stratified_bootstrap([np.array([0.0] * 3 + [100.0] * 5)], mean)
    assert pooled.low < 40 < 80 < pooled.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    held = 0
    for seed in range(400):
        estimate = stratified_bootstrap(
            [random.normal(size=16), random.normal(3.0, size=16)], seed=seed
        )
        # By symmetry the IQM of both strata together is 1.5.
        held += estimate.low <= 1.5 <= estimate.high
    assert 0.91 <= held / 400 <= 0.98


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = [RANDOM.normal(size=7), RANDOM.normal(size=4)]
    assert stratified_bootstrap(scores, seed=3) == stratified_bootstrap(scores, seed=3)
    assert stratified_bootstrap(scores, seed=3) != stratified_bootstrap(scores, seed=4)
    other = [RANDOM.normal(size=7), RANDOM.normal(size=3)]
    assert probability_of_improvement(scores, other, seed=3) == probability_of_improvement(
        scores, other, seed=3
    )


def test_probability_of_improvement_by_hand() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    # 1>0; 2=2, 2>0; 3>2, 3>0: (1 + 1.5 + 2) / 6
    assert probability_of_improvement([x], [y]).value == pytest.approx(0.75)
    assert probability_of_improvement([x, x], [y, x]).value == pytest.approx((0.75 + 0.5) / 2)
    assert probability_of_improvement([x + 10], [y]) == (1.0, 1.0, 1.0)
    assert probability_of_improvement([y], [x + 10]) == (0.0, 0.0, 0.0)


def test_probability_of_improvement_is_mann_whitneys() -> None:
    x, y = RANDOM.integers(0, 6, size=9), RANDOM.integers(0, 6, size=7)
    expected = scipy.stats.mannwhitneyu(x, y).statistic / (9 * 7)
    estimate = probability_of_improvement([x], [y])
    assert estimate.value == pytest.approx(expected)
    assert estimate.low < expected < estimate.high

    def improvement(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(np.sign(x[:, None] - y[None, :]) + 1) / 2)

    theirs = scipy.stats.bootstrap(
        (x, y), improvement, n_resamples=5_000, method="percentile", vectorized=False, rng=1
    ).confidence_interval
    assert abs(estimate.low - theirs.low) < 0.04
    assert abs(estimate.high - theirs.high) < 0.04


def test_a_curve_is_its_steps() -> None:
    values = RANDOM.normal(size=(6, 4)).cumsum(axis=1)
    curve = curve_with_interval(values, seed=2)
    for step in range(4):
        alone = stratified_bootstrap([values[:, step]], seed=2)
        np.testing.assert_allclose((curve.value[step], curve.low[step], curve.high[step]), alone)


def test_a_curve_leaves_out_runs_without_a_value() -> None:
    values = np.array([[np.nan, np.nan, 3.0], [np.nan, 2.0, 5.0]])
    curve = curve_with_interval(values)
    np.testing.assert_allclose(curve.value, [np.nan, 2.0, 4.0])
    np.testing.assert_allclose(curve.low, [np.nan, 2.0, 3.0])
    np.testing.assert_allclose(curve.high, [np.nan, 2.0, 5.0])


def test_a_curve_takes_no_time() -> None:
    values = RANDOM.normal(size=(10, 100))
    times = []
    for _ in range(5):
        began = time.thread_time()
        curve_with_interval(values)
        times.append(time.thread_time() - began)
    assert min(times) < 0.2


def test_nothing_to_average_is_said() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        stratified_bootstrap([np.ones(2), np.ones(0)])
    with pytest.raises(ValueError, match="of no scores"):
        interquartile_mean(np.ones(0))
    with pytest.raises(ValueError, match="same strata"):
        probability_of_improvement([np.ones(2)], [])
