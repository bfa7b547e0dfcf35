"""Statistics against numbers worked out by hand, SciPy, and what intervals promise."""

import time
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from element_rl.studies.engine.statistics import (
    curve_with_interval,
    holm,
    interquartile_mean,
    mean_and_std,
    permutation_p_value,
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


def test_probability_of_improvement_by_hand() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    # 1>0; 2=2, 2>0; 3>2, 3>0: (1 + 1.5 + 2) / 6
    assert probability_of_improvement([x], [y]).value == pytest.approx(0.75)
    assert probability_of_improvement([x, x], [y, x]).value == pytest.approx((0.75 + 0.5) / 2)
    assert probability_of_improvement([x + 10], [y]).value == 1.0


def newcombe_by_hand(value: float, theta: float, runs_x: int, runs_y: int) -> float:
    """(θ̂ − θ)² − z² V(θ), which is 0 at the limits."""
    spare = (runs_x + runs_y) / 2 - 1
    shape = 1 + spare * (1 - theta) / (2 - theta) + spare * theta / (1 + theta)
    return (value - theta) ** 2 - 1.959964**2 * theta * (1 - theta) * shape / (runs_x * runs_y)


def test_the_interval_of_improvement_by_hand() -> None:
    """At θ̂ = 1 with five runs a side, 1 − θ = z² θ (1 + 4 (1 − θ)/(2 − θ) + 4 θ/(1 + θ)) / 25. For
    θ = 0.6427 the bracket is 1 + 1.05297 + 1.56503 = 3.618, and both sides are 0.3573."""
    separated = probability_of_improvement([np.arange(5) + 9.0], [np.arange(5.0)])
    assert separated == pytest.approx((1.0, 0.6427, 1.0), abs=1e-4)
    turned = probability_of_improvement([np.arange(5.0)], [np.arange(5) + 9.0])
    assert turned == pytest.approx((0.0, 0.0, 1 - 0.6427), abs=1e-4)
    x, y = np.array([3.0, 5.0, 7.0, 8.0]), np.array([1.0, 2.0, 4.0, 6.0, 7.0, 9.0])
    estimate = probability_of_improvement([x], [y])
    assert estimate.value == pytest.approx((2 + 3 + 4.5 + 5) / 24)
    for limit in estimate[1:]:
        assert newcombe_by_hand(estimate.value, limit, 4, 6) == pytest.approx(0.0, abs=1e-6)


def test_the_interval_of_improvement_is_that_of_others() -> None:
    """Numbers of the R package SingleCaseES, which has Newcombe's interval for its NAP."""
    x, y = np.array([28, 25, 24, 27, 30, 30, 29]), np.array([20, 20, 26, 25, 22, 23])
    expected = (0.9166666666666666, 0.5973193600384168, 0.9859976893703788)
    assert probability_of_improvement([x], [y]) == pytest.approx(expected, abs=1e-9)


def test_the_interval_over_strata_adds_squares() -> None:
    """MOVER: three strata alike are as far from their mean as one over √3."""
    x, y = np.arange(5) + 9.0, np.arange(5.0)
    one, three = (probability_of_improvement([x] * n, [y] * n) for n in (1, 3))
    assert 1 - three.low == pytest.approx((1 - one.low) / 3**0.5)
    assert three.value == three.high == 1.0


@pytest.mark.parametrize(("truth", "runs"), [(0.86, 5), (0.96, 5), (0.5, 5), (0.96, 10)])
def test_the_interval_of_improvement_holds_the_truth(truth: float, runs: int) -> None:
    """Of normal scores that beat the others with this probability. The bootstrap missed 0.86 in
    22 % and 0.96 in 58 % of the cases with five runs a side."""
    random = np.random.default_rng(7)
    shift = scipy.stats.norm.ppf(truth) * 2**0.5
    missed = 0
    for _ in range(500):
        x, y = random.normal(shift, size=runs), random.normal(size=runs)
        estimate = probability_of_improvement([x], [y])
        missed += not estimate.low <= truth <= estimate.high
    assert missed / 500 <= 0.08


def test_probability_of_improvement_is_mann_whitneys() -> None:
    x, y = RANDOM.integers(0, 6, size=9), RANDOM.integers(0, 6, size=7)
    expected = scipy.stats.mannwhitneyu(x, y).statistic / (9 * 7)
    estimate = probability_of_improvement([x], [y])
    assert estimate.value == pytest.approx(expected)
    assert estimate.low < expected < estimate.high


def test_p_values_by_hand() -> None:
    """Of the ten ways to deal out 1 to 5 as three and two, two are as far apart as 1 2 3 | 4 5."""
    assert permutation_p_value([np.array([1, 2, 3])], [np.array([4, 5])]) == pytest.approx(0.2)
    five, others = np.arange(5) + 9.0, np.arange(5.0)
    assert permutation_p_value([five], [others]) == pytest.approx(2 / 252)
    # in both strata the same side wins: 2 of 252 × 252
    assert permutation_p_value([five] * 2, [others] * 2) == pytest.approx(2 / 252**2)
    # in one it wins and in the other it loses: nothing is nearer to ½
    assert permutation_p_value([five, others], [others, five]) == pytest.approx(1.0)
    assert permutation_p_value([np.ones(3)], [np.ones(4)]) == pytest.approx(1.0)


def test_p_values_are_scipys() -> None:
    x, y = RANDOM.normal(0.5, size=6), RANDOM.normal(size=5)
    expected = scipy.stats.mannwhitneyu(x, y, method="exact").pvalue
    assert permutation_p_value([x], [y]) == pytest.approx(expected)
    tied = (RANDOM.integers(0, 4, size=5), RANDOM.integers(1, 5, size=4))

    def distance(x: np.ndarray, y: np.ndarray) -> float:
        return abs(float(np.mean(np.sign(x[:, None] - y[None, :]))))

    test = scipy.stats.permutation_test(
        tied, distance, n_resamples=np.inf, alternative="greater", vectorized=False
    )
    assert permutation_p_value([tied[0]], [tied[1]]) == pytest.approx(test.pvalue)


def test_holm_by_hand() -> None:
    """0.005 · 4, 0.01 · 3, 0.03 · 2; 0.04 · 1 is less than the one before it, which counts."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


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
    with pytest.raises(ValueError, match="at least one run of either side"):
        permutation_p_value([np.ones(2)], [np.ones(0)])
