"""`element explore`: train agents that explore, then draw, film and sum up what they did."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from element_rl.commands.next_steps import say_next_steps
from element_rl.commands.options import read_options
from element_rl.commands.progress import (
    acting,
    filming,
    resuming,
    said_finished,
    summary_table,
    watching,
)
from element_rl.envs.spec import EnvSpec
from element_rl.evaluate import evaluate, film
from element_rl.runs.folder import RunError, RunFolder, default_folder
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted
from element_rl.storage.settings import resumed_folder
from element_rl.training.off_policy.config import (
    ExploreConfig,
    config_from_json,
    map_note,
    resolved,
)
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run, reopen_run

FILMED_STEPS = 4  # steps of a robot between two frames of the film at the end of a run
EPISODES_DRAWN = 2  # per checkpoint and seed, in the figure of trajectories at the end of a run
ELEMENTS_OWN = (
    *(
        "--beta",
        "--episodic-weight",
        "--memory",
        "--estimator",
        "--bandwidth",
        "--lifelong-estimator",
        "--credit",
    ),
    *("--normalisation", "--length-weighted", "--no-length-weighted"),
)  # options that no other reward has


@dataclass(frozen=True)
class Explore:
    """Train agents that explore, without any task reward (Algorithm 3 of the ELEMENT paper)."""

    config: Annotated[ExploreConfig, tyro.conf.arg(name="")]
    # Folder of the run. (default: runs/ENV-REWARD-SEED)
    out: Path | None = None
    # Folder of a run to continue; settings are taken from it. (default: a new run begins)
    resume: Path | None = None
    # Act with the checkpoint policies and draw figures at the end.
    figures: bool = True
    # Film one episode of the last policy at the end, where the environment can be rendered.
    video: bool = False


def main(arguments: list[str]) -> int:
    folder = resumed_folder(arguments)
    default: Explore | None = None
    if folder is not None:
        stored = RunFolder.open(folder).config
        default = Explore(config_from_json(stored["settings"]), resume=folder)
    args = read_options(Explore, arguments, "element explore", default)
    _refuse_elements_own(args.config.reward, arguments)
    settings = resolved(args.config)
    config = settings.config
    if args.resume is not None:
        run = reopen_run(settings, args.resume)
        if said_finished(run, config.steps):
            return 0
    else:
        run = create_run(
            settings, args.out or default_folder(config.env, config.reward, config.seed)
        )
    if note := map_note(args.config, settings.spec):
        print(note)
    try:
        with stop_signals() as stop, watching(config) as watch:
            summary = explore(settings, run, watch, stop, resume=args.resume is not None)
    except Interrupted as interrupted:
        command = f"element explore {config.env} {resuming(run, config.steps)}"
        print(f"Stopped at step {interrupted.step:,}. Continue with: {command}")
        return INTERRUPTED
    if args.figures:
        _draw(run, summary, settings.spec)
    if args.video and config.reward != "random":
        _film(run, settings.spec)
    summary_table(summary)
    print(f"Run: {run.path}")
    say_next_steps(run)
    return 0


def _refuse_elements_own(reward: str, arguments: Sequence[str]) -> None:
    """Settings of ELEMENT, asked for where another reward would ignore them. (Unasked they stand in
    every run's.)"""
    given = (argument.partition("=")[0].replace("_", "-") for argument in arguments)
    if reward != "element" and (
        own := next((option for option in given if option in ELEMENTS_OWN), None)
    ):
        raise ValueError(
            f"{own} is a setting of ELEMENT and means nothing to the reward {reward!r}: leave it "
            "out."
        )


def _draw(run: RunFolder, summary: dict[str, Any], spec: EnvSpec) -> None:
    from element_rl.plots import plot_run  # loads matplotlib

    if summary["reward"] != "random":
        with acting() as watch:
            evaluate(run, episodes=EPISODES_DRAWN, watch=watch, spec=spec)
    for path in plot_run([run], say=lambda text: None):
        if path.suffix == ".png":
            print(f"Figure: {path}")


def _film(run: RunFolder, spec: EnvSpec) -> None:
    """A film at the end of a run; where none can be rendered a sentence says so, and the run is
    done all the same."""
    try:
        with filming() as watch:
            path = film(run, watch=watch, spec=spec, every=FILMED_STEPS)
    except RunError as error:
        print(error)
    else:
        print(f"Video: {path}")
