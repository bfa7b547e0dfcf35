"""The run folder of `element on-policy`: a new one, or the one that an earlier run left behind."""

from pathlib import Path

from element_rl.encoders.frozen import load_encoder, save_encoder
from element_rl.rewards.on_rollouts import Bonus
from element_rl.runs import launch
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import require_kind
from element_rl.runs.metrics_log import METRIC_COLUMNS
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, encoder_of, resolved

ENCODER = "encoder"  # folder in a run: the encoder it uses, trained or not
OFF_POLICY = ("temperature", "q_mean")  # columns that only SAC has
COLUMNS = ("furthest", "reward_mean", "value_mean", "gradient_norm", "policy_lag")


def create_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """A new run folder for the configuration, with its encoder."""
    config, spec = resolved(config)
    if config.begin is not None:
        require_kind(RunFolder.open(config.begin), ("on-policy",), "--begin")
    encoder = encoder_of(config, spec)
    # what is wrong with it should be known before anything is written
    bonus = bonus_of(config, spec, encoder)
    facts = {"env": config.env, "reward": config.reward, **launch.coverage_facts(spec)}
    run = launch.create_run("on-policy", config, folder, metric_columns(bonus), facts)
    origin = {"trained": config.encoder is not None, "from": config.encoder}
    save_encoder(run.path / ENCODER, encoder, origin)
    return run


def reopen_run(config: OnPolicyConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, spec = resolved(config)
    may_differ = (*launch.MAY_DIFFER, "env_timeout")
    run = launch.reopen_run("on-policy", config, folder, (), may_differ)
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
