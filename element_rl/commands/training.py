"""One road for every command that trains: read the options, begin a run or continue one, train
until it is done or told to stop, and show what came of it."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from element_rl.commands.bars import Bar, bar_or_lines, bars_or_lines
from element_rl.commands.options import read_options
from element_rl.rewards.expression import parsed
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import stored_settings
from element_rl.runs.stopping import CHECKPOINT_FIRST, INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted
from element_rl.tracking.processes import TrackedRun, tracked
from element_rl.tracking.settings import Tracking, require_installed

if TYPE_CHECKING:  # matplotlib takes a second, and not every command draws
    from matplotlib.figure import Figure

Outcome = TypeVar("Outcome")
Train = Callable[[Any, Callable[[], bool]], Outcome]  # a watcher, and whether to stop

SHOWN = {  # what is said of figures, beside their paths
    "coverage": "  (cells visited, by steps)",
    "entropy": "  (how varied episodes were)",
    "reward_terms": "  (what the agents were paid)",
    "density_map": "  (where they have been: look at this first)",
    "trajectories": "  (paths of single episodes, of early and late policies)",
}


@dataclass(frozen=True)
class TrainingCommand:
    """What differs between the commands that train a run.

    `config` below is an option of all of them, the settings of the run as the user gave them.
    `settings` is what `resolve` makes of it.
    """

    kind: str  # of the runs
    options: type[
        Any
    ]  # dataclass of the options: config, out, resume, figures, tracking and others
    config: type[Any]  # dataclass of the option `config`
    create: Callable[[Any, Path], RunFolder]  # settings, folder
    reopen: Callable[[Any, Path], RunFolder]
    # settings, run, watcher, whether to stop, whether the run is continued → summary
    train: Callable[[Any, RunFolder, Any, Callable[[], bool], bool], dict[str, Any]]
    default_folder: Callable[[Any], Path]  # of a run with these settings
    title: Callable[[Any, Any], Sequence[str]]  # lines above the bar, from config and settings
    bars: Bar | Mapping[str, Bar]  # one, or one for each stage of the training
    draw: Callable[[Any, RunFolder], Sequence[Path]]  # writes figures of a run, with --figures
    show: Callable[[RunFolder, dict[str, Any]], None]  # prints the summary
    film: Callable[[Any, RunFolder], None] | None = None  # with --video
    # prints where the run is, and what to do with it
    say_last: Callable[[RunFolder], None] = lambda run: print(f"Run: {run.path}")
    # config, and the run where one is continued → settings
    resolve: Callable[[Any, RunFolder | None], Any] = lambda config, run: config
    last_step: Callable[[Any], int] = lambda settings: settings.steps  # where a run ends
    check: Callable[[Any, Sequence[str]], None] = lambda config, arguments: None  # raises
    stopped: str = "Stopped at step {:,}."
    unit: str = "step"  # of what a finished run can be given more; empty where it cannot


def run_training(
    command: TrainingCommand, arguments: Sequence[str], name: str, default: Any = None
) -> int:
    """Runs the command of that name and returns its exit code. `default`: the options where
    nothing is said."""
    args = _read(command, arguments, name, default)
    command.check(args.config, arguments)
    require_installed(args.tracking.track)
    resumes = args.resume is not None
    settings = command.resolve(args.config, RunFolder.open(args.resume) if resumes else None)
    last_step = command.last_step(settings)
    if resumes:
        run = command.reopen(settings, args.resume)
        if command.unit and said_finished(run, last_step, command.unit):
            with tracked(args.tracking, [TrackedRun(run.path)]) as trackers:
                _film(command, args, settings, run)  # can be asked for afterwards
                trackers.complete()
            return 0
    else:
        run = command.create(settings, args.out or command.default_folder(settings))
    with tracked(args.tracking, [TrackedRun(run.path)]) as trackers:
        summary = _trained(command, args, settings, run, name)
        if summary is None:
            return INTERRUPTED
        command.show(run, summary)  # first: figures and a film take their time
        if args.figures:
            for path in command.draw(settings, run):
                if path.suffix == ".png":
                    print(f"Figure: {path}{SHOWN.get(path.stem, '')}")
        _film(command, args, settings, run)
        trackers.complete()
    command.say_last(run)
    return 0


def _trained(
    command: TrainingCommand, args: Any, settings: Any, run: RunFolder, name: str
) -> dict[str, Any] | None:
    """The summary of the run, trained to its end under a bar; None where it was told to stop."""
    console, last_step = Console(), command.last_step(settings)
    for line in command.title(args.config, settings):
        console.print(line, soft_wrap=True)
    watching: AbstractContextManager[Any] = (
        bar_or_lines(console, command.bars, last_step)
        if isinstance(command.bars, Bar)
        else bars_or_lines(console, command.bars)
    )
    again = (
        f"Continue with: {name} {resuming(run, args.config.steps)}{tracking_words(args.tracking)}"
    )
    resumes = args.resume is not None
    return until_stopped(
        lambda watch, stop: command.train(settings, run, watch, stop, resumes),
        watching,
        lambda step: f"{command.stopped.format(step)} {again}",
    )


def until_stopped(
    train: Train[Outcome],
    watching: AbstractContextManager[Any],
    stopped: Callable[[int], str],
    message: str = CHECKPOINT_FIRST,
) -> Outcome | None:
    """What `train` returns; None where it was told to stop, after `stopped` has said of the step
    how to go on. `message` answers the signal."""
    try:
        with stop_signals(message) as stop, watching as watch:
            return train(watch, stop)
    except Interrupted as interrupted:
        print(stopped(interrupted.step))
        return None


def said_finished(run: RunFolder, last_step: int, unit: str) -> bool:
    """Whether nothing is left to do up to a step; if so, a sentence says it and how to go on.

    A run that was killed between its last step and its summary is still given one.
    """
    summed_up = run.read_summary().get("steps", 0)
    done = max(summed_up, run.latest_checkpoint() or 0)
    if done < last_step or (done == last_step and summed_up < done):
        return False
    state = "is finished at" if summed_up == done else "has already come to"
    print(f"{run.path} {state} {unit} {done:,}; give --steps M, more than that, to go on.")
    return True


def default_folder(env: str, reward: str, seed: int) -> Path:
    """Where a run goes unless told otherwise; no package, slash or path is in its name."""
    expression = parsed(reward)
    label = expression.folder_label
    if expression.name is not None:  # of a reward in a file, the file's name
        label = Path(expression.name.partition(":")[0]).stem
    return Path("runs") / f"{env.rpartition(':')[2].replace('/', '-')}-{label}-{seed}"


def resuming(run: RunFolder, steps: int) -> str:
    """What to say to a command so that it goes on with a run; --steps only if they are not those of
    its settings."""
    more = "" if steps == run.config["settings"]["steps"] else f" --steps {steps}"
    return f"--resume {shlex.quote(str(run.path))}{more}"


def tracking_words(tracking: Tracking) -> str:
    """What to say besides, so that it is tracked further. (Which project is known already.)"""
    return f" --track {' '.join(tracking.track)}" if tracking.track else ""


def resumed_folder(arguments: Sequence[str]) -> Path | None:
    """The folder after --resume: its settings are the defaults of everything else on the command
    line."""
    for index, argument in enumerate(arguments):
        if argument == "--resume" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
        if argument.startswith("--resume="):
            return Path(argument.removeprefix("--resume="))
    return None


def counted(count: int, noun: str) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{count} {noun}{'s' if count > 1 else ''}"


def saved(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Writes a figure of a run as PNG and SVG."""
    from element_rl.plots import save_figure

    return [save_figure(figure, folder / f"{name}.{kind}") for kind in ("png", "svg")]


def _read(command: TrainingCommand, arguments: Sequence[str], name: str, default: Any) -> Any:
    """The options; those of a run that is continued have its settings as defaults."""
    folder = resumed_folder(arguments)
    if folder is not None:
        config = stored_settings(RunFolder.open(folder), command.kind, command.config)
        default = command.options(config, resume=folder)
    return read_options(command.options, arguments, name, default)


def _film(command: TrainingCommand, args: Any, settings: Any, run: RunFolder) -> None:
    if command.film is not None and args.video:
        command.film(settings, run)
