"""`element collect`: a Minari dataset out of a run."""

import contextlib
import shlex
from collections.abc import Iterator

from rich.console import Console

from element_rl.commands.bars import bar_or_lines
from element_rl.commands.options import read_options
from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.datasets.minari_folders import METADATA
from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted, Progress, Watcher
from element_rl.storage.files import read_json_object

DESCRIPTION = """Act with the policies of a run's checkpoints, all seeds side by side, and record a Minari dataset.

Every seed acts for --steps steps, which the checkpoints share evenly. The dataset is for the task: falling ends an episode as the
task has it, also where the run trained without that. Stopped or killed, the same command goes on; the dataset gets its name when
it is complete."""


def main(arguments: list[str]) -> int:
    """Collect, and say what came of it."""
    config = read_options(CollectConfig, arguments, "element collect", description=DESCRIPTION)
    message = "Stopping: the parts that are done are kept; once more to end at once."
    try:
        with stop_signals(message) as stop, watching(config) as watch:
            folder = collect(config, watch, stop)
    except Interrupted as interrupted:
        command = shlex.join(["element", "collect", *arguments])
        print(f"Stopped; {interrupted.step:,} steps per seed are kept. Continue with: {command}")
        return INTERRUPTED
    about = read_json_object(folder / "data" / METADATA)
    print(about["description"])
    print(
        f"{about['total_steps']:,} steps, {about['total_episodes']:,} episodes, "
        f"{about['dataset_size']:,} MB"
    )
    print(f"Dataset: {folder}")
    if config.export is not None:
        print(f"Export: {folder.with_name(f'{folder.name}.{config.export}')}")
    return 0


@contextlib.contextmanager
def watching(config: CollectConfig) -> Iterator[Watcher]:
    """A watcher that draws a bar on a terminal, and prints lines elsewhere."""
    with bar_or_lines(Console(), "steps", config.steps, _status) as watch:
        yield watch


def _status(progress: Progress) -> list[str]:
    task_return = progress.latest.get("extrinsic_return")
    return [] if task_return is None else [f"return {task_return:,.1f}"]
