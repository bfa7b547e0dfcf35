"""From a configuration to its run folder: a new one, or the one a run left behind."""

import dataclasses
from pathlib import Path

from element_rl.encoders.frozen import load_encoder, save_encoder
from element_rl.envs.names import gymnasium_id
from element_rl.rewards.on_rollouts import Bonus
from element_rl.runs.folder import METRIC_COLUMNS, RunFolder
from element_rl.runs.provenance import config_difference
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, encoder_of, resolved

ENCODER = "encoder"  # folder in a run: the encoder it uses, trained or not
OFF_POLICY = ("temperature", "q_mean")  # columns that only SAC has
COLUMNS = ("furthest", "reward_mean", "value_mean", "gradient_norm", "policy_lag")


def create_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """A new run folder for the configuration, with its encoder."""
    config, spec = resolved(config)
    encoder = encoder_of(config, spec)
    # what is wrong with it should be known before anything is written
    bonus = bonus_of(config, spec, encoder)
    settings = {
        "env": config.env,
        "reward": config.reward,
        "on_policy": True,
        "coverage_bounds": spec.coverage_bounds,
        "coverage_axes": spec.coverage_axes,
        "coverage_cells": spec.coverage_cells,
        "coverage_unit": spec.coverage_unit,
        "coverage_start": spec.coverage_start,
        "settings": dataclasses.asdict(config),
    }
    run = RunFolder.create(folder, settings, metric_columns(bonus))
    save_encoder(
        run.path / ENCODER, encoder, {"trained": config.encoder is not None, "from": config.encoder}
    )
    return run


def reopen_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, spec = resolved(config)
    run = RunFolder.open(folder)
    if not run.config.get("on_policy"):
        raise ValueError(
            f"{folder} is no on-policy run: continue it with the command that began it."
        )
    before = dict(run.config["settings"])
    if before["env"] == gymnasium_id(config.env):  # older runs kept no package in the name
        before["env"] = config.env
    if difference := config_difference(before, dataclasses.asdict(config)):
        raise ValueError(difference)
    if not (run.path / ENCODER).exists():  # killed in the moment before it was written
        save_encoder(run.path / ENCODER, encoder_of(config, spec))
    bonus = bonus_of(config, spec, load_encoder(run.path / ENCODER))
    return RunFolder.open(folder, metric_columns(bonus))


def metric_columns(bonus: Bonus | None) -> tuple[str, ...]:
    """The header of metrics.csv for a run with this reward."""
    names = [name for name in METRIC_COLUMNS if name not in OFF_POLICY]
    return tuple(
        dict.fromkeys([*names, *COLUMNS, *(bonus.metric_names if bonus is not None else ())])
    )
