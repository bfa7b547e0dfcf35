"""What to do next after `element finetune`: commands that can be pasted, each with the numbers of
the run that speak for it."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.commands.measured_steps import option_words, trend_of
from element_rl.commands.next_steps import element_word
from element_rl.commands.training import counted
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import KINDS, kind_of
from element_rl.training.finetune.comparison import number_text, return_curves
from element_rl.training.finetune.config import FinetuneConfig

LEARNERS = ("sac", "td3", "dqn", "a3c")  # settings that are as in the run unless given


def finetuned_steps(
    config: FinetuneConfig, folder: Path, summary: Mapping[str, Any]
) -> dict[str, str]:
    """Commands → what of the fine-tuning speaks for each; `summary` is the one of its folder."""
    home = RunFolder.open(folder / "transferred" if config.compare else folder)
    final = (
        summary["transferred"]["final_return"] if config.compare else summary["extrinsic_return"]
    )
    anchors = (
        kind_of(home.config) == "explore"
        and config.anchor == 0.0
        and home.config["settings"].get("agent") != "dqn"  # which has no actor to hold
    )
    _, returns = return_curves(home, summary["seeds"])
    return {
        **(_anchored(config, folder, summary["zero_shot_return"], final) if anchors else {}),
        **(_from_scratch(folder, summary) if config.compare else {}),
        **_more_steps(home, summary, _mean_curve(returns)),
    }


def _anchored(
    config: FinetuneConfig,
    folder: Path,
    zero_shot: Sequence[float],
    final: Sequence[float | None],
) -> dict[str, str]:
    """An anchor, where most agents end with less than they could do before they learned."""
    less = [end is not None and end < start for start, end in zip(zero_shot, final, strict=True)]
    if not np.mean(less) > 0.5:
        return {}
    ended = float(np.mean([end for end in final if end is not None]))
    words = option_words(
        dataclasses.replace(config, anchor=1.0, anchor_halflife=float(max(config.steps // 10, 1))),
        FinetuneConfig(config.run),
        ("run", "steps", *LEARNERS),
    )
    for name in LEARNERS:
        own = getattr(config, name)
        words += [] if own is None else option_words(own, type(own)(), prefix=f"{name}.")
    run, out = (shlex.quote(str(path)) for path in (config.run, f"{folder}-anchored"))
    command = " ".join(
        [element_word(), "finetune", run, "--steps", str(config.steps), *words, "--out", out]
    )
    return {
        command: f"{sum(less)} of {len(less)} agents can do less now ({number_text(ended)}) than "
        f"the policy they began with ({number_text(float(np.mean(zero_shot)))}): this holds the "
        "actors near it"
    }


def _from_scratch(folder: Path, summary: Mapping[str, Any]) -> dict[str, str]:
    """Agents from scratch, where they are ahead both at the end and over all of training, with
    most seeds."""
    names = ("final_return", "area_under_curve")
    ahead = np.ones(len(summary["seeds"]), bool)
    for name in names:
        pairs = zip(summary["scratch"][name], summary["transferred"][name], strict=True)
        ahead &= [None not in pair and pair[0] > pair[1] for pair in pairs]
    if not ahead.mean() > 0.5:
        return {}
    ends = [summary["mean"][run]["final_return"] for run in ("scratch", "transferred")]
    command = _resumed(RunFolder.open(folder / "scratch"), 2 * summary["steps"])
    return {
        command: f"with {ahead.sum()} of {counted(len(ahead), 'seed')} agents from scratch earn "
        f"more, at the end ({number_text(ends[0])} against {number_text(ends[1])}) and over all of "
        "training: go on with those"
    }


def _more_steps(
    home: RunFolder, summary: Mapping[str, Any], curve: Float[np.ndarray, " T"]
) -> dict[str, str]:
    trend = trend_of(curve)
    if trend is None or not trend.is_clear or trend.now <= trend.before:
        return {}
    return {
        _resumed(home, 2 * summary["steps"]): "the return still rises "
        f"({number_text(trend.before)} in the third quarter of the steps, "
        f"{number_text(trend.now)} in the last): go on"
    }


def _resumed(run: RunFolder, steps: int) -> str:
    words = KINDS[kind_of(run.config)].continued_with.format(shlex.quote(str(run.path)))
    return f"{element_word()}{words.removeprefix('element')} --steps {steps}"


def _mean_curve(returns: Float[np.ndarray, "P T"]) -> Float[np.ndarray, " T"]:
    """The mean over the seeds that have a return, line by line; lines without any are left out."""
    returns = returns[:, np.isfinite(returns).any(axis=0)]
    return np.nanmean(returns, axis=0) if returns.size else np.zeros(0)
