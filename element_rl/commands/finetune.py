"""`element finetune`: a policy that explored becomes a head start on its task."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from element_rl.agents.a3c import A3CConfig
from element_rl.agents.dqn import DQNConfig
from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.commands.bars import Bar, bars_or_lines
from element_rl.commands.finetuned_steps import finetuned_steps
from element_rl.commands.next_steps import say_steps
from element_rl.commands.options import read_options
from element_rl.commands.summaries import mean_and_range
from element_rl.commands.training import counted, saved, tracking_words, until_stopped
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.stopping import INTERRUPTED
from element_rl.runs.watching import Progress
from element_rl.storage.files import read_json_object
from element_rl.storage.settings import settings_from_json
from element_rl.tracking.processes import TrackedRun, finetuned_runs, tracked
from element_rl.tracking.settings import NOT_TRACKED, Tracking, require_installed
from element_rl.training.finetune.comparison import number_text
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.finetune.tasks import task_of
from element_rl.training.finetune.training import (
    finetune,
    steps_finished,
    stored_transfer,
)

STEPS = Bar("steps", ("return {extrinsic_return:,.2f}",))
BARS = {"choosing": STEPS._replace(unit="episodes"), "transferred": STEPS, "from scratch": STEPS}
STAGES = {"scratch": "from scratch"}  # stage of `finetune` → name of its bar, where they differ
NO_RUN = Path("RUN")  # stands where none was named, as the help text shows it
LEARNERS: dict[str, type[Any]] = {
    "sac": SACConfig,
    "td3": TD3Config,
    "dqn": DQNConfig,
    "a3c": A3CConfig,
}
AS_IN_THE_RUN = dict.fromkeys(LEARNERS.values(), "as in the run")


@dataclass(frozen=True)
class FinetuneCommand:
    """Transfer to each agent's task the policy of its best checkpoint and train it there, beside
    agents from scratch.

    Runs of element explore go on with their agent, those of element on-policy and element mario
    with A3C. The same command, given again, goes on where it stopped.
    """

    config: Annotated[FinetuneConfig, tyro.conf.arg(name="")]
    # Folder where everything goes. (default: runs/RUN-finetuned)
    out: Path | None = None
    # Folder of a fine-tuning to continue; settings are taken from it. (default: a new one begins)
    resume: Path | None = None
    # The learner of robots, soft actor-critic.
    sac: SACConfig = field(default_factory=SACConfig)
    # The learner of robots that explored with TD3.
    td3: TD3Config = field(default_factory=TD3Config)
    # The learner of runs of DQN, whose actions are a choice.
    dqn: DQNConfig = field(default_factory=DQNConfig)
    # The learner on screens, asynchronous advantage actor-critic.
    a3c: A3CConfig = field(default_factory=A3CConfig)
    # Trackers that the run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    command = _parsed(arguments)
    config = command.config
    require_installed(command.tracking.track)
    folder = command.resume or command.out or _default_folder(config)
    task = task_of(config).settings
    runs = finetuned_runs(folder) if config.compare else [TrackedRun(folder)]
    resumes = command.resume is not None or stored_transfer(folder) is not None
    if resumes and (done := steps_finished(config, folder)) >= task.steps:
        print(
            f"{folder} is finished at step {done:,}; to train for longer, choose another --out and "
            "--steps."
        )
        with tracked(command.tracking, runs) as trackers:
            _show(config, folder, read_json_object(folder / "summary.json"), fresh=False)
            trackers.complete()
        return 0
    console = Console()
    scratch = ", then as many from scratch" if config.compare else ""
    console.print(
        f"[bold]{task.env}[/bold], policies of {config.run}, {task.steps:,} steps × "
        f"{counted(task.seeds, 'seed')}{scratch}",
        soft_wrap=True,
    )

    def train(watch: Any, stop: Callable[[], bool]) -> dict[str, Any]:
        def tell(stage: str, progress: Progress) -> None:
            watch(STAGES.get(stage, stage), progress)

        return finetune(config, folder, tell, stop, resume=resumes)

    def stopped(step: int) -> str:
        if stored_transfer(folder) is None:
            return "Stopped while choosing; nothing was written. Begin again with the same command."
        again = f"--resume {folder}{tracking_words(command.tracking)}"
        return f"Stopped at step {step:,}. Continue with: element finetune {again}"

    with tracked(command.tracking, runs) as trackers:
        summary = until_stopped(train, bars_or_lines(console, BARS), stopped)
        if summary is None:
            return INTERRUPTED
        _show(config, folder, summary)
        trackers.complete()
    return 0


def _parsed(arguments: list[str]) -> FinetuneCommand:
    """Twice: only when it is known which run, its settings can be the defaults of the learner's."""
    blank = FinetuneCommand(FinetuneConfig(NO_RUN))
    first = _read(arguments, blank)
    config = first.config
    if first.resume is not None:
        stored = stored_transfer(first.resume)
        if stored is None:
            raise RunError(
                f"There is no fine-tuning in {first.resume}: give the --out folder of an earlier "
                "one."
            )
        config = settings_from_json(FinetuneConfig, stored["config"])
    elif config.run == NO_RUN:
        raise ValueError("Name the run whose policies are to be transferred: element finetune RUN.")
    settings = RunFolder.open(config.run).config.get("settings")
    of_run = {name: _learner_of(settings, name, kind) for name, kind in LEARNERS.items()}
    defaults: dict[str, Any] = {
        name: getattr(config, name) or learner for name, learner in of_run.items()
    }
    default = dataclasses.replace(first, config=config, **defaults)
    command = _read(arguments, default)
    asked = {name: getattr(command, name) for name in LEARNERS}
    given: dict[str, Any] = {
        name: None if asked[name] == of_run[name] else asked[name] for name in LEARNERS
    }
    return dataclasses.replace(command, config=dataclasses.replace(command.config, **given))


def _read(arguments: list[str], default: FinetuneCommand) -> FinetuneCommand:
    return read_options(
        FinetuneCommand, arguments, "element finetune", default, defaults_of=AS_IN_THE_RUN
    )


def _learner_of(settings: Any, name: str, kind: type[Any]) -> Any:
    """The run's settings of its learner; those of a folder that is no such run are complained of
    later."""
    stored = settings.get(name) if isinstance(settings, dict) else None
    return settings_from_json(kind, stored) if isinstance(stored, dict) else kind()


def _default_folder(config: FinetuneConfig) -> Path:
    return Path("runs") / f"{config.run.resolve().name}-finetuned"


def _show(
    config: FinetuneConfig, folder: Path, summary: dict[str, Any], fresh: bool = True
) -> None:
    """What came of it; the figure of a run that is not `fresh` is drawn only if it is not there."""
    from element_rl.plots.transfer import transfer_curves

    if config.compare:
        Console().print(_comparison_table(summary))
        print(f"Per seed: {folder / 'table.md'}")
    else:
        run = RunFolder.open(folder)
        if fresh or not (run.figures_path / "transfer.png").exists():
            figure = transfer_curves({"transferred": run}, summary["zero_shot_return"])
            saved(figure, run.figures_path, "transfer")
        print(f"Zero-shot return {_numbers(summary['zero_shot_return'])}")
        print(f"Final return {_numbers(summary['extrinsic_return'])}")
    print(f"Figure: {folder / 'figures' / 'transfer.png'}")
    print(f"Fine-tuning: {folder}")
    say_steps(finetuned_steps(config, folder, summary))


def _comparison_table(summary: dict[str, Any]) -> Table:
    """Means over the seeds, with the range."""
    seeds = counted(len(summary["seeds"]), "seed")
    table = Table("", title=f"{summary['env']}, {summary['steps']:,} steps × {seeds}")
    for name in ("transferred", "from scratch"):
        table.add_column(name, justify="right")
    table.add_row("zero-shot return", _numbers(summary["zero_shot_return"]), "–")
    reached = _numbers([summary["return_to_reach"]])
    labels = {
        "final_return": "final return",
        "area_under_curve": "mean return over training",
        "steps_to_reach": f"steps to a return of {reached}",
    }
    for name, label in labels.items():
        table.add_row(label, *(_numbers(summary[run][name]) for run in ("transferred", "scratch")))
    return table


def _numbers(values: Sequence[float | int | None]) -> str:
    return mean_and_range(values, number_text)
