"""Mistakes are answered by one sentence and exit code 2, and lose nothing."""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import tyro

from element_rl.cli import COMMANDS, main
from element_rl.commands.explore import ELEMENTS_OWN
from element_rl.commands.next_steps import say_next_steps
from element_rl.commands.summaries import summary_table
from element_rl.rewards import element_config
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import to_json
from element_rl.studies.report.run_results import run_results
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import resolved
from element_rl.training.off_policy.reward_settings import element_options

TINY = [
    *(
        "--replay-size",
        "2500",
        "--sac.hidden-sizes",
        "8",
        "--sac.batch-size",
        "8",
        "--workers",
        "0",
    ),
    *("--chunk-steps", "50", "--random-seeds", "0"),
]
HOPPER = ["explore", "Hopper-v5", "--env-options", "max_episode_steps=100", *TINY]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line a wrong command line gets."""
    try:
        code = main(list(arguments))
    except SystemExit as exit_:
        code = exit_.code
    captured = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in captured.err
    return captured.err.strip()


def test_overview_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(name in overview for name in COMMANDS)
    assert main([]) == 2
    for command in COMMANDS:
        with pytest.raises(SystemExit) as exit_:
            main([command, "--help"])
        assert exit_.value.code == 0
    assert main(["--version"]) == 0


@pytest.mark.parametrize(
    "given",
    [("--beta", "1"), ("--credit=state",), ("--episodic_weight", "0"), ("--no-length-weighted",)],
)
def test_settings_of_element_are_refused_for_other_rewards(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, given: tuple[str, ...]
) -> None:
    sentence = complaint(
        capsys, "explore", "Hopper-v5", "--reward", "rnd", *given, "--out", str(tmp_path / "x")
    )
    option = given[0].partition("=")[0].replace("_", "-")
    assert f"{option} is a setting of ELEMENT and means nothing to the reward 'rnd'" in sentence
    assert not (tmp_path / "x").exists()


def test_settings_of_element_are_all_known() -> None:
    """All that only ELEMENT is given. (U is for others too: when they write checkpoints. So is
    --learn-from, which says whether episodes are seen while they run.)"""
    given = {"beta", *element_options("Hopper-v5", ExploreConfig("Hopper-v5"), 1_000)}
    refused = {
        option.removeprefix("--").removeprefix("no-").replace("-", "_") for option in ELEMENTS_OWN
    }
    assert refused == given - {"lifelong_weight", "update_interval", "update_steps", "running"}


def test_unknown_things(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "There is no command 'explroe'" in complaint(capsys, "explroe")
    sentence = complaint(capsys, "explore", "Antt-v5", "--out", str(tmp_path / "x"))
    assert "There is no environment 'Antt-v5'; did you mean Ant-v5" in sentence
    assert "\n" not in sentence
    assert "CartPole-v1" in complaint(
        capsys, "explore", "CartPole-v1", "--agent", "sac", "--out", str(tmp_path / "x")
    )
    assert "--steps must be at least 1, got 0" in complaint(
        capsys, "explore", "Ant-v5", "--steps", "0"
    )
    assert "beta" in complaint(
        capsys, "explore", "Ant-v5", "--beta", "-1", "--out", str(tmp_path / "x")
    )
    assert "NAME=VALUE" in complaint(
        capsys, "explore", "Ant-v5", "--env-options", "x", "--out", str(tmp_path / "x")
    )
    assert "too small" in complaint(
        capsys, "explore", "Ant-v5", "--replay-size", "10", "--out", str(tmp_path / "x")
    )
    assert "no run folder" in complaint(
        capsys, "explore", "Ant-v5", "--resume", str(tmp_path / "nowhere")
    )
    assert "no run folder" in complaint(capsys, "plot", str(tmp_path / "nowhere"))
    assert "no run folder" in complaint(capsys, "evaluate", str(tmp_path / "nowhere"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "hopper"
    assert main([*HOPPER, "--steps", "1.5e3", "--checkpoint-every", "500", "--out", str(out)]) == 0
    return out


def test_a_whole_run_leaves_figures_and_a_summary(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "metrics.csv", "summary.json"):
        assert (finished / name).is_file()
    assert list(finished.glob("events.*"))
    figures = {path.stem for path in (finished / "figures").glob("*.png")}
    assert {"coverage", "density_map", "trajectories"} <= figures
    assert main(["plot", str(finished), "--out", str(finished / "elsewhere")]) == 0
    assert list((finished / "elsewhere").glob("*.png"))
    assert main(["evaluate", str(finished), "--episodes", "1", "--deterministic"]) == 0
    assert "1,500" in capsys.readouterr().out


def test_an_evaluation_does_not_depend_on_processes(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three checkpoints of two agents: in this process, and two checkpoints at a time in eight."""
    for workers in ("0", "8"):
        out = tmp_path / workers
        assert (
            main(
                [
                    "evaluate",
                    str(finished),
                    "--episodes",
                    "2",
                    "--workers",
                    workers,
                    "--out",
                    str(out),
                ]
            )
            == 0
        )
    steps = len(RunFolder.open(finished).checkpoint_steps())
    agents = len(RunFolder.open(finished).read_summary()["seeds"])
    assert f"{2 * steps * agents} / {2 * steps * agents}" in capsys.readouterr().out
    for name in ("evaluation.json", "trajectories.safetensors"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "8" / name).read_bytes()
    assert "--workers must not be negative, got -1" in complaint(
        capsys, "evaluate", str(finished), "--workers", "-1"
    )


def test_an_existing_run_is_not_overwritten(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "metrics.csv").read_bytes()
    sentence = complaint(capsys, "explore", "Hopper-v5", "--steps", "100", "--out", str(finished))
    assert "--resume" in sentence
    assert (finished / "metrics.csv").read_bytes() == before


def test_resuming_with_another_configuration(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "metrics.csv").read_bytes()
    sentence = complaint(
        capsys, "explore", "Hopper-v5", "--resume", str(finished), "--beta", "0.25"
    )
    assert "beta" in sentence
    assert "0.25" in sentence
    assert "\n" not in sentence
    assert (finished / "metrics.csv").read_bytes() == before


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_that_is_resumed_says_so(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(finished)
    assert main(["explore", "--resume", str(finished)]) == 0
    sentence = f"{finished} is finished at step 1,500; give --steps M, more than that, to go on.\n"
    assert capsys.readouterr().out == sentence
    assert main(["explore", "--resume", str(finished), "--steps", "1000"]) == 0
    assert capsys.readouterr().out == sentence
    assert written(finished) == before


def test_a_run_without_a_summary_that_is_resumed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in the moment before the summary: with fewer steps a sentence says how far it is; with
    its own it is summed up."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "summary.json").unlink()
    assert main(["explore", "--resume", str(copy), "--steps", "1000"]) == 0
    assert capsys.readouterr().out == (
        f"{copy} has already come to step 1,500; give --steps M, more than that, to go on.\n"
    )
    assert main(["explore", "--resume", str(copy), "--no-figures"]) == 0
    assert RunFolder.open(copy).read_summary()["steps"] == 1_500


def test_any_number_of_steps_goes_on(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run in chunks of 50 ends with a whole one, and says so."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    assert main(["explore", "--resume", str(copy), "--steps", "1520", "--no-figures"]) == 0
    printed = capsys.readouterr().out
    assert "The run ends at step 1,550, with a whole chunk: it goes in chunks of 50" in printed
    assert "1,550 / 1,550" in printed
    assert RunFolder.open(copy).read_summary()["steps"] == 1_550
    assert f"element explore --resume {copy} --steps 3100" in printed


def test_the_summary_says_over_what_it_is_taken(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts are whole; the best episode is there; with several seeds it is said whose it is."""
    summary = RunFolder.open(finished).read_summary()
    cells, best, length = (summary[name][0] for name in ("coverage", "best_return", "best_length"))
    summary_table(summary)
    text = capsys.readouterr().out
    assert "means over its last 10 %" in text
    assert f" {cells:,} │" in text
    assert f"{cells:,}.0" not in text
    assert f"{best:,.2f} in {length} steps │" in text
    assert 1 <= length <= 100
    assert best >= max(RunFolder.open(finished).read_metrics()["extrinsic_return"])
    two = {
        "seeds": [0, 1],
        "coverage": [20, 21],
        "best_return": [1.0, 1.0],
        "best_length": [99, 57],
    }
    twice = {
        name: summary[name] * 2
        for name in ("episodic_entropy", "episode_length", "extrinsic_return")
    }
    summary_table(summary | twice | two | {"random_policy": twice | two})
    text = capsys.readouterr().out
    assert "20.5  (20 to 21)" in text
    assert "1.00 in 57 steps, seed 1" in text
    assert "(of the random policy: all)" in text
    assert "steps/s of all 2 seeds together" in text


def test_what_to_try_next_works(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    say_next_steps(RunFolder.open(copy))
    lines = [line.partition("#")[0].strip() for line in capsys.readouterr().out.splitlines()]
    commands = {line.split()[1]: line.split()[1:] for line in lines if line.startswith("element ")}
    assert commands["evaluate"] == ["evaluate", str(copy), "--video"]
    assert commands["explore"] == ["explore", "--resume", str(copy), "--steps", "3000"]
    assert main([*commands["report"], "--out", str(tmp_path / "page.html")]) == 0
    assert (
        main([*commands["collect"], "--out", str(tmp_path), "--no-entropy", "--workers", "0"]) == 0
    )
    assert "1,500 steps" in capsys.readouterr().out
    # 126 states are remembered in 1,500 steps and 266 in 3,000: for so many, another memory
    monkeypatch.setattr(element_config, "LARGEST_EXACT_ON_CPU", 200)
    assert main([*commands["explore"], "--no-figures"]) == 0
    assert RunFolder.open(copy).read_summary()["steps"] == 3_000
    assert f"element explore --resume {copy} --steps 6000" in capsys.readouterr().out


def test_what_to_try_next_fits_the_terminal(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {}
    for width in (60, 500):
        monkeypatch.setenv("COLUMNS", str(width))
        say_next_steps(RunFolder.open(finished))
        lines[width] = capsys.readouterr().out.splitlines()[1:]
    longest = max(map(len, lines[500]))
    assert all(line.startswith("  element ") and "  # " in line for line in lines[500])
    assert [line.startswith("  element ") for line in lines[60]] == [True, False] * len(lines[500])
    monkeypatch.setenv("COLUMNS", str(longest))
    say_next_steps(RunFolder.open(finished))
    assert capsys.readouterr().out.splitlines()[1:] == lines[500]
    monkeypatch.setenv("COLUMNS", str(longest - 1))
    say_next_steps(RunFolder.open(finished))
    assert capsys.readouterr().out.splitlines()[1:] == lines[60]


def test_what_to_try_next_can_be_pasted(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make explore` calls the command by its path, and it is not on the PATH."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/element", "explore"])
    for path, called in (("", "  .venv/bin/element "), (str(finished.parent), "  element ")):
        monkeypatch.setenv("PATH", path)
        command = finished.parent / "element"
        command.write_text("")
        command.chmod(0o755)
        say_next_steps(RunFolder.open(finished))
        commands = capsys.readouterr().out.splitlines()[1:]
        assert commands[0].startswith(called)
    command.unlink()


def test_the_page_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(finished)]) == 0
    assert f"Report: {finished / 'report.html'}" in capsys.readouterr().out
    text = (finished / "report.html").read_text()
    for heading in (
        "Findings",
        "Tables",
        "Curves",
        "Maps",
        "Trajectories",
        "Configuration",
        "Make it again",
    ):
        assert f">{heading}</h2>" in text
    summary = RunFolder.open(finished).read_summary()
    assert f"Visited {summary['coverage'][0]:,} cells of the map." in text
    assert summary["commit"] in text
    assert "What the policy of each checkpoint does" in text


def test_the_command_on_the_page_of_a_run_makes_it_again(finished: Path) -> None:
    results = run_results(RunFolder.open(finished))
    settings = RunFolder.open(finished).config["settings"]
    parsed = tyro.cli(ExploreConfig, args=shlex.split(results.command)[2:])
    assert to_json(dataclasses.asdict(resolved(parsed)[0])) == settings


def test_a_page_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{tmp_path} holds neither a run" in complaint(capsys, "report", str(tmp_path))
    assert "There is no folder" in complaint(capsys, "report", str(tmp_path / "nowhere"))
    RunFolder.create(tmp_path / "other", {"settings": {"epochs": 3}})
    assert "is no run of explore, on-policy or mario" in complaint(
        capsys, "report", str(tmp_path / "other")
    )


def test_a_damaged_checkpoint_is_named(
    finished: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    victim = copy / "checkpoints" / "step_000001500" / "resume" / "arrays.safetensors"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    sentence = complaint(capsys, "explore", "Hopper-v5", "--resume", str(copy), "--steps", "2000")
    assert "arrays.safetensors" in sentence


class Poisoned(gymnasium.Env):
    """Observes NaN at its seventh step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        observation = np.full(3, np.nan if self.time == 7 else 0.0, np.float32)
        return observation, 0.0, False, False, {}


def test_nan_observations_name_agent_step_and_field(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gymnasium.register("Poisoned-v0", entry_point=Poisoned, max_episode_steps=20)
    sentence = complaint(
        capsys, "explore", "Poisoned-v0", "--steps", "100", "--out", str(tmp_path / "run"), *TINY
    )
    for part in ("Agent 0", "observation", "nan", "step 7", "episode 0"):
        assert part in sentence


def test_a_word_that_is_no_option_of_the_reward(tmp_path: Path) -> None:
    """In a process of its own: here types are checked, there only what the library checks
    itself."""
    arguments = [
        "on-policy",
        "Rooms-v0",
        "--reward-options",
        "credit=both",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "element_rl.cli", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "credit must be episode or state or variation, got 'both'." in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_full_disk_during_a_checkpoint(tmp_path: Path) -> None:
    """Files may not grow beyond 200 kB: the checkpoint fails in one sentence, what was logged stays
    readable."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "from element_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    out = tmp_path / "run"
    arguments = [*HOPPER, "--steps", "2000", "--checkpoint-every", "1000", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "could not be written" in done.stderr
    run = RunFolder.open(out)
    assert run.latest_checkpoint() is None
    assert len(run.read_metrics()["step"]) > 0
