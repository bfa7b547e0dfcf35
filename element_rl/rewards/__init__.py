"""Intrinsic rewards behind one interface.

    reward = make_reward("element", lifelong_weight=0.5)
    reward = make_reward("rnd", learning_rate=1e-3)
    reward = make_reward("my_reward.py:make", strength=2.0)      # a function in a file of one's own that returns a reward

See `element_rl.rewards.interface` for the functions every reward offers.
"""

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from element_rl.rewards.apt import AptConfig, AptReward
from element_rl.rewards.e3b import E3bConfig, E3bReward
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import ElementConfig, preset
from element_rl.rewards.extrinsic import ExtrinsicReward
from element_rl.rewards.icm import IcmConfig, IcmReward
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.ngu import NguConfig, NguReward
from element_rl.rewards.re3 import Re3Config, Re3Reward
from element_rl.rewards.rise import RiseConfig, RiseReward
from element_rl.rewards.rnd import RndConfig, RndReward

_BASELINES: dict[str, tuple[Any, Any]] = {
    "rnd": (RndReward, RndConfig),
    "ngu": (NguReward, NguConfig),
    "re3": (Re3Reward, Re3Config),
    "rise": (RiseReward, RiseConfig),
    "apt": (AptReward, AptConfig),
    "icm": (IcmReward, IcmConfig),
    "e3b": (E3bReward, E3bConfig),
}
NAMES = ("element", *_BASELINES, "extrinsic")
INTRINSIC_NAMES = ("element", *_BASELINES)  # what a learner of somebody's own can be given
TRAINING_NAMES = (*NAMES, "random")  # what commands that train take; random acts and learns nothing


def make_reward(name: str, env: str | None = None, **options: Any) -> Reward:
    """A reward by name, or by FILE.py:FUNCTION. `env` chooses ELEMENT's settings for that robot;
    options override settings."""
    check_name(name)
    if is_own_reward(name):
        return _own_reward(name, options)
    try:
        if name == "element":
            _refuse_unknown(name, options, ElementConfig)
            return ElementReward(dataclasses.replace(preset(env), **options))
        if name == "extrinsic":
            return ExtrinsicReward(**options)
        reward, config = _BASELINES[name]
        _refuse_unknown(name, options, config)
        return reward(config(**options))
    except TypeError as error:
        raise ValueError(
            f"The reward {name} does not take these options: {', '.join(options)} ({error})."
        ) from error


def check_name(name: str, choices: Sequence[str] = NAMES) -> None:
    """Refuses what is neither a function in a file nor one of the names that can be chosen."""
    if name not in choices and not is_own_reward(name):
        listed = f"{', '.join(choices)}, or FILE.py:FUNCTION of your own"
        raise ValueError(f"There is no reward called {name!r}; choose one of {listed}.")


def _refuse_unknown(name: str, options: dict[str, Any], config: Any) -> None:
    known = [field.name for field in dataclasses.fields(config)]
    for option in options:
        if option not in known:
            raise ValueError(
                f"The reward {name} does not take these options: {option}; it takes "
                f"{', '.join(known)}."
            )


def is_own_reward(name: str) -> bool:
    """Whether a name means a function in a file of the user's."""
    return name.rpartition(":")[0].endswith(".py")


def _own_reward(name: str, options: dict[str, Any]) -> Reward:
    path, _, function = name.rpartition(":")
    module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if module_spec is None or module_spec.loader is None or not Path(path).is_file():
        raise ValueError(f"There is no file {path} with a reward in it.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
        made = getattr(module, function)(**options)
    except Exception as error:
        raise ValueError(
            f"The reward {name} could not be made: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(made, Reward):
        missing = sorted(part for part in _PARTS if not hasattr(made, part))
        raise ValueError(f"What {name} returned is no reward: it has no {', '.join(missing)}.")
    return made


_PARTS = (
    "name",
    "metric_names",
    "note_shapes",
    "init",
    "observe",
    "update",
    "reward",
    "reward_terms",
)

__all__ = [
    "INTRINSIC_NAMES",
    "NAMES",
    "TRAINING_NAMES",
    "Reward",
    "RewardSpec",
    "check_name",
    "is_own_reward",
    "make_reward",
]
