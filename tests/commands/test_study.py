"""`element study`: slices, shared cells, failures and mistakes. Real runs of random policies, which
take a second each."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from element_rl.cli import main
from element_rl.studies.engine.results import read_results

TWO = [
    "--scale",
    "smoke",
    "--envs",
    "PointMaze",
    "Hopper-v5",
    "--methods",
    "random",
    "--steps",
    "400",
]


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A study whose two cells two processes have run at the same time, and what they said."""
    out = tmp_path_factory.mktemp("sliced") / "out"
    command = [sys.executable, "-m", "element_rl.cli", "study", "coverage", *TWO, "--out", str(out)]
    programs = [
        subprocess.Popen([*command, "--slice", part], stdout=subprocess.PIPE, text=True)
        for part in ("1/2", "2/2")
    ]
    said = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0]
    return out, said


def written(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_slices_run_a_part_each_and_then_the_report_is_made(
    sliced: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, said = sliced
    for part, text in zip(("1/2", "2/2"), said, strict=True):
        assert f"1 of 1 cells of slice {part} are done" in text
    assert {path.name.rpartition("-")[0] for path in (out / "cells").iterdir()} == {
        "PointMaze-v0-random",
        "Hopper-v5-random",
    }
    assert not (out / "coverage").exists()
    before = written(out / "cells")
    assert main(["study", "coverage", *TWO, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "2 of 2 cells done" in printed
    assert "| PointMaze-v0 | random | 2 |" in printed
    assert f"Report: {out / 'coverage' / 'report.html'}" in printed
    assert written(out / "cells") == before
    results = read_results(out / "coverage")
    assert [cell.state for cell in results.cells] == ["done", "done"]
    assert results.command == f"element study coverage {' '.join(TWO)} --out {out}"


def test_another_study_shares_the_cells(sliced: tuple[Path, list[str]]) -> None:
    out, _ = sliced
    before = written(out / "cells")
    assert main(["study", "episodic-entropy", *TWO, "--out", str(out)]) == 0
    assert written(out / "cells") == before
    assert (out / "episodic-entropy" / "tables" / "entropy.csv").read_text().count("random") == 2


CRASHING = """
import multiprocessing
import os
from pathlib import Path
import gymnasium
from element_rl.envs.point_maze import PointMaze

class Crash(PointMaze):
    def step(self, action):
        acts = multiprocessing.parent_process() is not None  # it is also looked at beforehand
        if acts and not Path(__file__).with_name("mended").exists():
            os._exit(3)
        return super().step(action)

gymnasium.register("Crash-v0", entry_point=Crash)
"""


def test_a_crash_is_reported_and_when_it_is_mended_the_study_completes(
    sliced: tuple[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = sliced
    (tmp_path / "crashing_env.py").write_text(CRASHING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ["--scale", "smoke", "--methods", "random", "--steps", "400", "--out", str(out)]
    both = ["study", "episodic-entropy", "--envs", "crashing_env:Crash", "PointMaze-v0", *options]
    assert main(both) == 1
    printed = capsys.readouterr()
    assert "1 of 2 cells done, 1 failed" in printed.out
    assert "| PointMaze-v0 | random | 2 |" in printed.out
    (sentence,) = printed.err.strip().splitlines()
    assert sentence.startswith("Failed: crashing_env_Crash-v0-random-")
    assert re.search(r"The worker process of agent [01] died .*exit code 3", sentence)
    first, second = read_results(out / "episodic-entropy").cells
    assert (first.state, second.state) == ("failed", "done")
    assert first.reason in sentence

    alone = ["study", "episodic-entropy", "--envs", "crashing_env:Crash-v0", *options]
    assert main(alone) == 1  # nothing is done, so there is nothing to show, and nothing more to say
    assert re.fullmatch(
        r"Failed: crashing_env_Crash-v0-random-.*exit code 3.*\n", capsys.readouterr().err
    )

    (tmp_path / "mended").touch()
    assert main(both) == 0
    assert [cell.state for cell in read_results(out / "episodic-entropy").cells] == ["done", "done"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["coverge"], "There is no study 'coverge'; choose one of coverage, "),
        (
            ["coverage", "--slice", "3/2"],
            "--slice takes I/N with 1 ≤ I ≤ N, such as 2/4; got '3/2'.",
        ),
        (["coverage", "--slice", "0/2"], "got '0/2'"),
        (["coverage", "--slice", "half"], "got 'half'"),
        (
            ["coverage", "--methods", "rndd"],
            "it has element, element (paper), rnd, ngu, re3, rise, random.",
        ),
        (
            ["coverage", "--envs", "Antt-v5"],
            "There is no environment 'Antt-v5'; did you mean Ant-v5",
        ),
        (["coverage", "--envs", "CartPole-v1"], "CartPole-v1"),
        (
            ["trajectories", "--envs", "Pendulum"],
            "asks where agents have been, and Pendulum-v1 has no coverage map",
        ),
        (["coverage", "--steps", "0"], "--steps must be at least 1, got 0."),
        (["coverage", "--seeds", "0"], "--seeds must be at least 1, got 0."),
        (["coverage", "--together", "0"], "--together must be at least 1, got 0."),
        (["transfer", "--task-steps", "0"], "--task-steps must be at least 1, got 0."),
        (["offline", "--anchor", "1"], "--anchor is of the study transfer, not of offline."),
        (
            ["transfer", "--conservative-weight", "1"],
            "--conservative-weight is of the study offline, not of transfer.",
        ),
        (
            ["transfer", "--anchor-halflife", "9"],
            "--anchor-halflife says how an anchor fades: give --anchor too.",
        ),
        (
            ["transfer", "--anchor", "-1"],
            "--anchor must not be negative and --anchor-halflife must be above 0, got -1.0",
        ),
        (
            ["transfer", "--anchor", "1", "--envs", "Rooms-v0"],
            "--anchor is of SAC, and on screens it is A3C that learns",
        ),
        (
            ["offline", "--conservative-weight", "-1"],
            "--conservative-weight must not be negative, got -1.0.",
        ),
        (
            ["offline", "--methods", "bc"],
            "has no method 'bc'; it has sac, element, rnd, ngu, re3, rise, random.",
        ),
    ],
)
def test_mistakes(
    arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *arguments, "--scale", "smoke", "--out", str(tmp_path / "out")]) == 2
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert part in sentence
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["study", "coverage", *TWO, "--out", str(tmp_path / "file")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "There is no folder" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "holds neither a run (config.json) nor the results of a study" in capsys.readouterr().err
