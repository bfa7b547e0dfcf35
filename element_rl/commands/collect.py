"""`element collect`: a Minari dataset out of a run."""

import shlex

from rich.console import Console

from element_rl.commands.bars import Bar, bar_or_lines
from element_rl.commands.options import read_options
from element_rl.commands.training import until_stopped
from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.datasets.minari_folders import METADATA
from element_rl.runs.stopping import INTERRUPTED
from element_rl.storage.files import read_json_object

BAR = Bar("steps", ("return {extrinsic_return:,.1f}",))
DESCRIPTION = """Act with the policies of a run's checkpoints, all seeds side by side, and record a
Minari dataset.

Every seed acts for --steps steps, which the checkpoints share evenly. The dataset is for the task:
falling ends an episode as the task has it, also where the run trained without that. Stopped or
killed, the same command goes on; the dataset gets its name when it is complete."""


def main(arguments: list[str]) -> int:
    """Collect, and say what came of it."""
    config = read_options(CollectConfig, arguments, "element collect", description=DESCRIPTION)
    again = shlex.join(["element", "collect", *arguments])
    folder = until_stopped(
        lambda watch, stop: collect(config, watch, stop),
        bar_or_lines(Console(), BAR, config.steps),
        lambda step: f"Stopped; {step:,} steps per seed are kept. Continue with: {again}",
        message="Stopping: the parts that are done are kept; once more to end at once.",
    )
    if folder is None:
        return INTERRUPTED
    about = read_json_object(folder / "data" / METADATA)
    print(about["description"])
    print(
        f"{about['total_steps']:,} steps, {about['total_episodes']:,} episodes, "
        f"{about['dataset_size']:,} MB"
    )
    holds = about["element_rl"]
    if "coverage" in holds:
        print(f"{holds['coverage']:,} cells of the map are covered.")
    if "upright_share" in holds:
        print(f"The robot is upright after {holds['upright_share']:.1%} of the steps.")
    print(f"Dataset: {folder}")
    if config.export is not None:
        print(f"Export: {folder.with_name(f'{folder.name}.{config.export}')}")
    return 0
