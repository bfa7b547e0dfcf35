"""From a configuration to its run folder: a new one, or the one a run left behind."""

import dataclasses
from pathlib import Path

from element_rl.config import ExploreConfig, config_from_json, resolved
from element_rl.explore import metric_columns
from element_rl.provenance import config_difference
from element_rl.runs import RunFolder


def create_run(config: ExploreConfig, folder: Path) -> RunFolder:
    """A new run folder for the configuration."""
    config, spec, reward = resolved(config)
    settings = {
        "env": config.env,
        "reward": config.reward,
        "coverage_bounds": spec.coverage_bounds,
        "coverage_axes": spec.coverage_axes,
        "settings": dataclasses.asdict(config),
    }
    return RunFolder.create(folder, settings, metric_columns(reward, config.extrinsic_weight))


def reopen_run(config: ExploreConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, _, reward = resolved(config)
    run = RunFolder.open(folder, metric_columns(reward, config.extrinsic_weight))
    begun = config_from_json(run.config["settings"])  # with the settings that are newer than it
    if difference := config_difference(dataclasses.asdict(begun), dataclasses.asdict(config)):
        raise ValueError(difference)
    return run
