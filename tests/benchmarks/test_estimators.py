"""The page of estimators says what its data say."""

from benchmarks import estimators as benchmark
from benchmarks.seed_tables import spread_steps
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import resolved


def test_the_tables_of_the_page_are_those_of_the_data() -> None:
    cells = benchmark.read_data(benchmark.DATA)
    page = benchmark.PAGE.read_text()
    for table in (benchmark.cells_table(cells), benchmark.comparisons_table(cells)):
        assert table in page


def test_every_cell_has_ten_report_seeds_to_the_end() -> None:
    cells = benchmark.read_data(benchmark.DATA)
    for robot, method in benchmark.all_cells():
        seeds = cells[robot, method]
        assert sorted(seeds) == list(range(1_000, 1_010))
        assert {rows[-1][0] for rows in seeds.values()} == {benchmark.STEPS[robot]}


def test_the_default_is_what_the_page_says() -> None:
    for robot in benchmark.STEPS:
        config, _, _ = resolved(ExploreConfig(robot, steps=1_000))
        assert benchmark.METHODS["element-knn"] == ("--estimator", config.estimator)


def test_data_keep_steps_that_are_spread_and_the_last_one() -> None:
    steps = list(range(600, 60_001, 600))
    assert sorted(spread_steps(steps, 20)) == list(range(3_000, 60_001, 3_000))
    uneven = [448, 960, 1_408, 2_000]
    assert spread_steps(uneven, 2) == {1_408, 2_000}
    assert spread_steps(uneven, None) == set(uneven)
