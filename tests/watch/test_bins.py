"""Curves have so many points and no more; what a point says is what fell into it."""

import numpy as np

from element_rl.watch.bins import MOST_BINS, MOST_LINES, Bins


def rows(steps: list[int], seeds: list[int], **columns: list[float]) -> dict[str, np.ndarray]:
    made = {"step": steps, "seed": seeds, **columns}
    return {name: np.array(values, np.float64) for name, values in made.items()}


def test_few_lines_stay_as_they_are() -> None:
    bins = Bins()
    nan = np.nan
    assert bins.add(rows([10, 10], [0, 1], coverage=[3, 5], loss=[nan, 1]))  # new seeds
    assert not bins.add(rows([20, 20], [0, 1], coverage=[4, 9], loss=[2, 4]))
    assert bins.steps.tolist() == [10, 20]
    assert bins.seeds.tolist() == [0, 1]
    assert bins.curves() == {
        "coverage": {"mean": [4, 6.5], "low": [3, 4], "high": [5, 9], "seeds": [[3, 4], [5, 9]]},
        "loss": {"mean": [1, 3], "low": [1, 2], "high": [1, 4], "seeds": [[None, 2], [1, 4]]},
    }
    assert bins.curves(1)["loss"] == {"mean": [3], "low": [2], "high": [4], "seeds": [[2], [4]]}


def test_one_seed_has_a_line_and_columns_without_values_have_none() -> None:
    bins = Bins()
    bins.add(rows([1, 2], [7, 7], a=[1.23456789, np.inf], b=[np.nan, np.nan]))
    assert bins.curves() == {"a": {"mean": [1.23457, None]}}


def test_many_lines_are_merged_as_numpy_would() -> None:
    seeds = 3
    steps = np.arange(7, 70_000, 7)
    random = np.random.default_rng(0)
    coverage = np.sort(random.integers(0, 5000, (seeds, len(steps))), axis=1)
    loss = random.normal(size=(seeds, len(steps)))
    loss[random.random(loss.shape) < 0.2] = np.nan
    bins = Bins()
    for part in np.array_split(np.arange(len(steps)), 37):  # as looks would bring them
        order = np.repeat(part, seeds), np.tile(np.arange(seeds), len(part))
        bins.add(
            {
                "step": steps[order[0]].astype(float),
                "seed": order[1].astype(float),
                "coverage": coverage[order[1], order[0]].astype(float),
                "loss": loss[order[1], order[0]],
            }
        )
    assert MOST_BINS // 2 <= len(bins) <= MOST_BINS
    numbers = steps // bins.width
    for place, number in enumerate(np.unique(numbers)):
        inside = numbers == number
        assert bins.steps[place] == steps[inside].max()
        np.testing.assert_allclose(
            bins.values("loss")[:, place], np.nanmean(loss[:, inside], axis=1), rtol=1e-9
        )
        np.testing.assert_array_equal(bins.values("coverage")[:, place], coverage[:, inside][:, -1])


def test_the_end_says_whether_the_beginning_has_changed() -> None:
    bins = Bins()
    bins.add(rows([1], [0], a=[1]))
    assert not bins.add(rows([2], [0], a=[1]))
    assert not bins.add(rows([2], [0], a=[3]))  # into the last point, which is fetched again
    assert bins.curves()["a"]["mean"] == [1, 2]
    assert bins.add(rows([1], [0], a=[2]))  # into one before it
    assert bins.add(rows([3], [1], a=[2]))  # another seed
    many = list(range(4, 4 + MOST_BINS))
    assert bins.add(rows(many, [0] * len(many), a=many))  # merged


def test_memory_is_flat() -> None:
    bins = Bins()
    for first in range(0, 400_000, 8_000):
        steps = np.arange(first, first + 8_000, 2.0)
        bins.add({"step": steps, "seed": np.zeros_like(steps), "a": steps})
        assert len(bins) <= MOST_BINS
        assert bins.values("a").shape == (1, len(bins))


def test_many_seeds_are_a_band() -> None:
    bins, seeds = Bins(), MOST_LINES + 1
    bins.add(rows([5] * seeds, list(range(seeds)), a=list(range(seeds))))
    assert bins.curves()["a"] == {"mean": [6], "low": [0], "high": [12]}
