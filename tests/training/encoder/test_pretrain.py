"""An encoder from nothing: it learns, stops in time, goes on after a stop as if nothing had been,
and says what it came to."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.seen import pixels_covered, ticks_of

from element_rl.commands.pretrain_encoder import main
from element_rl.encoders.frozen import load_encoder
from element_rl.encoders.stdim import NetworkConfig
from element_rl.envs.make import make_env
from element_rl.plots.encoder import encoder_figure
from element_rl.runs.folder import RunError
from element_rl.runs.watching import Interrupted, Progress
from element_rl.storage.files import read_arrays
from element_rl.training.encoder.collecting import random_episode
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.encoder.pretrain import (
    Stage,
    create_encoder_run,
    pretrain_encoder,
    reopen_encoder_run,
)

SMALL = PretrainConfig(
    "Rooms-v0",
    steps=600,
    workers=0,
    entropy_threshold=0.3,
    batch_size=16,
    epoch_updates=8,
    epochs=3,
    learning_rate=1e-3,
    probe_frames=200,
    env_options=("max_episode_steps=60",),
    network=NetworkConfig(state_dim=8, channels=(8, 16), kernels=(8, 4), strides=(4, 4), hidden=32),
)


class Blinking(gymnasium.Env):
    """Images, choices, and no place to be."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._frame(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._frame(), 0.0, False, False, {}

    def _frame(self) -> np.ndarray:
        return np.kron(self.np_random.integers(0, 256, (12, 12)), np.ones((7, 7))).astype(np.uint8)


gymnasium.register("BlinkingTest-v0", Blinking, max_episode_steps=60)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("encoder") / "run"
    pretrain_encoder(SMALL, create_encoder_run(SMALL, folder))
    return folder


def test_what_a_run_leaves(finished: Path) -> None:
    run = reopen_encoder_run(SMALL, finished)
    summary, metrics = run.read_summary(), run.read_metrics()
    assert (summary["env"], summary["steps"], summary["epochs"], summary["updates"]) == (
        "Rooms-v0",
        600,
        3,
        24,
    )
    assert metrics["step"].tolist() == [1, 2, 3]
    best = summary["best_epoch"]
    assert summary["validation"]["loss"] == pytest.approx(
        metrics["validation_loss"].min(), rel=1e-5
    )
    assert metrics["validation_loss"][best - 1] == metrics["validation_loss"].min()
    assert summary["held_out"]["loss"] < summary["chance_loss"] == pytest.approx(np.log(16))
    assert set(summary["probe"]) == {"trained", "untrained", "pca"}
    assert set(summary["probe"]["trained"]) == {"x", "y"}
    assert 0 < summary["entropy_saturation"]["trained"] < 1
    names = {path.name for path in finished.iterdir()}
    assert {
        "config.json",
        "metrics.csv",
        "summary.json",
        "encoder.safetensors",
        "probe.safetensors",
    } <= names
    assert "training.safetensors" not in names
    assert not (finished / "frames" / "frames.bin").exists()


def test_the_encoder_is_frozen_and_standardised(finished: Path) -> None:
    encoder = load_encoder(finished)
    assert (encoder.state_dim, encoder.frame_shape) == (8, (84, 84))
    env = make_env("Rooms-v0", max_episode_steps=60)
    frames = np.concatenate([random_episode(env, 0, number).frames for number in range(10)])
    env.close()
    spread = np.sqrt(np.asarray(encoder(frames)).var(axis=0).sum())
    # these are the frames of all three parts
    assert spread == pytest.approx(SMALL.spread, rel=0.25)


def test_a_stopped_run_gives_the_same_encoder(finished: Path, tmp_path: Path) -> None:
    """Stopped while collecting, then after an epoch; then with other processes."""
    run = create_encoder_run(SMALL, tmp_path / "run")
    seen: list[tuple[Stage, int]] = []

    def watch(stage: Stage, progress: Progress) -> None:
        if not progress.doing:
            seen.append((stage, progress.step))

    for asked in (3, 11):  # of ten episodes; of ten episodes and some epochs
        with pytest.raises(Interrupted):
            pretrain_encoder(SMALL, run, watch, lambda asked=asked: len(seen) >= asked)
    assert seen == [("frames", 60 * n) for n in range(1, 11)] + [("epochs", 1)]
    config = dataclasses.replace(SMALL, workers=2, keep_frames=True)
    run = reopen_encoder_run(config, run.path)
    pretrain_encoder(config, run, watch)
    assert seen[11:] == [("epochs", 2), ("epochs", 3)]
    for name in ("encoder.safetensors", "probe.safetensors"):
        (ours, _), (theirs, _) = (read_arrays(folder / name) for folder in (run.path, finished))
        assert ours.keys() == theirs.keys()
        for part in ours:
            np.testing.assert_array_equal(ours[part], theirs[part])
    assert (run.path / "frames" / "frames.bin").exists()
    logged = run.read_metrics()
    for name, values in reopen_encoder_run(SMALL, finished).read_metrics().items():
        if name != "wall_seconds":
            np.testing.assert_array_equal(logged[name], values)


def test_a_finished_run_is_left_alone(finished: Path) -> None:
    before = (finished / "summary.json").read_bytes()
    summary = pretrain_encoder(SMALL, reopen_encoder_run(SMALL, finished))
    assert (finished / "summary.json").read_bytes() == before
    assert summary["epochs"] == 3


def test_training_ends_when_it_no_longer_helps(tmp_path: Path) -> None:
    """Steps of no size: the first epoch is the best, and the patience is two."""
    config = dataclasses.replace(
        SMALL, steps=300, learning_rate=1e-30, epochs=50, patience=2, epoch_updates=2
    )
    summary = pretrain_encoder(config, create_encoder_run(config, tmp_path / "run"))
    assert (summary["best_epoch"], summary["epochs"]) == (1, 3)
    assert summary["probe"]["trained"] == summary["probe"]["untrained"]  # it is the same network


def test_an_environment_without_positions(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, env="BlinkingTest-v0", env_options=(), epochs=1)
    run = create_encoder_run(config, tmp_path / "run")
    assert pretrain_encoder(config, run)["probe"] == {}
    assert len(encoder_figure(run).axes) == 1


def test_the_figure(finished: Path) -> None:
    figure = encoder_figure(finished)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Rooms-v0: loss", "R² of positions, held-out", "predicted x", "predicted y"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [1, 2, 3])
    assert ticks_of(figure.axes[0].xaxis) == [1, 2, 3]
    assert pixels_covered(figure) == 0
    with pytest.raises(RunError, match="trained no encoder to the end"):
        encoder_figure(create_encoder_run(SMALL, finished.parent / "new"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "encoder"
    options = [
        "--steps=600",
        "--workers=0",
        "--entropy-threshold=0.3",
        "--batch-size=16",
        "--epoch-updates=8",
        "--epochs=1",
    ]
    sizes = [
        "--network.channels",
        "8",
        "16",
        "--network.kernels",
        "8",
        "4",
        "--network.strides",
        "4",
        "4",
    ]
    widths = ["--network.state-dim=8", "--network.hidden=32"]
    rest = ["--env-options", "max_episode_steps=60", "--out", str(folder)]
    assert main(["Rooms-v0", *options, *sizes, *widths, *rest]) == 0
    said = capsys.readouterr().out
    for text in (
        "trained encoder",
        "the same, untrained",
        "PCA of pixels",
        "chance 2.773",
        f"Encoder: {folder}",
    ):
        assert text in said
    assert (folder / "figures" / "encoder.png").exists()
    assert main(["--resume", str(folder)]) == 0
    with pytest.raises(ValueError, match="already holds a run"):
        main(["Rooms-v0", "--out", str(folder)])
    with pytest.raises(ValueError, match="batch_size was 16 and is 8"):
        main(["--resume", str(folder), "--batch-size", "8"])


def test_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an image is needed"):
        main(["CartPole-v1", "--out", str(tmp_path / "no")])
    assert not (tmp_path / "no").exists()
    for change, sentence in (
        ({"batch_size": 1}, "--batch-size must be at least 2"),
        ({"entropy_threshold": 1.0}, "a share from 0 to below 1, got 1.0"),
        ({"patience": 0}, "--patience must be at least 1"),
        ({"spread": 0.0}, "must be above 0"),
        ({"workers": -1}, "must not be negative"),
        ({"probe_frames": 10}, "at least 100"),
    ):
        with pytest.raises(ValueError, match=sentence):
            dataclasses.replace(SMALL, **change)
