"""`element on-policy`: asynchronous A3C on images, or PPO on any environment, with an intrinsic
reward or the environment's own."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from element_rl.commands.bars import Bar
from element_rl.commands.summaries import summary_table
from element_rl.commands.training import (
    TrainingCommand,
    counted,
    default_folder,
    run_training,
    saved,
)
from element_rl.envs.notes import ROLLOUT_SIZES, coverage_note
from element_rl.runs.folder import RunFolder
from element_rl.tracking.settings import NOT_TRACKED, Tracking
from element_rl.training.on_policy.config import OnPolicyConfig, resolved
from element_rl.training.on_policy.launch import create_run, reopen_run
from element_rl.training.on_policy.training import train
from element_rl.training.on_policy.video import write_video

BAR = Bar(
    "steps",
    (
        "furthest {furthest:,.0f}",
        "cells {coverage:,.0f}",
        "entropy {episodic_entropy:.2f}",
        "length {episode_length:.0f}",
        "return {extrinsic_return:.2f}",
    ),
)


@dataclass(frozen=True)
class OnPolicyCommand:
    """Train agents from rollouts: asynchronous A3C on images (the paper's on-policy form), or PPO
    on any environment (--agent ppo)."""

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
    # Trackers that the run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    return run_training(COMMAND, arguments, "element on-policy")


def _title(given: OnPolicyConfig, config: OnPolicyConfig) -> list[str]:
    workers = counted(max(config.workers or 0, 1), "worker")
    # by what was said: settings name the position that was found as if it had been
    asked = dataclasses.replace(config, position=given.position)
    note, each = coverage_note(resolved(asked)[1], bool(given.position), ROLLOUT_SIZES), workers
    if config.agent == "ppo":
        each = f"PPO, {counted(config.envs_per_agent or 0, 'environment')} in {workers}"
    lines = [
        *([note] if note else []),
        f"[bold]{config.env}[/bold], reward {config.reward}, {config.steps:,} steps × "
        f"{counted(config.seeds, 'seed')}, {each} each",
    ]
    if config.state_units == "calibrated":
        lines.append("States are calibrated: their units come from random steps before the run.")
    frames = config.state_units is None
    if frames and config.encoder is None and config.reward not in ("extrinsic", "random"):
        lines.append(
            "States come from a random encoder, never trained (a trained one: element "
            "pretrain-encoder, then --encoder)."
        )
    return lines


def _draw(config: OnPolicyConfig, run: RunFolder) -> list[Path]:
    from element_rl.plots import plot_run
    from element_rl.plots.on_policy import learning_curves

    drawn = plot_run([run], say=lambda text: None)
    return drawn + saved(learning_curves(run), run.figures_path, "learning")


def _show(run: RunFolder, summary: dict[str, Any]) -> None:
    summary_table(summary)
    furthest = [f"{value:,.1f}" for value in summary["furthest"] if value is not None]
    if furthest:
        print(f"Furthest along {run.config['coverage_axes'][0]}: {', '.join(furthest)}")


COMMAND = TrainingCommand(
    kind="on-policy",
    options=OnPolicyCommand,
    config=OnPolicyConfig,
    create=create_run,
    reopen=reopen_run,
    train=train,
    default_folder=lambda config: default_folder(config.env, config.reward, config.seed),
    title=_title,
    bars=BAR,
    draw=_draw,
    show=_show,
    film=lambda config, run: print(f"Video: {write_video(config, run)}"),
    resolve=lambda config, run: resolved(config)[0],
)
