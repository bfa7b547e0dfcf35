"""What to do with an explorer about the task, from what its run has measured: whether the task ever
paid more, or less, than it always does.

    learned from the task alone, and every episode   explore beside the task
    paid the same
    learned without the task, and its best episode   learn the task from there
    paid more than any of a random policy
"""

import shlex
from typing import Any

import numpy as np

from element_rl.envs.robots import can_fall
from element_rl.rewards.expression import names_in
from element_rl.runs.folder import RunFolder


def explored_steps(run: RunFolder, element: str) -> dict[str, str]:
    """Commands → why."""
    settings = run.config["settings"]
    if settings["reward"] == "random":
        return {}
    rewards = set(names_in(settings["reward"]))
    if rewards == {"extrinsic"}:
        return _beside_the_task(run, element)
    if "extrinsic" in rewards or settings.get("extrinsic_weight"):
        return {}
    return _from_the_best(run, element)


def _beside_the_task(run: RunFolder, element: str) -> dict[str, str]:
    returns = run.read_metrics()["extrinsic_return"]
    returns = returns[np.isfinite(returns)]
    if len(returns) < 2 or returns.min() < returns.max():
        return {}
    settings = run.config["settings"]
    steps = f"--steps {run.read_summary()['steps']} --seeds {settings['seeds']}"
    options = " ".join(map(shlex.quote, settings["env_options"]))
    command = f"{element} explore {shlex.quote(settings['env'])} --extrinsic-weight 1 {steps}"
    return {
        f"{command} --env-options {options}" if options else command: (
            f"every episode paid {returns[0]:g}: look for what pays, with ELEMENT's reward beside "
            "the task's"
        )
    }


def _from_the_best(run: RunFolder, element: str) -> dict[str, str]:
    summary, settings = run.read_summary(), run.config["settings"]
    best, chance = _best(summary), _best(summary.get("random_policy") or {})
    if best is None or chance is None or best <= chance:
        return {}
    path = shlex.quote(str(run.path))
    # where falls were ignored, what it has seen is not the task's
    same = not (can_fall(settings["env"]) and settings.get("falls") == "ignore")
    kept = " --checkpoint last --replay kept" if same else ""
    return {
        f"{element} finetune {path} --steps {summary['steps']}{kept}": (
            f"learn the task: its best episode paid {best:,.4g}, the best of a random policy "
            f"{chance:,.4g}"
        )
    }


def _best(measured: dict[str, Any]) -> float | None:
    """The highest return of an episode; None where none has ended."""
    returns = [value for value in measured.get("best_return") or [] if value is not None]
    return max(returns, default=None)
