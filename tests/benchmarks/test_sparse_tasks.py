"""The page of sparse tasks says what its data say; robots of the example are paid what they say."""

import gymnasium
import numpy as np
import pytest

from benchmarks import sparse_tasks as benchmark
from benchmarks.seed_tables import read_data


def test_the_tables_of_the_page_are_those_of_the_data() -> None:
    scores = benchmark.score_cells(read_data(benchmark.DATA, "extrinsic_return"))
    page = benchmark.PAGE.read_text()
    for table in (benchmark.render(scores), benchmark.comparisons(scores)):
        assert table in page


def test_every_way_has_five_report_seeds_to_the_end() -> None:
    cells = read_data(benchmark.DATA, "extrinsic_return")
    for name, method in benchmark.all_cells():
        steps = next(
            task.steps for env, task in benchmark.TASKS.items() if benchmark.folder_of(env) == name
        )
        seeds = cells[name, method]
        assert sorted(seeds) == list(range(1_000, 1_005))
        steps = steps // 2 if method in ("explorer", "then") else steps
        for rows in seeds.values():
            # lines in which no episode has ended are left out
            assert 0.9 * steps <= rows[-1][0] < steps + 1_000


def test_scores_by_hand() -> None:
    """Of 50,000 steps those after 40,000 count; what comes after an explorer begins at half."""
    name = "MountainCarContinuous-v0"
    rows = {1_000: [(39_000, 5.0), (41_000, 10.0), (50_000, 20.0)]}
    empty = {
        (benchmark.folder_of(task), method): {1_000: [(80_000, 0.0), (50_000, 0.0), (40_000, 0.0)]}
        for task in benchmark.TASKS
        for method in benchmark.METHODS
    }
    cells = empty | {
        (name, "alone"): rows,
        (name, "explorer"): {1_000: [(25_000, -1.0)]},
        (name, "then"): {1_000: [(10_000, 7.0), (20_000, 9.0), (25_000, 11.0)]},
    }
    scores = benchmark.score_cells(cells)
    assert scores[name, "alone"] == [15.0]
    assert scores[name, "then"] == [10.0]  # the last two, at 45,000 and 50,000


# another test runs the example, which registers them, too
@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize(("name", "metres"), [("SparseCheetah-v0", 15.0), ("SparseAnt-v0", 10.0)])
def test_a_robot_is_paid_beyond_the_line_and_nowhere_else(
    name: str, metres: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(benchmark.EXAMPLES)
    with gymnasium.make(f"sparse_tasks:{name}") as env:
        env.reset(seed=0)
        action = np.zeros(env.action_space.shape, np.float32)
        *_, info = env.step(action)
        for place, paid in ((0.0, 0.0), (metres + 1.0, 1.0), (-metres - 1.0, 1.0)):
            data = env.unwrapped.data
            data.qpos[0] = place
            _, reward, terminated, _, info = env.step(action)
            assert abs(info["x_position"] - place) < 0.5
            assert (reward, terminated) == (paid, False)
