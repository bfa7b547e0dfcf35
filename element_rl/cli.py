"""The command `element`. Settings are typed; a mistake in them is answered by one sentence and exit code 2."""

import contextlib
import importlib
import os
import sys

# Before NumPy is loaded: LAPACK's threads spin while they wait, and where another process has one of the cores an eigenvalue
# decomposition takes 8 s instead of 0.1. XLA has threads of its own and is not concerned.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from element_rl import __version__
from element_rl.options import read_options
from element_rl.stopping import INTERRUPTED, stop_signals

USER_ERROR = 2  # exit code when the user has to change something
NOBODY_READS = 141  # exit code when our output's reader has left, as in `element --help | head -1`: what SIGPIPE gives
FILMED_STEPS = 4  # steps of a robot between two frames of the film at the end of a run
EPISODES_DRAWN = 2  # per checkpoint and seed, in the figure of trajectories at the end of a run

ELEMENTS_OWN = (
    *("--beta", "--episodic-weight", "--memory", "--estimator", "--bandwidth", "--lifelong-estimator", "--credit"),
    *("--normalisation", "--length-weighted", "--no-length-weighted"),
)  # options of `element explore` that no other reward has

COMMANDS = {
    "explore": "train agents that explore, without any task reward",
    "evaluate": "act with the policies of a run's checkpoints and measure what they do",
    "plot": "draw the figures of one or more runs",
    "collect": "make a dataset of what the policies of a run do",
    "offline": "learn a task from datasets, without acting",
    "finetune": "go on with the policies of a run, on a task",
    "pretrain-encoder": "train an encoder of an environment's images, for its explorers",
    "on-policy": "train explorers of an environment that shows images, with A3C",
    "mario": "the same on Super Mario Bros 1-1",
    "maze": "see the method on a small maze, in under a minute",
    "study": "run an experiment of the paper, from nothing to a report",
    "report": "write the page of a run, or of a study again",
    "doctor": "check the installation, and whether a bonus works on an environment or in a run",
}

ELSEWHERE = {  # commands with a module of their own, imported when they are used; its function `main`, if none is named
    "collect": "element_rl.collect.command",
    "offline": "element_rl.offline.command",
    "finetune": "element_rl.finetune.command",
    "pretrain-encoder": "element_rl.pretraining.command",
    "on-policy": "element_rl.on_policy.command",
    "mario": "element_rl.on_policy.command:main_mario",
    "maze": "element_rl.studies.maze_command",
    "study": "element_rl.studies.command",
    "doctor": "element_rl.doctor.command",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    with contextlib.suppress(OSError):  # the current folder may have been removed
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # as `python -m` has it: my_envs:MyEnv-v0 may lie in the file my_envs.py
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # not at the interpreter's end, where an error can no longer be answered
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the end does not try again
        return NOBODY_READS
    except (ValueError, OSError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(f"element-rl {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return _complain(f"There is no command {name!r}; choose one of {', '.join(COMMANDS)}.")
    own = {"explore": _explore, "evaluate": _evaluate, "plot": _plot, "report": _report}
    if name in own:
        return own[name](rest)
    module, _, function = ELSEWHERE[name].partition(":")
    return int(getattr(importlib.import_module(module), function or "main")(rest))


def _refuse_elements_own(reward: str, arguments: Sequence[str]) -> None:
    """Settings of ELEMENT, asked for where another reward would ignore them. (Unasked they stand in every run's settings.)"""
    given = (argument.partition("=")[0].replace("_", "-") for argument in arguments)
    if reward != "element" and (own := next((option for option in given if option in ELEMENTS_OWN), None)):
        raise ValueError(f"{own} is a setting of ELEMENT and means nothing to the reward {reward!r}: leave it out.")


def _explore(arguments: list[str]) -> int:
    from element_rl.config import ExploreConfig, config_from_json, map_note, resolved
    from element_rl.explore import Interrupted, explore
    from element_rl.launch import create_run, reopen_run
    from element_rl.next_steps import say_next_steps
    from element_rl.progress import resuming, said_finished, summary_table, watching
    from element_rl.runs import RunFolder, default_folder
    from element_rl.settings import resumed_folder

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
        run = create_run(settings, args.out or default_folder(config.env, config.reward, config.seed))
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


def _draw(run: Any, summary: dict[str, Any], spec: Any) -> None:
    from element_rl.evaluate import evaluate
    from element_rl.plots import plot_run
    from element_rl.progress import acting

    if summary["reward"] != "random":
        with acting() as watch:
            evaluate(run, episodes=EPISODES_DRAWN, watch=watch, spec=spec)
    for path in plot_run([run], say=lambda text: None):
        if path.suffix == ".png":
            print(f"Figure: {path}")


def _film(run: Any, spec: Any) -> None:
    """A film at the end of a run; where none can be rendered a sentence says so, and the run is done all the same."""
    from element_rl.evaluate import film
    from element_rl.progress import filming
    from element_rl.runs import RunError

    try:
        with filming() as watch:
            path = film(run, watch=watch, spec=spec, every=FILMED_STEPS)
    except RunError as error:
        print(error)
    else:
        print(f"Video: {path}")


def _evaluate(arguments: list[str]) -> int:
    from element_rl.evaluate import evaluate, film
    from element_rl.progress import acting, evaluation_table, filming
    from element_rl.runs import RunFolder

    @dataclass(frozen=True)
    class Evaluate:
        """Act with the policies of a run's checkpoints; trajectories, returns and entropies go to its evaluation folder."""

        # Folder of the run, made by element explore, on-policy, mario or offline.
        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        # Episodes of each checkpoint and seed.
        episodes: int = 5
        # Act with the policy's mean or likeliest action instead of sampling.
        deterministic: bool = False
        # Step of the only checkpoint to act with. (default: all checkpoints)
        checkpoint: int | None = None
        # Write an mp4 of one episode of the last policy evaluated.
        video: bool = False
        # Folder to write to. (default: RUN/evaluation)
        out: Path | None = None
        # Processes that act; 0 acts in the command's own process.
        # (default: one per core, or none where there is little to do)
        workers: int | None = None

    args = read_options(Evaluate, arguments, "element evaluate")
    run = RunFolder.open(args.run)
    with acting() as watch:
        result = evaluate(
            run, args.episodes, args.deterministic, args.checkpoint, out=args.out, workers=args.workers, watch=watch
        )
    evaluation_table(result)
    if args.video:
        with filming() as watch:
            path = film(run, args.deterministic, args.checkpoint, args.out, watch)
        print(f"Video: {path}")
    return 0


def _plot(arguments: list[str]) -> int:
    from element_rl.plots import plot_run
    from element_rl.runs import RunFolder

    some_runs = tyro.conf.arg(metavar="RUN ...", help_behavior_hint="(required)")

    @dataclass(frozen=True)
    class Plot:
        """Draw coverage, density, entropy, reward terms and trajectories of runs.

        Several runs share the curves, with a panel for each environment.
        """

        # Folders of the runs, made by element explore, on-policy or mario.
        runs: tyro.conf.Positional[Annotated[tuple[Path, ...], some_runs]]
        # Folder for the figures. (default: the first run's own, RUN/figures)
        out: Path | None = None

    args = read_options(Plot, arguments, "element plot")
    if not args.runs:
        raise ValueError("Name at least one run folder to plot.")
    for path in plot_run([RunFolder.open(run) for run in args.runs], args.out):
        print(path)
    return 0


def _report(arguments: list[str]) -> int:
    from element_rl.studies.command import report

    @dataclass(frozen=True)
    class Report:
        """Write the page (one HTML file that needs no network) of a run of explore, on-policy or mario, or of a study."""

        # Folder of a run or of a study: runs/Ant-v5-element-0, runs/studies-small/coverage.
        folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
        # File to write. (default: FOLDER/report.html)
        out: Path | None = None

    args = read_options(Report, arguments, "element report")
    print(f"Report: {report(args.folder, args.out)}")
    return 0


def _overview() -> str:
    lines = [f"  element {name:<{max(map(len, COMMANDS))}} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["Exploration without reward.", "", *lines, "", "Each of them explains itself: element explore --help"]
    )


def _complain(sentence: str) -> int:
    print(f"element: {sentence}", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
