"""The command `element`. Settings are typed; a mistake in them is answered by one sentence and exit code 2."""

import contextlib
import dataclasses
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from element_rl import __version__

USER_ERROR = 2  # exit code when the user has to change something
EPISODES_DRAWN = 2  # per checkpoint and seed, in the figure of trajectories at the end of a run
INTERRUPTED = 130  # exit code of a run that was told to stop and can be resumed

COMMANDS = {
    "explore": "train agents that explore, without any task reward",
    "evaluate": "act with the policies of a run's checkpoints and measure what they do",
    "plot": "draw the figures of one or more runs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(f"element-rl {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return _complain(f"There is no command {name!r}; choose one of {', '.join(COMMANDS)}.")
    try:
        return {"explore": _explore, "evaluate": _evaluate, "plot": _plot}[name](rest)
    except (ValueError, OSError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _explore(arguments: list[str]) -> int:
    from element_rl.config import ExploreConfig, resolved
    from element_rl.explore import Interrupted, explore, metric_columns
    from element_rl.progress import summary_table, watching
    from element_rl.provenance import config_difference
    from element_rl.runs import RunFolder

    @dataclass(frozen=True)
    class Explore:
        """Train agents that explore, without any task reward (Algorithm 3 of the ELEMENT paper)."""

        config: Annotated[ExploreConfig, tyro.conf.arg(name="")]
        out: Path | None = None  # the run's folder (runs/ENV-REWARD-SEED)
        resume: Path | None = None  # continue the run in this folder; settings are taken from it
        figures: bool = True  # act with the checkpoint policies and draw figures at the end

    folder = _resumed_folder(arguments)
    default: Explore | None = None
    if folder is not None:
        stored = RunFolder.open(folder).config
        default = Explore(_config_from_json(ExploreConfig, stored["settings"]), resume=folder)
    if default is None:
        args = tyro.cli(Explore, args=arguments, prog="element explore")
    else:
        args = tyro.cli(Explore, args=arguments, prog="element explore", default=default)
    config, spec, reward = resolved(args.config)
    if args.resume is not None:
        run = RunFolder.open(args.resume, metric_columns(reward))
        difference = config_difference(run.config["settings"], dataclasses.asdict(config))
        if difference:
            raise ValueError(difference)
    else:
        label = Path(config.reward.partition(":")[0]).stem  # of a reward in a file, the file's name
        out = args.out or Path("runs") / f"{config.env}-{label}-{config.seed}"
        settings = {
            "env": config.env,
            "reward": config.reward,
            "coverage_bounds": spec.coverage_bounds,
            "coverage_axes": spec.coverage_axes,
            "settings": dataclasses.asdict(config),
        }
        run = RunFolder.create(out, settings, metric_columns(reward))
    try:
        with _stop_signals() as stop, watching(config) as watch:
            summary = explore(config, run, watch, stop, resume=args.resume is not None)
    except Interrupted as interrupted:
        print(f"Stopped at step {interrupted.step:,}. Continue with: element explore {config.env} --resume {run.path}")
        return INTERRUPTED
    if args.figures:
        _draw(run, summary)
    summary_table(summary)
    print(f"Run: {run.path}")
    return 0


def _draw(run: Any, summary: dict[str, Any]) -> None:
    from element_rl.evaluate import evaluate
    from element_rl.plots import plot_run

    if summary["reward"] != "random":
        evaluate(run, episodes=EPISODES_DRAWN)
    for path in plot_run([run], say=lambda text: None):
        if path.suffix == ".png":
            print(f"Figure: {path}")


def _evaluate(arguments: list[str]) -> int:
    from element_rl.evaluate import evaluate
    from element_rl.progress import evaluation_table
    from element_rl.runs import RunFolder

    @dataclass(frozen=True)
    class Evaluate:
        """Act with the policies of a run's checkpoints; trajectories, returns and entropies go to its evaluation folder."""

        run: tyro.conf.Positional[Path]  # a folder that `element explore` wrote
        episodes: int = 5  # per checkpoint and seed
        deterministic: bool = False  # act with the mean of the policy instead of sampling from it
        checkpoint: int | None = None  # only this one (steps); all by default
        video: bool = False  # also write an mp4 of one episode of the last policy evaluated
        out: Path | None = None  # where to write instead of RUN/evaluation

    args = tyro.cli(Evaluate, args=arguments, prog="element evaluate")
    run = RunFolder.open(args.run)
    result = evaluate(run, args.episodes, args.deterministic, args.checkpoint, args.video, args.out)
    evaluation_table(result)
    return 0


def _plot(arguments: list[str]) -> int:
    from element_rl.plots import plot_run
    from element_rl.runs import RunFolder

    @dataclass(frozen=True)
    class Plot:
        """Draw coverage, density, entropy, reward terms and trajectories of runs; several runs share the curves."""

        runs: tyro.conf.Positional[tuple[Path, ...]]  # folders that `element explore` wrote
        out: Path | None = None  # where the figures go (the first run's figures folder)

    args = tyro.cli(Plot, args=arguments, prog="element plot")
    if not args.runs:
        raise ValueError("Name at least one run folder to plot.")
    for path in plot_run([RunFolder.open(run) for run in args.runs], args.out):
        print(path)
    return 0


def _resumed_folder(arguments: list[str]) -> Path | None:
    """The folder after --resume: its settings are the defaults of everything else on the command line."""
    for index, argument in enumerate(arguments):
        if argument == "--resume" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
        if argument.startswith("--resume="):
            return Path(argument.removeprefix("--resume="))
    return None


def _config_from_json(kind: type, values: dict[str, Any]) -> Any:
    """A dataclass from what `dataclasses.asdict` and JSON made of it."""
    from element_rl.agents.sac import SACConfig

    def with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}

    return kind(**(with_tuples(values) | {"sac": SACConfig(**with_tuples(values["sac"]))}))


@contextlib.contextmanager
def _stop_signals() -> Iterator[Any]:
    """Within this, Ctrl-C and SIGTERM ask for a stop at the next chunk; a second one ends the process at once."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        print("\nStopping: the checkpoint is written first; once more to end at once.", file=sys.stderr)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _overview() -> str:
    lines = [f"  element {name:<10} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["Exploration without reward.", "", *lines, "", "Each of them explains itself: element explore --help"]
    )


def _complain(sentence: str) -> int:
    print(f"element: {sentence}", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
