"""`element on-policy` from the command line: figures, a film, a stop by signal, going on."""

import math
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import get_ffmpeg_exe

from element_rl.commands.mario import main as main_mario
from element_rl.commands.on_policy import main
from element_rl.envs.make import make_env
from element_rl.runs.folder import RunError, RunFolder
from element_rl.studies.report import write_run_report
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.video import best_episode, write_video

SMALL = [
    "--workers",
    "0",
    "--a3c.channels",
    "2",
    "2",
    "--a3c.hidden-size",
    "8",
    "--a3c.local-steps",
    "32",
]
ROOMS = [
    "Rooms-v0",
    "--reward",
    "extrinsic",
    "--state-dim",
    "4",
    "--env-options",
    "max_episode_steps=50",
    *SMALL,
]


def test_stopped_by_a_signal_and_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"

    def ask_to_stop() -> None:
        while not (out / "metrics.csv").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask_to_stop)
    asking.start()
    code = main(
        [*ROOMS, "--steps", "100000", "--log-every", "50", "--out", str(out), "--random-seeds", "0"]
    )
    asking.join()
    printed = capsys.readouterr()
    assert code == 130
    assert f"Continue with: element on-policy --resume {out}" in printed.out
    reached = RunFolder.open(out).load_metadata()["step"]
    assert main(["--resume", str(out), "--steps", str(reached + 100), "--video"]) == 0
    printed = capsys.readouterr()
    assert "Furthest along x" in printed.out
    for name in (
        "figures/learning.png",
        "figures/coverage.png",
        "figures/density_map.png",
        "best_episode.mp4",
    ):
        assert (out / name).stat().st_size > 1_000, name
    assert RunFolder.open(out).read_metrics()["step"][-1] == reached + 100
    assert "best task return" in printed.out
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert main(["--resume", str(out), "--steps", str(reached + 100)]) == 0
    assert f"{out} is finished at step {reached + 100:,}; give --steps M" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before
    page = write_run_report(RunFolder.open(out)).read_text()
    assert "Visited " in page
    assert "element on-policy Rooms-v0 --reward extrinsic" in page


def test_it_says_early_that_its_entropy_is_blind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "Rooms-v0",
        "--state-dim",
        "4",
        "--env-options",
        "max_episode_steps=50",
        *SMALL,
        "--no-figures",
    ]
    arguments += ["--steps", "150", "--random-seeds", "0", "--reward-options", "bandwidth=1e6"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    said = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("Episodic entropy is ")
    ]
    assert len(said) == 1
    assert "blind: at bandwidth 1e+06 the 50 states" in said[0]
    assert "Use --reward-options bandwidth=" in said[0]


def test_the_film_is_of_the_best_episode(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = [
        "Rooms-v0",
        "--reward",
        "random",
        "--env-options",
        "max_episode_steps=40",
        *SMALL,
        "--seeds",
        "2",
    ]
    assert (
        main(
            [*arguments, "--steps", "200", "--log-every", "100", "--out", str(out), "--no-figures"]
        )
        == 0
    )
    run = RunFolder.open(out)
    seed, actions = best_episode(run)
    arrays, _, _ = run.load_resume()
    worths = [tuple(arrays[f"measures/best/{agent}/worth"]) for agent in (0, 1)]
    best = int(np.argmax([worth[0] for worth in worths]))
    assert worths[best] == max(worths)
    assert seed == arrays[f"measures/best/{best}/seed"]
    assert len(actions) == 40
    path = write_video(OnPolicyConfig("Rooms-v0", env_options=("max_episode_steps=40",)), run)
    env = make_env("Rooms-v0", max_episode_steps=40)
    lived = [env.reset(seed=seed)[0], *(env.step(int(action))[0] for action in actions)]
    # ffmpeg itself: imageio's reader leaves the pipes to it open for the garbage collector to find.
    shown_as = [
        get_ffmpeg_exe(),
        "-loglevel",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "gray",
        "-",
    ]
    pixels = np.frombuffer(
        subprocess.run(shown_as, check=True, capture_output=True).stdout, np.uint8
    )
    assert len(lived) == 41
    shown = pixels.reshape(41, math.isqrt(len(pixels) // 41), -1)
    times = shown.shape[1] // lived[0].shape[0]
    assert shown.shape[1:] == (84 * times, 84 * times)
    for frame, wanted in zip(shown, lived, strict=True):  # but for what the compression changes
        assert np.abs(frame.astype(float) - wanted.repeat(times, 0).repeat(times, 1)).mean() < 8


def test_a_run_of_another_command_is_not_continued(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "other", {"settings": {}})
    sentence = "no on-policy run: continue it with element explore --resume .*other"
    with pytest.raises(ValueError, match=sentence):
        main(["--resume", str(tmp_path / "other")])


def test_no_film_before_an_episode_has_ended(tmp_path: Path) -> None:
    assert (
        main(
            [
                "Rooms-v0",
                "--reward",
                "random",
                *SMALL,
                "--steps",
                "60",
                "--out",
                str(tmp_path / "run"),
                "--no-figures",
            ]
        )
        == 0
    )
    with pytest.raises(RunError, match=r"No episode of the run .* has ended"):
        write_video(OnPolicyConfig("Rooms-v0"), RunFolder.open(tmp_path / "run"))


def test_help_names_the_paper_s_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (main, main_mario):
        with pytest.raises(SystemExit):
            command(["--help"])
        text = capsys.readouterr().out
        assert "--a3c.gae-decay" in text
        assert "--encoder" in text
    assert "SuperMarioBros-1-1" in text
