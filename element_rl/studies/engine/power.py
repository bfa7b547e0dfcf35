"""What a comparison can show: the smallest difference that it finds in four of five cases.

Two methods with R runs each, whose scores are normal with the same deviation s and whose means
differ by d s, are compared by the exact permutation test of `statistics`. The power at d is the
probability that p ≤ α, and the detectable difference the d at which that is 0.8. It is simulated:
the same 4,000 pairs of standard normal runs are shifted apart by bisection, so that the power never
falls as d grows. With m comparisons Holm's correction demands α = 0.05 / m of the smallest p-value;
that is the α of the corrected difference.

    R   one comparison   one of 6   one of 12
    5   2.33             3.09       none: p is 0.008 at best, and 0.05 / 12 is less
    10  1.38             1.80       1.93

Where scores are normal the t-test would find a little less: 1.32 with ten runs a side.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from jaxtyping import Float

from element_rl.studies.engine.statistics import null_distribution
from element_rl.studies.engine.table_text import cell_text

POWER = 0.8
CHANCE = 0.05  # p-values above it show no difference
PAIRS = 4_000  # simulated
LARGEST = 20.0  # deviations; farther apart all runs are separated
SEED = 0


@cache
def detectable_difference(runs: int, compared: int = 1) -> float | None:
    """In standard deviations, for so many runs of either side, as one of so many comparisons; None
    where no difference could be found, however large."""
    if runs < 1 or 2 / math.comb(2 * runs, runs) > CHANCE / compared:
        return None
    least = _least_improvement(runs, CHANCE / compared)
    noise = np.random.default_rng(SEED).standard_normal((2, PAIRS, runs))
    apart = noise[0][:, :, None] - noise[1][:, None, :]  # X less Y, before the shift

    def power(shift: float) -> float:
        improvement = np.mean(apart + shift > 0, axis=(1, 2))
        return float(np.mean((improvement >= least) | (improvement <= 1 - least)))

    low, high = 0.0, LARGEST
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def power_sentence(runs: int, deviations: Mapping[str, float], compared: int) -> str:
    """What a table of so many comparisons can find with so many runs a side; `deviations`: those of
    the runs of each environment."""
    alone, corrected = (detectable_difference(runs, many) for many in (1, max(compared, 1)))
    seeds = f"Power: with {runs} run{'' if runs == 1 else 's'} a side"
    if alone is None:
        return f"{seeds} no difference can be found, however large."
    known = {env: value for env, value in deviations.items() if math.isfinite(value)}
    least = alone if corrected is None else corrected
    each = ", ".join(f"{_rounded(least * value)} on {env}" for env, value in known.items())
    sizes = f" ({each})" if each else ""
    if compared > 1 and corrected is not None:
        sizes = f", {corrected:.1f} after the correction{sizes}"
    beyond = "; after the correction none is, however large" if corrected is None else ""
    return (
        f"{seeds} a difference of {alone:.1f} standard deviations of the runs is found in four of "
        f"five cases{sizes}, if scores are normal{beyond}."
    )


def pooled_deviation(methods: Sequence[Float[np.ndarray, " _"]]) -> float:
    """The deviation of runs around their method's mean, all methods together; NaN where no method
    has two runs."""
    several = [runs for runs in methods if len(runs) > 1]
    freedom = sum(len(runs) - 1 for runs in several)
    squares = sum(float(np.sum((runs - np.mean(runs)) ** 2)) for runs in several)
    return math.sqrt(squares / freedom) if freedom else math.nan


def _rounded(value: float) -> str:
    """Two digits: it is an estimate."""
    rounded = float(f"{value:.2g}")
    return cell_text(int(rounded) if rounded >= 100 else rounded)


def _least_improvement(runs: int, chance: float) -> float:
    """The smallest P(better) above one half whose two-sided p-value is at most `chance`, without
    ties."""
    values, shares = null_distribution(np.arange(runs), np.arange(runs, 2 * runs))
    above = values > 0.5
    tails = 2 * np.cumsum(shares[above][::-1])[::-1]
    return float(values[above][tails <= chance + 1e-12][0]) - 1e-9
