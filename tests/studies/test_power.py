"""What comparisons can show: by hand, against the t-test, and as the pages say it."""

import math

import numpy as np
import pytest
from scipy import stats

from element_rl.studies.engine import power
from element_rl.studies.engine.power import (
    detectable_difference,
    pooled_deviation,
    power_sentence,
)
from element_rl.studies.engine.statistics import permutation_p_value
from element_rl.studies.engine.tables import improvement_table


@pytest.mark.parametrize(
    ("runs", "chance", "least"),
    [
        (4, 0.05, 1.0),  # U = 16: 2/70; U = 15 has 4/70 = 0.057
        (5, 0.05, 23 / 25),  # U = 23: 8/252 = 0.032; U = 22 has 14/252 = 0.056
        (5, 0.01, 1.0),
    ],
)
def test_the_least_improvement_that_is_found_by_hand(
    runs: int, chance: float, least: float
) -> None:
    assert power._least_improvement(runs, chance) == pytest.approx(least, abs=1e-6)


def test_a_little_more_than_the_t_test_needs() -> None:
    """Mann–Whitney's efficiency for normal scores is 3/π; few runs have few p-values."""
    for runs, most in ((10, 1.06), (20, 1.06)):
        t_test = _of_the_t_test(runs)
        found = detectable_difference(runs)
        assert found is not None
        assert t_test < found < most * t_test


def _of_the_t_test(runs: int) -> float:
    critical = stats.t.ppf(0.975, 2 * runs - 2)
    shifts = np.linspace(0.5, 3, 2_501)
    found = stats.nct.sf(critical, 2 * runs - 2, shifts * math.sqrt(runs / 2))
    return float(shifts[np.argmax(found >= 0.8)])


def test_differences_are_found_as_often_as_said() -> None:
    """Fresh pairs of runs, by the test itself, as the first of six comparisons."""
    shift = detectable_difference(10, 6)
    assert shift is not None
    rng = np.random.default_rng(7)
    p_values = [
        permutation_p_value([rng.normal(shift, 1, 10)], [rng.normal(0, 1, 10)]) for _ in range(300)
    ]
    assert np.mean(np.array(p_values) <= 0.05 / 6) == pytest.approx(0.8, abs=0.06)


def test_more_runs_find_less_and_more_comparisons_find_more() -> None:
    found = [detectable_difference(runs) for runs in (4, 5, 10, 20)]
    assert found == sorted(found, reverse=True)
    assert detectable_difference(10, 12) > detectable_difference(10, 6) > detectable_difference(10)
    assert detectable_difference(3) is None  # 2/20 at best
    assert detectable_difference(5, 7) is None  # 7 · 2/252 is above 0.05
    assert detectable_difference(0) is None


def test_the_numbers_of_the_module() -> None:
    for runs, numbers in ((5, (2.33, 3.09, None)), (10, (1.38, 1.80, 1.93))):
        found = [detectable_difference(runs, compared) for compared in (1, 6, 12)]
        assert [None if value is None else round(value, 2) for value in found] == list(numbers)


def test_the_deviation_of_the_runs_by_hand() -> None:
    """(2 + 8) / (1 + 2), and a single run says nothing."""
    methods = [np.array([1.0, 3.0]), np.array([0.0, 2.0, 4.0]), np.array([100.0])]
    assert pooled_deviation(methods) == pytest.approx(math.sqrt(10 / 3))
    assert math.isnan(pooled_deviation([np.array([1.0])]))


def test_sentences() -> None:
    assert power_sentence(10, {"Ant-v5": 400.0, "Hopper-v5": math.nan}, 12) == (
        "Power: with 10 runs a side a difference of 1.4 standard deviations of the runs is found "
        "in four of five cases, 1.9 after the correction (770 on Ant-v5), if scores are normal."
    )
    assert power_sentence(5, {"Ant-v5": 400.0}, 12) == (
        "Power: with 5 runs a side a difference of 2.3 standard deviations of the runs is found in "
        "four of five cases (930 on Ant-v5), if scores are normal; after the correction none is, "
        "however large."
    )
    assert power_sentence(1, {}, 2) == (
        "Power: with 1 run a side no difference can be found, however large."
    )
    scores = {"Ant-v5": {"element": np.arange(5.0), "rnd": np.arange(5.0)}}
    assert "Power: with 5 runs a side" in improvement_table("p", "P", scores).note
