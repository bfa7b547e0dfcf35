"""What to do next after `element offline`: commands that can be pasted, each with the numbers of
the run that speak for it."""

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from element_rl.commands.measured_steps import (
    CLEAR,
    FEWEST_LINES,
    noise_of,
    option_words,
    trend_of,
)
from element_rl.commands.next_steps import element_word
from element_rl.commands.training import counted
from element_rl.runs.folder import RunFolder
from element_rl.storage.settings import settings_from_json
from element_rl.training.finetune.comparison import number_text, return_curves
from element_rl.training.offline.algorithms import form_of
from element_rl.training.offline.config import OfflineConfig

MORE_EPISODES = 50
# What holds values back: the setting of an algorithm, and a value of it that does so more.
RESTRAINTS: dict[str, tuple[str, Callable[[float], float]]] = {
    "cql": ("conservative_weight", lambda weight: 2 * weight),
    "td3-bc": ("alpha", lambda alpha: alpha / 2),
    "iql": ("expectile", lambda expectile: (expectile + 0.5) / 2),
}
# Settings that the run fills in, and those of the machine: nobody has to say them again.
UNSAID = (*("datasets", "steps", "evaluate_every", "checkpoint_every", "workers", "chunk_updates"),)
PLACE = ("env", "env_options")  # datasets name it; said where they do not


class Outcome(NamedTuple):
    """A run that is done."""

    run: RunFolder
    config: OfflineConfig
    summary: dict[str, Any]

    @property
    def path(self) -> str:
        """As it can be pasted."""
        return shlex.quote(str(self.run.path))

    def again(self, suffix: str, **changes: Any) -> str:
        """The command that learns from the same datasets with the same settings, some of them
        changed, in a folder beside the run's; what is as by default is left out."""
        config = dataclasses.replace(self.config, **changes)
        unsaid = (*UNSAID, *PLACE) if self.summary["env_of_datasets"] else UNSAID
        field = form_of(config.algorithm, self.summary["discrete"]).settings
        own = getattr(config, field)
        words = [
            *(element_word(), "offline", *map(shlex.quote, config.datasets)),
            *("--steps", str(config.steps)),
            *option_words(config, OfflineConfig(config.datasets), unsaid),
            *option_words(own, type(own)(), prefix=f"{field.replace('_', '-')}."),
            *("--out", shlex.quote(f"{self.run.path}-{suffix}")),
        ]
        return " ".join(words)


def offline_steps(run: RunFolder) -> dict[str, str]:
    """Commands → what of the run speaks for each."""
    config = settings_from_json(OfflineConfig, run.config["settings"])
    done = Outcome(run, config, run.read_summary())
    if None in done.summary["extrinsic_return"]:
        return _not_evaluated(done)
    steps, returns = return_curves(run, done.summary["seeds"])
    curve = returns.mean(axis=0)
    return {
        **_earlier_checkpoint(done, steps, curve),
        **_grown_values(done),
        **_beside_the_data(done),
        **_more_updates(done, curve),
        **_more_seeds(done),
    }


def _not_evaluated(done: Outcome) -> dict[str, str]:
    if not done.summary["env"]:
        return {}
    command = f"{element_word()} evaluate {done.path} --deterministic"
    return {command: "no policy has acted yet (--no-evaluate): see what they earn"}


def _earlier_checkpoint(
    done: Outcome, steps: Int[np.ndarray, " T"], curve: Float[np.ndarray, " T"]
) -> dict[str, str]:
    """The best checkpoint, where the last is clearly worse."""
    stored = set(done.run.checkpoint_steps())
    measured = {
        int(step): float(value)
        for step, value in zip(steps, curve, strict=True)
        if int(step) in stored
    }
    if len(curve) < FEWEST_LINES or len(measured) < 2:
        return {}
    best, last = max(measured, key=lambda step: measured[step]), max(measured)
    if measured[best] - measured[last] <= CLEAR * noise_of(curve):
        return {}
    command = (
        f"{element_word()} evaluate {done.path} --checkpoint {best} --deterministic "
        f"--episodes {MORE_EPISODES}"
    )
    return {
        command: f"the checkpoint of update {best:,} had a return of "
        f"{number_text(measured[best])}, the last has {number_text(measured[last])}: it is kept, "
        "and more episodes tell whether it is better"
    }


def _grown_values(done: Outcome) -> dict[str, str]:
    """More restraint, where most agents' mean value is above everything that the data show."""
    config, summary, metrics = done.config, done.summary, done.run.read_metrics()
    ranges = summary["value_range"]
    if config.algorithm not in RESTRAINTS or None in ranges:
        return {}
    values = metrics["q_mean"][metrics["step"] == summary["steps"]]
    highest = np.array([each[1] for each in ranges])
    if not np.mean(values > highest) > 0.5:
        return {}
    field = form_of(config.algorithm, summary["discrete"]).settings
    name, more = RESTRAINTS[config.algorithm]
    own = getattr(config, field)
    held = dataclasses.replace(own, **{name: more(getattr(own, name))})
    return {
        done.again("held", **{field: held}): "the mean value "
        f"{number_text(float(np.mean(values)))} is above the highest discounted return in the "
        f"data, {number_text(float(np.max(highest)))}: this holds values back"
    }


def _beside_the_data(done: Outcome) -> dict[str, str]:
    """Cloning, where most agents earn less than the data's episodes; of cloning the reverse, where
    the data have much better episodes than it came to."""
    names = ("extrinsic_return", "behaviour_return", "best_behaviour_return")
    final, data, best = (np.array(done.summary[name]) for name in names)
    earned, theirs, highest = (number_text(float(each.mean())) for each in (final, data, best))
    below = final < data
    if done.config.algorithm != "bc" and below.mean() > 0.5:
        return {
            done.again("bc", algorithm="bc"): f"{below.sum()} of {counted(len(below), 'agent')} "
            f"earn less than the data's episodes ({earned} against {theirs} in the mean): cloning "
            "these may earn more"
        }
    if done.config.algorithm == "bc" and np.mean(final < (data + best) / 2) > 0.5:
        other = "cql" if done.summary["discrete"] else "td3-bc"
        return {
            done.again(other, algorithm=other): f"cloning earns {earned}, the best episode in the "
            f"data {highest}: what values actions can keep to the better ones"
        }
    return {}


def _more_updates(done: Outcome, curve: Float[np.ndarray, " T"]) -> dict[str, str]:
    """More updates while the return rises; where it does not, a better look at what there is."""
    trend = trend_of(curve)
    if trend is None or (trend.is_clear and trend.now < trend.before):
        return {}  # where it falls, an earlier checkpoint is spoken of
    numbers = (
        f"{number_text(trend.before)} in the third quarter of the updates, "
        f"{number_text(trend.now)} in the last"
    )
    twice = 2 * done.summary["steps"]
    if not trend.is_clear:
        command = f"{element_word()} evaluate {done.path} --deterministic"
        return {
            f"{command} --episodes {MORE_EPISODES}": f"the return no longer rises ({numbers}): "
            "more updates promise little; see what there is on more episodes"
        }
    if done.config.algorithm == "iql" and done.config.iql.actor_decay_steps is None:
        # its learning rate has fallen to 0, and would jump up
        return {
            done.again("longer", steps=twice): f"the return still rises ({numbers}): again with "
            "more updates, over which the learning rate falls"
        }
    command = f"{element_word()} offline --resume {done.path} --steps {twice}"
    return {command: f"the return still rises ({numbers}): go on"}


def _more_seeds(done: Outcome) -> dict[str, str]:
    if len(done.summary["seeds"]) > 1:
        return {}
    return {done.again("seeds", seeds=5): "1 agent has learned: five tell how much of it is luck"}
