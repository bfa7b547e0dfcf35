"""Rewards by name: the registry, and the one place where rewards are made.

    make_reward("rnd", learning_rate=1e-3)                         as its paper has it
    make_replay_reward("element", env="Hopper-v5", total_steps=…)  for a learner from a replay
    make_bonus("element", state_dim=32, total_steps=…, …)          for a learner from rollouts

and each of them for sums and products, `"element + 0.5*rnd"` (`expression`, `composite`).

A new reward is one file with a class that has a `config`, and one line in `REWARDS`. Where a run
decides more than the reward's own settings, as ELEMENT's windows and memory, its line says how.
"""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from element_rl.rewards.apt import AptReward
from element_rl.rewards.composite import Composite, composite
from element_rl.rewards.composite_on_rollouts import composite_bonus
from element_rl.rewards.disagreement import DisagreementReward
from element_rl.rewards.e3b import E3bReward
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import (
    USUAL_STEPS,
    MemoryKind,
    preset,
    replay_defaults,
    resolved_memory,
    update_window,
)
from element_rl.rewards.element_on_policy import OnPolicyElement, OnPolicyElementConfig
from element_rl.rewards.element_paper import PrintedElementReward, printed
from element_rl.rewards.etd import EtdReward
from element_rl.rewards.expression import (
    Expression,
    flat_options,
    is_file_function,
    options_of_each,
    parsed,
)
from element_rl.rewards.extrinsic import ExtrinsicReward
from element_rl.rewards.icm import IcmReward
from element_rl.rewards.interface import Latent, Reward, RewardSpec, latent_of, remembering
from element_rl.rewards.metra import MetraReward
from element_rl.rewards.ngu import NguReward
from element_rl.rewards.noveld import NoveldReward
from element_rl.rewards.on_rollouts import Bonus, LearningConfig, RewardBonus
from element_rl.rewards.own_answers import with_checked_answers
from element_rl.rewards.pseudo_counts import PseudoCountsReward
from element_rl.rewards.re3 import Re3Reward
from element_rl.rewards.recent_scale import recently_scaled
from element_rl.rewards.ride import RideReward
from element_rl.rewards.rise import RiseReward
from element_rl.rewards.rle import RleReward
from element_rl.rewards.rnd import RndReward
from element_rl.rewards.whole_replay import with_pool

Options = Mapping[str, Any]
# Settings that are written down with a run, because older runs, which say nothing, have others.
SAID: Mapping[str, Options] = {"ngu": {"error_statistics": "recent", "observation_clip": 5.0}}
BEFORE: Mapping[str, Options] = {"ngu": {"error_statistics": "all", "observation_clip": None}}


def element_for_replay(env: str | None, total_steps: int | None, options: Options) -> ElementReward:
    """ELEMENT for a robot, its windows and memory fit for a run of `total_steps`.

    Where nobody knows these, the windows grow with the run.
    """
    usual = replay_defaults(options.get("estimator", preset(env).estimator))
    config = with_options(
        "element", preset(env), {**usual, **options, **window(total_steps, options)}
    )
    on_cpu = jax.default_backend() == "cpu"
    memory = resolved_memory(config, total_steps or USUAL_STEPS, on_cpu)
    return ElementReward(dataclasses.replace(config, memory=memory))


def element_on_rollouts(
    spec: RewardSpec, env: str | None, total_steps: int | None, options: Options
) -> OnPolicyElement:
    """The same for rollouts, which have settings of their own (`OnPolicyElementConfig`)."""
    own = [field.name for field in dataclasses.fields(OnPolicyElementConfig)]
    of_rollouts, of_reward = _divided(options, [name for name in own if name != "element"])
    of_reward |= window(total_steps, options)
    element = with_options("element", preset(env), of_reward, also=tuple(of_rollouts))
    return OnPolicyElement(OnPolicyElementConfig(element, **of_rollouts), spec)


def printed_for_replay(
    env: str | None, total_steps: int | None, options: Options
) -> PrintedElementReward:
    """ELEMENT as printed, whatever the length of the run."""
    del total_steps
    return PrintedElementReward(with_options("element-paper", printed(env), options))


def printed_on_rollouts(
    spec: RewardSpec, env: str | None, total_steps: int | None, options: Options
) -> OnPolicyElement:
    """The sentence after Algorithm 3, literally: one graph, filled in the windows, answers for both
    terms, and a rollout is the batch."""
    element = printed_for_replay(env, total_steps, options).config
    literally: Any = {"episodic_nodes": "window", "normalisation": "batch", "merge_distance": 0.0}
    return OnPolicyElement(OnPolicyElementConfig(element, **literally), spec, "element-paper")


class Registered(NamedTuple):
    """A reward of this library."""

    reward: Any  # the class; made of its `config` alone
    preset: Callable[[str | None], Any] | None = None  # settings for an environment
    # what else a run decides, for learners from a replay and from rollouts
    for_replay: Callable[[str | None, int | None, Options], Reward] | None = None
    on_rollouts: Callable[[RewardSpec, str | None, int | None, Options], Bonus] | None = None


REWARDS: dict[str, Registered] = {
    "element": Registered(ElementReward, preset, element_for_replay, element_on_rollouts),
    "element-paper": Registered(
        PrintedElementReward, printed, printed_for_replay, printed_on_rollouts
    ),
    "rnd": Registered(RndReward),
    "ngu": Registered(NguReward),
    "re3": Registered(with_pool(Re3Reward)),
    "rise": Registered(with_pool(RiseReward)),
    "apt": Registered(AptReward),
    "icm": Registered(IcmReward),
    "e3b": Registered(E3bReward),
    "disagreement": Registered(DisagreementReward),
    "ride": Registered(RideReward),
    "noveld": Registered(NoveldReward),
    "pseudo-counts": Registered(PseudoCountsReward),
    "etd": Registered(EtdReward),
    "rle": Registered(RleReward),
    "metra": Registered(MetraReward),
    "extrinsic": Registered(ExtrinsicReward),
}
NAMES = tuple(REWARDS)
# what a learner of somebody's own can be given
INTRINSIC_NAMES = tuple(name for name in NAMES if name != "extrinsic")
TRAINING_NAMES = (*NAMES, "random")  # what commands that train take; random acts and learns nothing
REWARD_HELP = (  # of these commands' --reward
    f"What the agents learn from: {', '.join(INTRINSIC_NAMES)}, extrinsic (the task's own reward), "
    "random (they act at random and learn nothing), FILE.py:FUNCTION, a function of your own that "
    "returns a reward, or a sum of weighted products of these, such as 'element + 0.5*rnd' or "
    "'ngu * rnd'."
)


def make_reward(name: str, env: str | None = None, **options: Any) -> Reward:
    """A reward by name, by FILE.py:FUNCTION, or a sum of them. `env` chooses ELEMENT's settings for
    that robot; options override settings. Those of a sum name their reward: rnd={…}."""
    check_name(name)
    expression = parsed(name)
    if expression.name is None:
        return composite(*_composed(expression, options, lambda n, o: make_reward(n, env, **o)))
    name = expression.name
    if is_own_reward(name):
        return _own_reward(name, options)
    registered = REWARDS[name]
    config = registered.preset(env) if registered.preset else registered.reward().config
    return registered.reward(with_options(name, config, options))


def make_replay_reward(
    name: str,
    *,
    env: str | None = None,
    total_steps: int | None = None,
    options: Options | None = None,
    recent_scale: bool = False,
) -> Reward:
    """A reward for a learner from a replay, in a run of `total_steps` (None: nobody knows).

    recent_scale: over its recent standard deviation; not for rewards that scale themselves.
    """
    check_name(name)
    expression = parsed(name)
    fit: dict[str, Any] = {"env": env, "total_steps": total_steps}
    if expression.name is None:
        return composite(
            *_composed(
                expression, options or {}, lambda n, o: make_replay_reward(n, options=o, **fit)
            ),
            whole_scale=recent_scale,
        )
    name = expression.name
    for_replay = None if is_own_reward(name) else REWARDS[name].for_replay
    if for_replay is None:
        made = make_reward(name, env, **options or {})
        return recently_scaled(made) if recent_scale else made
    if recent_scale:
        raise ValueError(
            f"recent_scale is for other rewards than {name}: its terms are within [0, 1]."
        )
    return for_replay(env, total_steps, options or {})


def make_bonus(
    name: str,
    *,
    state_dim: int,
    actions: int,
    max_episode_steps: int,
    total_steps: int | None,
    options: Options | None = None,
    observation_dim: int | None = None,
    env: str | None = None,
) -> Bonus:
    """A reward for a learner from rollouts, in a run of `total_steps` (None: nobody knows).

    Options are those of the reward's configuration and of `LearningConfig`; for ELEMENT those of
    `ElementConfig` and `OnPolicyElementConfig`. `actions` is their number, or the width of action
    vectors; `observation_dim` is given where episodes have observations beside their states.
    """
    check_name(name)
    expression = parsed(name)
    fit: dict[str, Any] = {
        **{"state_dim": state_dim, "actions": actions, "observation_dim": observation_dim},
        **{"max_episode_steps": max_episode_steps, "total_steps": total_steps, "env": env},
    }
    if expression.name is None:
        return composite_bonus(
            *_composed(expression, options or {}, lambda n, o: make_bonus(n, options=o, **fit))
        )
    name = expression.name
    steps = USUAL_STEPS if total_steps is None else total_steps
    spec = RewardSpec(observation_dim or state_dim, actions, state_dim, max_episode_steps, steps)
    own = is_own_reward(name)
    on_rollouts = None if own else REWARDS[name].on_rollouts
    if on_rollouts is not None:
        return on_rollouts(spec, env, total_steps, options or {})
    learning, rest = _divided(
        options or {}, [field.name for field in dataclasses.fields(LearningConfig)]
    )
    reward = make_reward(name, env, **rest)
    if not own and remembering(reward) is not None:
        raise ValueError(
            f"{name} with pool=whole is for learners from a replay: on rollouts its pool holds the "
            "latest transitions (pool=sample)."
        )
    # this library's own rewards do not learn from their notes; those of users may
    return RewardBonus(reward, spec, LearningConfig(**learning), name, learns_from_notes=own)


def needed_latent(name: str, options: Options | None = None) -> Latent | None:
    """What an agent must be told for this reward; None where it needs nothing."""
    return None if name == "random" else latent_of(make_reward(name, **options or {}))


def memory_kind(reward: Reward | None) -> MemoryKind | None:
    """Which memory a reward from `make_replay_reward` has, of those that ELEMENT chooses from; None
    for all others. Of a sum, that of its first ELEMENT."""
    members = reward.members if isinstance(reward, Composite) else (reward,)
    kinds = (each.config.memory for each in members if isinstance(each, ElementReward))
    return next(kinds, None)


def check_name(name: str, choices: Sequence[str] = NAMES) -> None:
    """Refuses what is neither a function in a file nor one of the names that can be chosen, nor a
    sum of such."""
    expression = parsed(name)
    rewards = choices if expression.name is not None else NAMES
    for each in expression.names:
        if each in rewards or is_own_reward(each):
            continue
        if each in TRAINING_NAMES and expression.name is None:
            raise ValueError(f"{each} is no reward, and cannot be part of {name!r}.")
        parts = f" in {name!r}" if expression.name is None else ""
        listed = f"{', '.join(rewards)}, or FILE.py:FUNCTION of your own"
        hint = " (A minus sign between rewards has spaces.)" if "-" in each else ""
        raise ValueError(
            f"There is no reward called {each!r}{parts}; choose one of {listed}.{hint}"
        )


def check_intrinsic(name: str) -> None:
    """Refuses what a learner of somebody's own has no use for."""
    if not set(parsed(name).names) - (set(TRAINING_NAMES) - set(INTRINSIC_NAMES)):
        raise ValueError(f"{name} is no intrinsic reward; leave this out instead.")
    check_name(name, INTRINSIC_NAMES)


def is_own_reward(name: str) -> bool:
    """Whether a name means a function in a file of the user's."""
    return is_file_function(name) and parsed(name).name is not None


def said(name: str, options: Options | None, older: bool = False) -> dict[str, Any]:
    """The options of a reward, with those that must be written down; `older`: as they were read
    from a folder, which may have been written before there was a choice."""
    expression = parsed(name)
    if expression.name is None:  # no folder of a sum is older
        of_each = {
            f"{reward.label}.{option}": value
            for reward in expression.rewards
            for option, value in SAID.get(reward.name, {}).items()
        }
        return {**of_each, **flat_options(expression, options or {})}
    name, given = expression.name, dict(options or {})
    unsaid = (BEFORE if older else SAID).get(name, {})
    # who names one has made the choice
    return given if older and set(given) & set(unsaid) else {**unsaid, **given}


def window(total_steps: int | None, options: Options) -> dict[str, int]:
    """ELEMENT's U and T_u for a run of this length, unless the options say others."""
    asked = (options.get(name) for name in ("update_interval", "update_steps", "first_interval"))
    return update_window(total_steps, *asked)


def with_options(name: str, config: Any, options: Options, also: Sequence[str] = ()) -> Any:
    """The settings of a reward with others; `also` are those it takes elsewhere."""
    taken = [field.name for field in dataclasses.fields(config)]
    for option in options:
        if option not in taken:
            raise ValueError(
                f"The reward {name} does not take these options: {option}; it takes "
                f"{', '.join([*taken, *also])}."
            )
    try:
        return dataclasses.replace(config, **options)
    except TypeError as error:
        raise ValueError(
            f"The reward {name} does not take these options: {', '.join(options)} ({error})."
        ) from error


def _composed(
    expression: Expression, options: Options, make: Callable[[str, Options], Any]
) -> tuple[Expression, list[Any], list[bool | None]]:
    """What a sum is made of: its rewards, each with its own options, and how each is scaled."""
    each, scaled = options_of_each(expression, options)
    made = zip(expression.names, each, strict=True)
    return expression, [make(name, given) for name, given in made], scaled


def _divided(options: Options, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of these names, and the others."""
    chosen = {name: value for name, value in options.items() if name in names}
    return chosen, {name: value for name, value in options.items() if name not in names}


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
        parts = {part for part in (*Reward.__annotations__, *vars(Reward)) if part[0] != "_"}
        missing = sorted(part for part in parts if not hasattr(made, part))
        raise ValueError(f"What {name} returned is no reward: it has no {', '.join(missing)}.")
    return with_checked_answers(made, name)
