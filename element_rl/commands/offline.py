"""`element offline`: train agents on datasets, without acting in the world to learn."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from element_rl.commands.bars import Bar
from element_rl.commands.next_steps import say_steps
from element_rl.commands.offline_steps import offline_steps
from element_rl.commands.summaries import mean_and_range
from element_rl.commands.training import TrainingCommand, run_training, saved
from element_rl.runs.folder import RunFolder
from element_rl.tracking.settings import NOT_TRACKED, Tracking
from element_rl.training.offline import create_offline_run, reopen_offline_run, train_offline
from element_rl.training.offline.config import OfflineConfig

BAR = Bar(
    "updates",
    (
        "return {extrinsic_return:,.1f}",
        "score {normalised_score:.3f}",
        "value {q_mean:,.1f}",
        "gap {conservative_gap:.2f}",
    ),
    one="agent",
)


@dataclass(frozen=True)
class Offline:
    """Train agents on Minari datasets, without acting to learn: CQL, TD3+BC, IQL, or behaviour
    cloning."""

    config: Annotated[OfflineConfig, tyro.conf.arg(name="")]
    # Folder of the run. (default: runs/DATASET-ALGORITHM-SEED)
    out: Path | None = None
    # Folder of a run to continue; settings are taken from it. (default: a new run begins)
    resume: Path | None = None
    # Draw the learning curve at the end.
    figures: bool = True
    # Trackers that the run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    return run_training(COMMAND, arguments, "element offline")


def _default_folder(config: OfflineConfig) -> Path:
    label = Path(config.datasets[0].rstrip("/")).name
    return Path("runs") / f"{label}-{config.algorithm}-{config.seed}"


def _title(given: OfflineConfig, config: OfflineConfig) -> list[str]:
    names = ", ".join(config.datasets)
    return [f"[bold]{config.algorithm}[/bold] on {names}, {config.steps:,} updates"]


def _draw(config: OfflineConfig, run: RunFolder) -> list[Path]:
    from element_rl.plots.offline import offline_curve

    return saved(offline_curve(run), run.figures_path, "offline") if config.evaluate else []


def _show(run: RunFolder, summary: dict[str, Any]) -> None:
    """One line per dataset, or per agent that made one."""
    table = Table(title=f"{summary['algorithm']} in {summary['env'] or 'an unnamed environment'}")
    for heading in ("dataset", "agents", "transitions", "return of the data", "return", "score"):
        table.add_column(
            heading, justify="left" if heading == "dataset" else "right", overflow="fold"
        )
    origins = list(zip(summary["datasets"], summary["agents"], strict=True))
    for dataset, agent in dict.fromkeys(origins):
        learners = [i for i, origin in enumerate(origins) if origin == (dataset, agent)]
        table.add_row(
            dataset if agent is None else f"{dataset}, agent {agent}",
            f"{len(learners)}",
            f"{summary['transitions'][learners[0]]:,}",
            f"{summary['behaviour_return'][learners[0]]:,.2f}",
            mean_and_range([summary["extrinsic_return"][i] for i in learners]),
            mean_and_range([summary["normalised_score"][i] for i in learners]),
        )
    Console().print(table)
    count = len(summary["seeds"])
    together = f" of all {count} agents together" if count > 1 else ""
    Console().print(
        f"{summary['updates_per_second']:,.0f} updates/s{together}, {summary['wall_seconds']:.0f} "
        "s of training"
    )


def _say_last(run: RunFolder) -> None:
    print(f"Run: {run.path}")
    say_steps(offline_steps(run))


COMMAND = TrainingCommand(
    kind="offline",
    options=Offline,
    config=OfflineConfig,
    create=create_offline_run,
    reopen=reopen_offline_run,
    train=train_offline,
    default_folder=_default_folder,
    title=_title,
    bars=BAR,
    draw=_draw,
    show=_show,
    say_last=_say_last,
    stopped="Stopped after {:,} updates.",
    unit="update",
)
