"""The run folder of `element explore`: a new one, or the one that an earlier run left behind."""

from pathlib import Path

from element_rl.runs import launch
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import metric_columns
from element_rl.training.off_policy.resolving import Resolved, begun_settings, resolved


def create_run(config: ExploreConfig | Resolved, folder: Path) -> RunFolder:
    """A new run folder for the configuration."""
    config, spec, reward = resolved(config)
    columns = metric_columns(reward, config.extrinsic_weight, config.physics, config.agent)
    facts = {"env": config.env, "reward": config.reward, **launch.coverage_facts(spec)}
    return launch.create_run("explore", config, folder, columns, facts)


def reopen_run(config: ExploreConfig | Resolved, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    run = RunFolder.open(folder)
    config, _, reward = resolved(config, run)
    columns = metric_columns(reward, config.extrinsic_weight, config.physics, config.agent)
    return launch.reopen_run("explore", config, folder, columns, begun=begun_settings(run))
