"""From a configuration to its run folder: a new one, or the one a run left behind."""

import dataclasses
from pathlib import Path

from element_rl.envs.names import gymnasium_id
from element_rl.runs.folder import RunFolder
from element_rl.runs.provenance import config_difference
from element_rl.training.off_policy.config import (
    ExploreConfig,
    Resolved,
    config_from_json,
    resolved,
)
from element_rl.training.off_policy.explore import metric_columns


def create_run(config: ExploreConfig | Resolved, folder: Path) -> RunFolder:
    """A new run folder for the configuration."""
    config, spec, reward = resolved(config)
    settings = {
        "env": config.env,
        "reward": config.reward,
        "coverage_bounds": spec.coverage_bounds,
        "coverage_axes": spec.coverage_axes,
        "coverage_unit": spec.coverage_unit,
        "coverage_start": spec.coverage_start,
        "settings": dataclasses.asdict(config),
    }
    return RunFolder.create(folder, settings, metric_columns(reward, config.extrinsic_weight))


def reopen_run(config: ExploreConfig | Resolved, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, _, reward = resolved(config)
    run = RunFolder.open(folder, metric_columns(reward, config.extrinsic_weight))
    # settings that are newer than the run have their defaults
    before = config_from_json(run.config["settings"])
    if before.env == gymnasium_id(config.env):  # older runs kept no package in the name
        before = dataclasses.replace(before, env=config.env)
    if difference := config_difference(dataclasses.asdict(before), dataclasses.asdict(config)):
        raise ValueError(difference)
    return run
