"""The page of worlds says what its data say."""

import csv
from pathlib import Path

import pytest

from benchmarks import worlds_coverage as benchmark
from benchmarks.seed_tables import at_the_end
from element_rl.runs.folder import RunFolder


def test_the_tables_of_the_page_are_those_of_the_data() -> None:
    cells = benchmark.read_data(benchmark.DATA)
    page = benchmark.PAGE.read_text()
    for table in (benchmark.cells_table(cells), benchmark.comparisons_table(cells)):
        assert table in page


def test_every_cell_has_ten_report_seeds_to_the_end() -> None:
    cells = benchmark.read_data(benchmark.DATA)
    for cell in benchmark.all_cells():
        assert sorted(cells[cell]) == list(range(1_000, 1_010))
        assert {rows[-1][0] for rows in cells[cell].values()} == {benchmark.STEPS}


def test_words_of_the_page_about_the_data() -> None:
    """Numbers that stand in sentences, here and in the README."""
    cells = benchmark.read_data(benchmark.DATA)

    def mean(robot: str, method: str) -> float:
        ends = at_the_end(cells, robot, method)
        return sum(ends) / len(ends)

    humanoid = [mean("Humanoid-v5", name) for name in ("element", "rnd", "random")]
    assert [round(value) for value in humanoid] == [56, 48, 35]
    ant = [mean("Ant-v5", name) for name in ("rnd", "element")]
    assert [round(value) for value in ant] == [975, 377]
    assert ant[0] / ant[1] == pytest.approx(2.5, abs=0.15)


def test_commands_give_the_runs_of_the_data_although_a_default_changed() -> None:
    for robot, method in benchmark.all_cells():
        is_pinned = "--estimator" in benchmark.flags_of(robot, method)
        by_kernel = robot in ("Ant-v5", "HalfCheetah-v5") and method.startswith("element")
        assert is_pinned == by_kernel


def test_data_are_written_from_the_logs_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "ROBOTS", ("Hopper-v5",))
    monkeypatch.setattr(benchmark, "METHODS", {"element": (), "rnd": ()})
    monkeypatch.setattr(benchmark, "LABELS", {"element": "ELEMENT", "rnd": "RND"})
    for method, factor in (("element", 2), ("rnd", 1)):
        run = RunFolder.create(tmp_path / "Hopper-v5" / method, {"kind": "explore"})
        with (run.path / "metrics.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", "seed", "coverage", "episodic_entropy"])
            for step in (10, 20):
                writer.writerows([step, seed, factor * step * seed, 1.5] for seed in (1, 2))
    benchmark.write_data(tmp_path, tmp_path / "data.csv", benchmark.all_cells())
    cells = benchmark.read_data(tmp_path / "data.csv")
    assert cells["Hopper-v5", "element"] == {1: [(10, 20), (20, 40)], 2: [(10, 40), (20, 80)]}
    assert at_the_end(cells, "Hopper-v5", "rnd") == [20, 40]
    table = benchmark.cells_table(cells)
    assert "| Hopper-v5 | **60** ± 28 | 30 ± 14 |" in table
