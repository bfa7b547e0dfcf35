"""`element explore` takes every environment. Where agents see images, and where `--agent` names one
that learns on policy, its command line goes to `element on-policy`, and a line says so.

    element explore CartPole-v1                 `element explore` itself, with DQN
    element explore Rooms-v0                    element on-policy Rooms-v0 --agent ppo
    element explore CartPole-v1 --agent ppo     element on-policy CartPole-v1 --agent ppo

What an environment shows is known when `element explore` has read its options and looks at it, so
that it is made no more often than before. Options that only `element on-policy` has come before
that: with one of them the environment is looked at first. ENV is then the first word.
"""

import dataclasses
from collections.abc import Sequence

from element_rl.commands.training import resumed_folder
from element_rl.envs.make import ImagesShownError, describe
from element_rl.training.off_policy.choosing import ON_POLICY
from element_rl.training.off_policy.config import ExploreConfig, read_env_options
from element_rl.training.on_policy.config import OnPolicyConfig

USUAL = "ppo"  # on images


def for_on_policy(arguments: Sequence[str]) -> list[str] | None:
    """The command line for `element on-policy`, where it is plain before an option is read that it
    is meant; it prints why."""
    if resumed_folder(arguments) is not None or {"-h", "--help"} & set(arguments):
        return None
    asked = _agent(arguments)
    if asked in ON_POLICY:
        print(f"--agent {asked} learns on policy: this is element on-policy.")
        return list(arguments)
    if asked is None and _has_its_options(arguments) and _shows_images(arguments):
        return for_images(arguments)
    return None


def for_images(arguments: Sequence[str]) -> list[str]:
    """The command line for `element on-policy` in an environment that has turned out to show
    images; a ValueError where an agent was asked for that cannot see them."""
    asked = _agent(arguments)
    if asked is not None:
        raise ValueError(
            f"--agent {asked} learns from vectors, and this environment shows images: take "
            "--agent ppo or a3c, or leave it out."
        )
    print("Images: PPO learns from them, and this is element on-policy (--agent a3c: A3C).")
    return [*arguments, "--agent", USUAL]


def _agent(arguments: Sequence[str]) -> str | None:
    """What --agent says."""
    values = _values(arguments, "--agent")
    return values[-1] if values else None


def _has_its_options(arguments: Sequence[str]) -> bool:
    """Whether an option is given that `element on-policy` has and `element explore` has not."""
    theirs, ours = (
        {field.name for field in dataclasses.fields(config)}
        for config in (OnPolicyConfig, ExploreConfig)
    )
    given = {argument[2:].replace("-", "_") for argument in arguments if argument[:2] == "--"}
    words = {word.partition("=")[0].partition(".")[0].removeprefix("no_") for word in given}
    return not words.isdisjoint(theirs - ours)


def _shows_images(arguments: Sequence[str]) -> bool:
    """Whether agents see images in ENV; False where it cannot be made, which is complained of
    later."""
    if not arguments or arguments[0].startswith("-"):
        return False
    try:
        options = read_env_options(_values(arguments, "--env-options"))
        describe(arguments[0], (), (), "vectors", **options)
    except ImagesShownError:
        return True
    except ValueError:
        pass
    return False


def _values(arguments: Sequence[str], option: str) -> list[str]:
    """What is given to an option."""
    values: list[str] = []
    reading = False
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            reading = name.replace("_", "-") == option
            values += [value] if reading and equals else []
        elif reading:
            values.append(argument)
    return values
