"""`element pretrain-encoder`: an encoder of frames, by which explorers measure entropy and
novelty."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from element_rl.commands.bars import Bar
from element_rl.commands.training import TrainingCommand, default_folder, run_training, saved
from element_rl.runs.folder import RunFolder
from element_rl.tracking.settings import NOT_TRACKED, Tracking
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.encoder.pretrain import (
    create_encoder_run,
    pretrain_encoder,
    reopen_encoder_run,
)

BARS = {
    "frames": Bar("steps", ("{kept:,.0f} of {episodes:,.0f} episodes kept",)),
    "epochs": Bar(
        "",
        (
            "loss {training_loss:.3f}",
            "validation {validation_loss:.3f} (best in epoch {best_epoch:.0f})",
            "{steps_per_second:.1f} updates/s",
        ),
    ),
}
NAMES = {"trained": "trained encoder", "untrained": "the same, untrained", "pca": "PCA of pixels"}


@dataclass(frozen=True)
class PretrainEncoder:
    """Train an encoder of frames by ST-DIM on what a random policy sees, and freeze it."""

    config: Annotated[PretrainConfig, tyro.conf.arg(name="")]
    # Folder of the encoder. (default: runs/ENV-encoder-SEED)
    out: Path | None = None
    # Folder of a training to continue; settings are taken from it. (default: a new one begins)
    resume: Path | None = None
    # Draw the losses and the probe at the end.
    figures: bool = True
    # Trackers that the run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    return run_training(COMMAND, arguments, "element pretrain-encoder")


def _title(given: PretrainConfig, config: PretrainConfig) -> list[str]:
    return [
        f"[bold]{config.env}[/bold], {config.steps:,} steps of a random policy, at most "
        f"{config.epochs} epochs"
    ]


def _draw(config: PretrainConfig, run: RunFolder) -> list[Path]:
    from element_rl.plots.encoder import encoder_figure

    return saved(encoder_figure(run), run.figures_path, "encoder")


def _show(run: RunFolder, summary: dict[str, Any]) -> None:
    """What the states know of positions, and how well frames find each other."""
    if probe := summary["probe"]:
        axes = list(probe["trained"])
        table = Table(
            "R² on held-out episodes", *axes, title=f"{summary['env']}, {summary['steps']:,} steps"
        )
        for name, scores in probe.items():
            table.add_row(NAMES[name], *(_score(scores[axis]) for axis in axes))
        Console().print(table)
    held_out, frames = summary["held_out"], summary["frames"]
    Console().print(
        f"Held-out loss {held_out['loss']:.3f} (chance {summary['chance_loss']:.3f}); a frame's "
        "state finds the next frame "
        f"{held_out['global_local_accuracy']:.0%} of the time, a place "
        f"{held_out['local_local_accuracy']:.0%}."
    )
    Console().print(
        f"{frames['training']:,} frames to train on, {frames['episodes_left_out']} of "
        f"{frames['episodes']} episodes left "
        f"out; best epoch {summary['best_epoch']} of {summary['epochs']}, "
        f"{summary['wall_seconds']:.0f} s of training."
    )
    saturation = summary["entropy_saturation"]["trained"]
    Console().print(
        f"An episode's entropy in these states is {saturation:.0%} of its ceiling (--spread "
        "changes it)."
    )


def _score(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.3f}"


COMMAND = TrainingCommand(
    kind="encoder",
    options=PretrainEncoder,
    config=PretrainConfig,
    create=create_encoder_run,
    reopen=reopen_encoder_run,
    train=lambda config, run, watch, stop, resumes: pretrain_encoder(config, run, watch, stop),
    default_folder=lambda config: default_folder(config.env, "encoder", config.seed),
    title=_title,
    bars=BARS,
    draw=_draw,
    show=_show,
    say_last=lambda run: print(f"Encoder: {run.path}"),
    stopped="Stopped.",
    unit="",
)
