"""`element on-policy`: asynchronous A3C on images, with an intrinsic reward or the environment's
own."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from element_rl.commands.bars import bar_or_lines
from element_rl.commands.options import read_options
from element_rl.commands.progress import resuming, said_finished, status_parts, summary_table
from element_rl.runs.folder import RunFolder, default_folder
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted, Watcher
from element_rl.runs.watching import Progress as RunProgress
from element_rl.storage.settings import resumed_folder, settings_from_json
from element_rl.training.on_policy.config import OnPolicyConfig, resolved
from element_rl.training.on_policy.launch import create_run, reopen_run
from element_rl.training.on_policy.training import train
from element_rl.training.on_policy.video import write_video


@dataclass(frozen=True)
class OnPolicyCommand:
    """Train agents on images with asynchronous A3C (the paper's on-policy form)."""

    config: Annotated[OnPolicyConfig, tyro.conf.arg(name="")]
    # Folder of the run. (default: runs/ENV-REWARD-SEED)
    out: Path | None = None
    # Folder of a run to continue; settings are taken from it. (default: a new run begins)
    resume: Path | None = None
    # Draw figures at the end.
    figures: bool = True
    # Write the best episode (most cells, then furthest) to best_episode.mp4 in the run's folder at
    # the end.
    video: bool = False


def main(arguments: list[str]) -> int:
    return run_command(arguments, "element on-policy", None)


def run_command(arguments: list[str], name: str, begin_with: OnPolicyConfig | None) -> int:
    """`begin_with`: what the settings are where nothing is said."""
    folder = resumed_folder(arguments)
    if folder is not None:
        begin_with = settings_from_json(OnPolicyConfig, _stored(folder))
    default = None if begin_with is None else OnPolicyCommand(begin_with, resume=folder)
    command = read_options(OnPolicyCommand, arguments, name, default)
    config = resolved(command.config)[0]
    if command.resume is not None:
        run = reopen_run(config, command.resume)
        if said_finished(run, config.steps):
            if command.video:  # can be asked for afterwards
                print(f"Video: {write_video(config, run)}")
            return 0
    else:
        run = create_run(
            config, command.out or default_folder(config.env, config.reward, config.seed)
        )
    try:
        with stop_signals() as stop, watching(config) as watch:
            summary = train(config, run, watch, stop, resume=command.resume is not None)
    except Interrupted as interrupted:
        print(
            f"Stopped at step {interrupted.step:,}. Continue with: {name} "
            f"{resuming(run, config.steps)}"
        )
        return INTERRUPTED
    _show(config, run, summary, command)
    return 0


def _stored(folder: Path) -> dict[str, Any]:
    config = RunFolder.open(folder).config
    if not config.get("on_policy"):
        raise ValueError(
            f"{folder} is no on-policy run: continue it with the command that began it."
        )
    return dict(config["settings"])


def _show(
    config: OnPolicyConfig, run: RunFolder, summary: dict[str, Any], command: OnPolicyCommand
) -> None:
    from element_rl.plots import plot_run, save_figure
    from element_rl.plots.on_policy import learning_curves

    if command.figures:
        written = plot_run([run], say=lambda text: None)
        written += [
            save_figure(learning_curves(run), run.figures_path / f"learning.{kind}")
            for kind in ("png", "svg")
        ]
        for path in written:
            if path.suffix == ".png":
                print(f"Figure: {path}")
    if command.video:
        print(f"Video: {write_video(config, run)}")
    summary_table(summary)
    furthest = [value for value in summary["furthest"] if value is not None]
    if furthest:
        print(
            f"Furthest along {run.config['coverage_axes'][0]}: "
            f"{', '.join(f'{value:,.1f}' for value in furthest)}"
        )
    print(f"Run: {run.path}")


@contextlib.contextmanager
def watching(config: OnPolicyConfig) -> Iterator[Watcher]:
    """A watcher that draws a bar on a terminal, and prints lines elsewhere."""
    console = Console()
    agents = f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"
    workers = f"{max(config.workers, 1)} worker{'s' if config.workers > 1 else ''} each"
    console.print(
        f"[bold]{config.env}[/bold], reward {config.reward}, {config.steps:,} steps × {agents}, "
        f"{workers}"
    )
    if config.encoder is None and config.reward not in ("extrinsic", "random"):
        console.print(
            "States come from a random encoder, never trained (a trained one: element "
            "pretrain-encoder, then --encoder)."
        )
    with bar_or_lines(console, "steps", config.steps, _status) as watch:
        yield watch


def _status(progress: RunProgress) -> list[str]:
    entries = (
        ("furthest", "furthest", ",.0f"),
        ("coverage", "cells", ",.0f"),
        ("episodic_entropy", "entropy", ".2f"),
        ("episode_length", "length", ".0f"),
        ("extrinsic_return", "return", ".2f"),
    )
    return status_parts(progress, entries)
