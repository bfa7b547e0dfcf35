"""`element pretrain-encoder`: an encoder of frames that explorers measure entropy and novelty with."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from element_rl.commands.bars import stages_or_lines
from element_rl.commands.options import read_options
from element_rl.runs.folder import RunFolder, default_folder
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted, Progress
from element_rl.storage.settings import resumed_folder, settings_from_json
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.encoder.pretrain import (
    Watcher,
    create_encoder_run,
    pretrain_encoder,
    reopen_encoder_run,
)

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


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    folder, prog = resumed_folder(arguments), "element pretrain-encoder"
    if folder is None:
        args = read_options(PretrainEncoder, arguments, prog)
        config = args.config
        run = create_encoder_run(
            config, args.out or default_folder(config.env, "encoder", config.seed)
        )
    else:
        stored = settings_from_json(PretrainConfig, RunFolder.open(folder).config["settings"])
        args = read_options(
            PretrainEncoder, arguments, prog, PretrainEncoder(stored, resume=folder)
        )
        config = args.config
        run = reopen_encoder_run(config, folder)
    try:
        with stop_signals() as stop, _watching(config) as watch:
            summary = pretrain_encoder(config, run, watch, stop)
    except Interrupted:
        print(f"Stopped. Continue with: element pretrain-encoder --resume {run.path}")
        return INTERRUPTED
    if args.figures:
        _draw(run)
    _table(summary)
    print(f"Encoder: {run.path}")
    return 0


@contextlib.contextmanager
def _watching(config: PretrainConfig) -> Iterator[Watcher]:
    """A bar per stage on a terminal, lines now and then elsewhere."""
    console = Console()
    console.print(
        f"[bold]{config.env}[/bold], {config.steps:,} steps of a random policy, at most "
        f"{config.epochs} epochs"
    )
    with stages_or_lines(console, {"frames": "steps", "epochs": ""}, _status) as watch:
        yield watch


def _status(stage: str, progress: Progress) -> list[str]:
    latest = progress.latest
    if stage == "frames":
        return [f"{latest['kept']:,.0f} of {latest['episodes']:,.0f} episodes kept"]
    return [
        f"loss {latest['training_loss']:.3f}",
        f"validation {latest['validation_loss']:.3f} (best in epoch {latest['best_epoch']:.0f})",
        f"{progress.steps_per_second:.1f} updates/s",
    ]


def _draw(run: RunFolder) -> None:
    from element_rl.plots import save_figure
    from element_rl.plots.encoder import encoder_figure

    figure = encoder_figure(run)
    for kind in ("png", "svg"):
        path = save_figure(figure, run.figures_path / f"encoder.{kind}")
        if kind == "png":
            print(f"Figure: {path}")


def _table(summary: dict[str, Any]) -> None:
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
