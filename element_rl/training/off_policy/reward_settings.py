"""The reward that the settings of a run ask for, and settings that it has no use for."""

from collections.abc import Mapping
from typing import Any

from element_rl.rewards import Reward, make_replay_reward
from element_rl.rewards.element_config import (
    preset,
    replay_defaults,
    update_window,
    usual_estimator,
)
from element_rl.rewards.element_paper import printed
from element_rl.rewards.expression import Named, names_in, options_of_each, parsed
from element_rl.training.off_policy.config import (
    ELEMENTS,
    POOLED,
    PRINTED,
    ExploreConfig,
    has_reward,
    reward_options,
)


def reward_of(env: str, config: ExploreConfig, planned_steps: int) -> Reward | None:
    """The reward of a run that was planned for so many steps; None for random actions."""
    options = reward_options(config)
    _refuse_unused(config, options)
    if config.reward == "random":
        return None
    rewards = parsed(config.reward)
    each, _ = options_of_each(rewards, options)
    for named, given in zip(rewards.rewards, each, strict=True):
        own = _own_options(named.name, env, config, planned_steps)
        twice = rewards.names.count(named.name) > 1  # then one may have others than the flags say
        if not twice and (clash := sorted(set(own) & set(given))):
            raise ValueError(_clash(named, clash[0]))
        prefix = f"{named.label}." if rewards.name is None else ""
        options |= {f"{prefix}{name}": given.get(name, value) for name, value in own.items()}
    return make_replay_reward(
        config.reward,
        env=env,
        total_steps=planned_steps,
        options=options,
        recent_scale=config.recent_scale,
    )


def _refuse_unused(config: ExploreConfig, options: Mapping[str, Any]) -> None:
    """Settings that the reward has no use for."""
    intrinsic = not set(names_in(config.reward)) <= {"random", "extrinsic"}
    alone = parsed(config.reward).name
    if config.pool and not has_reward(config, POOLED):
        raise ValueError(f"--pool is of {' and '.join(POOLED)}; {config.reward} has none.")
    if config.inputs == "state" and not intrinsic:
        raise ValueError(
            f"--inputs is what an intrinsic reward sees, and {config.reward} is none: leave it out."
        )
    if options and alone in ("random", "extrinsic"):
        raise ValueError(
            f"--reward-options are for other rewards than {config.reward}: see --help."
        )
    if config.recent_scale and alone in (*ELEMENTS, "random"):
        raise ValueError(
            f"--recent-scale is for other rewards than {config.reward}: ELEMENT's terms are within "
            "[0, 1]."
        )
    if config.extrinsic_weight and not intrinsic:
        raise ValueError(
            "--extrinsic-weight adds the environment's reward to an intrinsic one, and "
            f"{config.reward} is none: leave it out."
        )
    if config.extrinsic_weight and has_reward(config, ("extrinsic",)):
        raise ValueError(
            f"--extrinsic-weight adds the environment's reward, which {config.reward} has already: "
            "leave one of them out."
        )


def _own_options(name: str, env: str, config: ExploreConfig, planned_steps: int) -> dict[str, Any]:
    """The settings of a reward that have options of the command."""
    if name in ELEMENTS:
        return element_options(env, config, planned_steps, name)
    if name == "extrinsic":
        return {"scale": config.reward_scale}
    return {"pool": config.pool} if config.pool and name in POOLED else {}


def _clash(named: Named, option: str) -> str:
    """What to say where a setting was given in two places, or cannot be given."""
    if named.name == PRINTED:
        return f"{PRINTED} has {option} as printed: --reward element takes others."
    flags = {
        "lifelong_weight": "--beta",
        "scale": "--reward-scale",
        "running": "--learn-from running",
    }
    return (
        f"{option} has an option of its own: {flags.get(option, '--' + option.replace('_', '-'))}."
    )


def element_options(
    env: str, config: ExploreConfig, planned_steps: int, name: str | None = None
) -> dict[str, Any]:
    """ELEMENT's settings; `name` says which ELEMENT, where the reward is a sum that has both."""
    only_printed = has_reward(config, (PRINTED,)) and not has_reward(config, ("element",))
    if name == PRINTED or (name is None and only_printed):
        return _printed_options(env, config)
    paper = preset(env)
    estimator = config.estimator or usual_estimator(env, config.credit)
    usual_bandwidth = replay_defaults(estimator).get("bandwidth", paper.bandwidth)
    options: dict[str, Any] = {
        "lifelong_weight": paper.lifelong_weight if config.beta is None else config.beta,
        "estimator": estimator,
        "bandwidth": usual_bandwidth if config.bandwidth is None else config.bandwidth,
        "episodic_weight": config.episodic_weight,
        "memory": config.memory,
        "remember": config.remember,
        "own_episode": config.own_episode,
        "lifelong_estimator": config.lifelong_estimator,
        "normalisation": config.normalisation,
        "credit": config.credit,
        "running": config.learn_from == "running",
        "length_weighted": config.length_weighted,
    }
    return options | update_window(planned_steps, config.update_interval, config.update_steps)


def _printed_options(env: str, config: ExploreConfig) -> dict[str, Any]:
    """What the paper prints; the window, the only setting that can be asked for, is its own
    whatever the length of the run."""
    paper = printed(env)
    interval = config.update_interval or paper.update_interval
    steps = config.update_steps or min(paper.update_steps, max(interval // 10, 1))
    names = ("lifelong_weight", "estimator", "bandwidth")
    options = {name: getattr(paper, name) for name in names}
    return options | {"update_interval": interval, "update_steps": steps}
