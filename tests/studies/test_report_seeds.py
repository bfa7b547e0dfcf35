"""Seeds for reporting stand apart from those for development: in cells, in folders and on pages."""

from pathlib import Path

import pytest
from support.tiny_study import SCALE, STUDY, tiny_cell

from element_rl.commands.study import MODULES, StudyCommand, chosen_scale, load_study
from element_rl.commands.study import main as study_main
from element_rl.studies.engine.grid import REPORT_SEEDS, with_needs
from element_rl.studies.engine.jobs import job_from_json, job_to_json
from element_rl.studies.engine.results import read_results
from element_rl.studies.engine.runner import Processes, conclude, run_cells


@pytest.mark.parametrize("name", MODULES)
def test_every_cell_of_a_study_has_seeds_of_one_kind(name: str) -> None:
    study = load_study(name)
    development, report = (
        with_needs(study.cells(chosen_scale(study, StudyCommand(name, "smoke", report=report))))
        for report in (False, True)
    )
    assert {cell.first_seed for cell in development} == {0}
    assert {cell.first_seed for cell in report} == {REPORT_SEEDS}
    assert [cell.is_for_report for cell in report] == [True] * len(report)
    assert not {cell.name for cell in development} & {cell.name for cell in report}
    # what a development cell is called has not changed
    plain = with_needs(study.cells(study.scales["smoke"]))
    assert [cell.name for cell in plain] == [cell.name for cell in development]
    assert [job_from_json(job_to_json(cell.config)) for cell in report] == [
        cell.config for cell in report
    ]


def test_screens_have_report_seeds_too() -> None:
    study = load_study("offline")
    command = StudyCommand("offline", "smoke", envs=("Rooms-v0",), report=True)
    cells = with_needs(study.cells(chosen_scale(study, command)))
    assert {cell.first_seed for cell in cells} == {REPORT_SEEDS}


def test_development_does_not_reach_the_seeds_for_reporting() -> None:
    with pytest.raises(ValueError, match="seeds from 1,000 on are for reporting: take fewer"):
        chosen_scale(load_study("coverage"), StudyCommand("coverage", "smoke", seeds=1_001))


def test_the_page_says_which_seeds_and_which_commit(tmp_path: Path) -> None:
    kept, other = tiny_cell("random", seed=REPORT_SEEDS), tiny_cell("random")
    assert run_cells([kept, other], tmp_path, Processes(2), lambda progress: None)
    results = conclude(STUDY, "smoke", SCALE, [kept], tmp_path, "element study tiny --report")
    assert [cell.first_seed for cell in results.cells] == [REPORT_SEEDS]
    commit = results.provenance["runs: commit"]
    assert results.notes[-1] == (
        f"Reported: seeds 1000 to 1001, kept for reporting, at commit {commit}."
    )
    page = (tmp_path / "tiny-report" / "report.html").read_text()
    assert "from <b>1000</b> (for reporting)" in page
    assert f"commit <b>{commit}</b>" in page
    assert read_results(tmp_path / "tiny-report").cells == results.cells

    developed = conclude(STUDY, "smoke", SCALE, [other], tmp_path, "element study tiny")
    assert developed.notes[-1].startswith("Development: seeds 0 to 1, by which settings may have")
    assert "(of development)" in (tmp_path / "tiny" / "report.html").read_text()
    with pytest.raises(ValueError, match=r"for development .* and for reporting .* one table"):
        conclude(STUDY, "smoke", SCALE, [kept, other], tmp_path, "element study tiny")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--scale", "smoke", "--methods", "random", "--steps", "400", "--out", str(tmp_path)]
    assert study_main(["coverage", "--report", *options]) == 0
    assert f"Report: {tmp_path / 'coverage-report' / 'report.html'}" in capsys.readouterr().out
    (cell,) = read_results(tmp_path / "coverage-report").cells
    assert (cell.first_seed, cell.seeds) == (REPORT_SEEDS, 2)


def test_the_maze(tmp_path: Path) -> None:
    options = ["--scale", "smoke", "--steps", "20", "--out", str(tmp_path)]
    assert study_main(["maze", "--report", *options]) == 0
    results = read_results(tmp_path / "maze-report")
    assert {cell.first_seed for cell in results.cells} == {REPORT_SEEDS}
    assert "2 seeds (1000 to 1001)" in results.notes[0]
