"""`element study`: from a name and a scale to a finished report."""

import contextlib
import dataclasses
import importlib
import inspect
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress, TextColumn

from element_rl.commands.bars import ONE_LINE, draws_bars, row_columns
from element_rl.commands.options import read_options
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.studies.engine.environments import describe_environment, shows_frames
from element_rl.studies.engine.grid import (
    REPORT_SEEDS,
    Cell,
    Scale,
    Study,
    cell_folder,
    finished,
    is_done,
    record,
    results_folder,
    with_needs,
)
from element_rl.studies.engine.jobs import is_preparation
from element_rl.studies.engine.results import Results
from element_rl.studies.engine.runner import (
    Executor,
    GridProgress,
    Processes,
    Watcher,
    conclude,
    run_cells,
)
from element_rl.studies.engine.submission import (
    check_name,
    score_of,
    submission_of,
    write_submission,
)
from element_rl.studies.engine.table_text import show_tables
from element_rl.studies.engine.tasks import with_learning
from element_rl.tracking.settings import NOT_TRACKED, Tracking, require_installed
from element_rl.training.offline.algorithms import AlgorithmName
from element_rl.worlds.making import Physics

SOME_FAILED = 1  # exit code when a cell failed and the others are done
MODULES = (  # of `studies`, by the names of their studies
    *("coverage", "episodic-entropy", "beta", "trajectories"),
    *("additivity", "transfer", "offline"),
)
SIZES = ("samples", "task_steps", "updates")  # of a scale, beside seeds and steps
# option → the only study that has it
LEARNERS = {
    **dict.fromkeys(("conservative_weight", "algorithm"), "offline"),
    **dict.fromkeys(("anchor", "anchor_halflife"), "transfer"),
}
MAZE = "maze"  # no grid of runs: it takes less than a minute
STOPPING = "Stopping: every running cell writes a checkpoint first; once more to end at once."
LINE_SECONDS = 30.0  # between two lines of progress where there is no terminal


@dataclass(frozen=True)
class StudyCommand:
    """Run an experiment of the paper and write its report. The same command, given again, goes on
    where it stopped."""

    # Which study to run; the list is above.
    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="STUDY")]]
    # How large it is: smoke takes a minute on a laptop, small an hour on a GPU, paper is the
    # paper's budget.
    scale: Literal["smoke", "small", "paper"] = "small"
    # Folder of the runs, shared by all studies of a scale. (default: runs/studies-SCALE)
    out: Path | None = None
    # Environments to run, also ones that show images, such as mario or Rooms-v0.
    # (default: the scale's)
    envs: tuple[str, ...] = ()
    # Methods to run, named as in the tables; coverage and episodic-entropy also take any reward, as
    # --reward of explore does: apt, FILE.py:FUNCTION. (default: all of the tables)
    methods: tuple[str, ...] = ()
    # How many agents of each method, each with a seed of its own. (default: the scale's)
    seeds: int | None = None
    # Take the seeds that are kept for reporting, from 1,000 on, instead of those for development,
    # from 0 on; the results stand in a folder of their own, STUDY-report.
    report: bool = False
    # Environment steps of each agent while it explores. (default: the scale's)
    steps: int | None = None
    # Samples taken with each checkpoint's policy in the study trajectories, and of each seed's
    # dataset in offline. (default: the scale's)
    samples: int | None = None
    # Environment steps of each agent that learns a task online, in transfer and offline.
    # (default: the scale's)
    task_steps: int | None = None
    # Updates of each agent that learns from a dataset, in offline. (default: the scale's)
    updates: int | None = None
    # Where the environments of explorers are stepped: on the host, or by the thousand on the
    # device, with MuJoCo Warp (warp) or as programs of JAX (jax); docs/worlds.md.
    physics: Physics = "host"
    # Environments that each explorer acts in. (default: 1; with --physics warp or jax 64)
    envs_per_agent: int | None = None
    # Algorithm that learns from the datasets in offline. (default: cql)
    algorithm: AlgorithmName | None = None
    # Weight of CQL's conservative term in offline: how much it keeps to its data.
    # (default: 5; on screens 1)
    conservative_weight: float | None = None
    # Cost to the actor of leaving the transferred policy, in transfer. (default: 0, nothing)
    anchor: float | None = None
    # Updates in which the cost of --anchor halves, in transfer. (default: it stays)
    anchor_halflife: float | None = None
    # Cells of the grid that run at the same time on this machine.
    together: int = 1
    # Run only every N-th cell from the I-th (1 to N), given as I/N, for job schedulers; no report.
    # (default: all cells)
    slice: str | None = None
    # Run nothing and report what there is, every cell at the step that all of its environment have
    # reached.
    so_far: bool = False
    # Write the leaderboard's file of this study, under this name, of you or of your method; with
    # --report and coverage or episodic-entropy. (default: none is written)
    submit: str | None = None
    # Address of a Ray cluster that runs the cells; auto is the one that this machine belongs to.
    # (default: this machine runs them)
    ray: str | None = None
    # Processors of a cell on the cluster. (default: one per environment, and one)
    cell_cpus: float | None = None
    # GPUs of a cell on the cluster; 0.25 puts four cells on one. (default: 1 where it has any)
    cell_gpus: float | None = None
    # Trackers that every cell's run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    command = read_options(StudyCommand, arguments, "element study", description=description())
    if command.name == MAZE:
        return _maze(command, arguments)
    study = load_study(command.name)
    scale = chosen_scale(study, command)
    cells = chosen_cells(study, scale, command.methods)
    out = _out(command)
    written = "element study " + shlex.join(arguments)

    _check_submission(study, command)

    def write_report(unfinished: bool = False) -> None:
        results = conclude(study, command.scale, scale, cells, out, written, unfinished)
        show(results, results_folder(out, study, cells))
        if command.submit is not None:
            _submit(study, command, cells, written)

    if command.so_far:
        if command.slice is not None or command.ray is not None:
            raise ValueError(
                "--so-far runs nothing and reports on all cells: leave out --slice and --ray."
            )
        write_report(unfinished=True)
        return 0
    require_installed(command.tracking.track)
    mine = _runnable(sliced(cells, command.slice), out) if command.slice is not None else cells
    executor = _executor(command)  # before the signals below: Ray has a handler of its own
    title = f"{study.name}, {command.scale}: {len(mine)} cells"
    with stop_signals(STOPPING) as stop, watching(title, mine) as watch:
        complete = run_cells(mine, out, executor, watch, stop, command.tracking)
    if not complete:
        print(f"Stopped. Continue with: {written}")
        return INTERRUPTED
    failed = [entry for entry in (record(out, cell) for cell in mine) if entry.state != "done"]
    for entry in failed:
        print(f"Failed: {entry.name}: {entry.reason or 'see its cell.log'}", file=sys.stderr)
    if command.slice is not None:
        _say_slice(command.slice, len(sliced(cells, command.slice)), len(mine), len(failed))
    elif len(failed) < len(cells):
        write_report()
    return SOME_FAILED if failed else 0


def _check_submission(study: Study, command: StudyCommand) -> None:
    """What can be told before anything runs."""
    if command.submit is None:
        return
    check_name(command.submit)
    score_of(study)
    if command.so_far or command.slice is not None or not command.report:
        raise ValueError(
            "--submit is of a whole study on seeds for reporting: give --report, and leave out "
            "--so-far and --slice."
        )


def _submit(study: Study, command: StudyCommand, cells: Sequence[Cell], written: str) -> None:
    """Write the leaderboard's file, of the cells that are done."""
    assert command.submit is not None
    out = _out(command)
    done = [entry for cell in cells if (entry := finished(out, cell)) is not None]
    measured = [entry for entry in done if not is_preparation(entry.cell.config)]
    submission = submission_of(study, command.scale, command.submit, written, measured)
    path = write_submission(results_folder(out, study, cells), submission)
    print(f"For the leaderboard: {path} (docs/leaderboard.md says where it goes)")


def _runnable(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """The cells of a slice that need none of another slice that is not done."""
    return [
        cell
        for cell in cells
        if all(need in cells or is_done(cell_folder(out, need)) for need in cell.needs)
    ]


def _say_slice(text: str, cells: int, ran: int, failed: int) -> None:
    """How many of a slice's cells are done, and what comes next."""
    print(f"{ran - failed} of {ran} cells of slice {text} are done.")
    if waiting := cells - ran:
        print(
            f"{waiting} more need cells of other slices: give the command again when those are "
            "done."
        )
    print(
        "The report is made by the same command without --slice, which runs nothing that is done."
    )


def description() -> str:
    """What `element study --help` begins with: a line for each study."""
    titles = {name: load_study(name).title for name in MODULES}
    titles[MAZE] = "How are rewards assigned? Tabular agents in a small maze"
    width = max(map(len, titles))
    lines = [f"  {name:<{width}}  {title}" for name, title in titles.items()]
    return "\n".join([inspect.cleandoc(str(StudyCommand.__doc__)), "", "The studies:", *lines])


def _maze(command: StudyCommand, arguments: Sequence[str]) -> int:
    from element_rl.commands.maze import SMOKE, run_maze_study
    from element_rl.studies.maze import MazeConfig

    config = SMOKE if command.scale == "smoke" else MazeConfig()
    config = dataclasses.replace(
        config,
        seeds=command.seeds or config.seeds,
        steps=command.steps or config.steps,
        first_seed=REPORT_SEEDS if command.report else 0,
    )
    folder = _out(command) / (f"{MAZE}-report" if command.report else MAZE)
    run_maze_study(config, folder, "element study " + shlex.join(arguments))
    return 0


def _out(command: StudyCommand) -> Path:
    return command.out or Path("runs") / f"studies-{command.scale}"


def load_study(name: str) -> Study:
    """A study by its name."""
    if name not in MODULES:
        raise ValueError(
            f"There is no study {name!r}; choose one of {', '.join([*MODULES, MAZE])}."
        )
    study = importlib.import_module(f"element_rl.studies.{name.replace('-', '_')}").STUDY
    assert isinstance(study, Study)
    return study


def chosen_scale(study: Study, command: StudyCommand) -> Scale:
    """The study's scale with what the user asked for instead."""
    scale = study.scales[command.scale]
    for name in ("seeds", "steps", "together", "envs_per_agent", *SIZES):
        value = getattr(command, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
    if not command.report and (command.seeds or 0) > REPORT_SEEDS:
        raise ValueError(
            f"--seeds is {command.seeds}, but seeds from {REPORT_SEEDS:,} on are for reporting: "
            "take fewer, or --report."
        )
    envs = tuple(dict.fromkeys(_full_name(env, study, scale) for env in command.envs)) or scale.envs
    screens = None if scale.screens is None else _resized(scale.screens, envs, command)
    scale = dataclasses.replace(_placed(_resized(scale, envs, command), command), screens=screens)
    learning = {name: value for name in LEARNERS if (value := getattr(command, name)) is not None}
    for name in learning:
        if LEARNERS[name] != study.name:
            raise ValueError(
                f"--{name.replace('_', '-')} is of the study {LEARNERS[name]}, not of {study.name}."
            )
    return with_learning(scale, **learning) if learning else scale


def _resized(scale: Scale, envs: tuple[str, ...], command: StudyCommand) -> Scale:
    """The scale for these environments, as large as the user asked for; one it does not know gets
    its most steps."""
    largest = max(scale.steps.values())
    steps = {env: command.steps or scale.steps.get(env, largest) for env in envs}
    sizes = {name: getattr(command, name) or getattr(scale, name) for name in SIZES}
    return dataclasses.replace(
        scale,
        envs=envs,
        seeds=command.seeds or scale.seeds,
        steps=steps,
        first_seed=REPORT_SEEDS if command.report else 0,
        **sizes,
    )


def _placed(scale: Scale, command: StudyCommand) -> Scale:
    """The scale with explorers in as many environments as was asked for, stepped there."""
    asked = {"physics": command.physics, "envs_per_agent": command.envs_per_agent}
    options = {name: value for name, value in asked.items() if value not in (None, "host")}
    return dataclasses.replace(scale, options={**scale.options, **options})


def _full_name(env: str, study: Study, scale: Scale) -> str:
    """An environment's name with its version, and with the module that registers it, if it was
    given."""
    if scale.screens is None and shows_frames(env):
        raise ValueError(
            f"The study {study.name} is of robots, and {env} shows images: choose a robot, or the "
            "study coverage, episodic-entropy, trajectories, offline or transfer."
        )
    spec = describe_environment(env)
    if spec.chooses != spec.sees_frames:
        actions = f"{spec.actions} choices" if spec.chooses else "numbers within bounds"
        raise ValueError(
            f"Studies are of robots, and of images with choices, and {spec.name} has "
            f"{'images' if spec.sees_frames else 'vectors'} with {actions}: explore it with "
            f"`element explore {env}`."
        )
    if study.needs_map and not spec.has_map:
        raise ValueError(
            f"The study {study.name} asks where agents have been, and {spec.name} has no coverage "
            "map; choose a robot, PointMaze, Rooms-v0, mario, or the study episodic-entropy."
        )
    return spec.name


def chosen_cells(study: Study, scale: Scale, methods: Sequence[str]) -> list[Cell]:
    """The grid, or those of its methods that were named; with all that these need."""
    cells = list(study.cells(scale))
    offered = list(dict.fromkeys(cell.method for cell in cells))
    others = [method for method in methods if method not in offered]
    for name in others:
        cells += _cells_of_reward(study, scale, name, f"it has {', '.join(offered)}")
    return with_needs(
        [cell for cell in cells if not methods or cell.method in (*methods, *study.references)]
    )


def _cells_of_reward(study: Study, scale: Scale, name: str, offered: str) -> list[Cell]:
    """The cells of a reward that is none of the study's methods."""
    unknown = f"The study {study.name} has no method {name!r}; {offered}"
    if study.reward_cell is None:
        raise ValueError(f"{unknown}.")
    try:
        return [study.reward_cell(env, name, scale) for env in scale.envs]
    except ValueError as error:
        raise ValueError(f"{unknown}. {error}") from error


def sliced(cells: Sequence[Cell], text: str | None) -> list[Cell]:
    """Every N-th cell from the I-th, for "I/N"."""
    if text is None:
        return list(cells)
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"--slice takes I/N with 1 ≤ I ≤ N, such as 2/4; got {text!r}.")
    return list(cells[int(match[1]) - 1 :: int(match[2])])


def show(results: Results, folder: Path) -> None:
    """Findings and tables, and where everything is."""
    show_tables(results)
    for sentence in results.findings:
        print(sentence)
    print(f"\nReport: {folder / 'report.html'}")


def _executor(command: StudyCommand) -> Executor:
    if command.ray is None:
        return Processes(command.together)
    from element_rl.studies.engine.cluster import RayTasks

    return RayTasks(command.ray, command.cell_cpus, command.cell_gpus)


@contextlib.contextmanager
def watching(title: str, cells: Sequence[Cell]) -> Iterator[Watcher]:
    """A bar over all steps of the grid on a terminal; elsewhere a line when something changed, or
    now and then."""
    print(title, flush=True)
    console = Console()
    if not draws_bars(console):
        yield _line_printer()
        return
    share = TextColumn("{task.percentage:3.0f} %", table_column=ONE_LINE)
    # Cells report seldom, and some are much faster than others: speeds of the last hour are
    # averaged.
    with Progress(
        *row_columns(console, share), console=console, speed_estimate_period=3600.0
    ) as bar:
        total = sum(cell.steps * cell.seeds for cell in cells)
        task = bar.add_task("study", total=total, unit="", parts=("starting",))
        yield lambda now: bar.update(task, completed=now.steps_done, parts=tuple(_cells_text(now)))


def _line_printer() -> Watcher:
    began, printed = time.monotonic(), 0.0
    before: int | None = None  # steps done when this process began: they tell nothing of its speed
    counts: tuple[object, ...] = ()  # as last printed

    def watch(now: GridProgress) -> None:
        nonlocal before, counts, printed
        before = now.steps_done if before is None else before
        changed = counts != (now.done, now.failed, now.running)
        if not changed and time.monotonic() - printed < LINE_SECONDS:
            return
        counts, printed = (now.done, now.failed, now.running), time.monotonic()
        rate = (now.steps_done - before) / max(time.monotonic() - began, 1e-9)
        left = f", {(now.steps - now.steps_done) / rate / 60:.0f} min left" if rate > 0 else ""
        share = now.steps_done / max(now.steps, 1)
        print(f"{share:4.0%}  {'; '.join(_cells_text(now))}{left}", flush=True)

    return watch


def _cells_text(now: GridProgress) -> list[str]:
    failed = f", {now.failed} failed" if now.failed else ""
    running = [f"running {', '.join(now.running)}"] if now.running else []
    return [f"{now.done} of {now.cells} cells done{failed}", *running]
