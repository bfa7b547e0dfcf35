"""The run folder of `element on-policy`: a new one, or the one that an earlier run left behind."""

from pathlib import Path

from element_rl.agents.ppo import METRICS
from element_rl.rewards.on_rollouts import Bonus
from element_rl.runs import launch
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import require_kind
from element_rl.runs.metrics_log import METRIC_COLUMNS
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, resolved
from element_rl.training.on_policy.states import (
    ENCODER,
    encoders_of,
    keep_encoders,
    kept_encoders,
)

__all__ = ["ENCODER", "create_run", "metric_columns", "reopen_run"]

OFF_POLICY = ("temperature", "q_mean")  # columns that only SAC has
COLUMNS = ("furthest", "reward_mean", "value_mean", "gradient_norm")
A3C_COLUMNS = (*COLUMNS, "policy_lag")
PPO_COLUMNS = (*COLUMNS, *METRICS, "value_explained", "learning_rate")


def create_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """A new run folder for the configuration, with what its states are made with."""
    config, spec = resolved(config)
    if config.begin is not None:
        require_kind(RunFolder.open(config.begin), ("on-policy",), "--begin")
    encoders = encoders_of(config, spec)
    # what is wrong with it should be known before anything is written
    bonus = bonus_of(config, spec, encoders.state_dim)
    facts = {"env": config.env, "reward": config.reward, **launch.coverage_facts(spec)}
    if config.agent == "ppo":
        facts["sees_frames"] = spec.sees_frames
    columns = metric_columns(bonus, config)
    run = launch.create_run("on-policy", config, folder, columns, facts)
    keep_encoders(run, encoders, config)
    return run


def reopen_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, spec = resolved(config)
    run = launch.reopen_run("on-policy", config, folder, ())
    bonus = bonus_of(config, spec, kept_encoders(run, config, spec).state_dim)
    return RunFolder.open(folder, metric_columns(bonus, config))


def metric_columns(bonus: Bonus | None, config: OnPolicyConfig) -> tuple[str, ...]:
    """The header of metrics.csv for a run with this reward."""
    names = [name for name in METRIC_COLUMNS if name not in OFF_POLICY]
    own = A3C_COLUMNS if config.agent == "a3c" else PPO_COLUMNS
    of_bonus = bonus.metric_names if bonus is not None else ()
    return tuple(dict.fromkeys([*names, *own, *of_bonus]))
