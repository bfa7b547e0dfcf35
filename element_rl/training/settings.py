"""What the settings of all loops have in common."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax

from element_rl.envs.latents import OPTION as LATENT_OPTION
from element_rl.envs.latents import parsed_latent
from element_rl.envs.names import registered_name
from element_rl.envs.positions import NONE
from element_rl.envs.robots import robot_of
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.interface import Latent
from element_rl.storage.capacity import refuse_beyond_memory
from element_rl.storage.settings import named_values

Settings = TypeVar("Settings", bound=Any)  # of a run that explores

# the least that each of so many takes: an agent has an environment, a network and a map, and an
# episode waits in a queue with its seeds
KEPT_BYTES = {"seeds": 2**16, "random_seeds": 2**16, "episodes": 2**9}
LONGEST_TIMEOUT = 10_000_000  # seconds: months


def check_numbers(config: Any, positive: Sequence[str], not_negative: Sequence[str]) -> None:
    """Refuses numbers below 1, or below 0, and more agents than the machine can hold; None is a
    setting that is left open."""
    for names, least, wanted in (
        (positive, 1, "be at least 1"),
        (not_negative, 0, "not be negative"),
    ):
        for name in names:
            value = getattr(config, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must {wanted}, got {value}.")
    refuse_too_many(config)


def check_timeout(seconds: float | None) -> None:
    """Refuses a time that no environment can keep, or that never ends."""
    if seconds is not None and not 0 < seconds <= LONGEST_TIMEOUT:
        raise ValueError(
            f"--env-timeout must be above 0 and at most {LONGEST_TIMEOUT:,} seconds, got {seconds}."
        )


def refuse_too_many(config: Any) -> None:
    """Refuses more agents, or episodes at once, than the machine can hold."""
    for name, each in KEPT_BYTES.items():
        count = getattr(config, name, None) or 0
        refuse_beyond_memory(f"--{name.replace('_', '-')} {count}", count * each)


def refuse_large_agents(create: Callable[[Any], Any], number: int) -> None:
    """Refuses agents whose networks the machine cannot hold, before a compiler meets their shapes.

    `create` makes one of a key; here it only tells the shapes of its arrays. Layers of billions
    of units overflow even those.
    """
    try:
        shapes = jax.tree.leaves(jax.eval_shape(create, jax.random.key(0)))
        size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes)
    except OverflowError as error:
        raise ValueError(
            "The networks of the agents have more weights than can be counted: choose less."
        ) from error
    refuse_beyond_memory(
        f"The networks of {number} agents" if number > 1 else "The networks of the agent",
        number * size,
    )


def agent_seeds(config: Any) -> list[int]:
    """One seed per agent, counting up from the first."""
    return [config.seed + index for index in range(config.seeds)]


def usual_log_every(steps: int) -> int:
    """Steps between two lines of metrics, for a run of this length."""
    return min(10_000, max(steps // 100, 500))


def written_position(said: tuple[str, ...], spec: EnvSpec) -> tuple[str, ...]:
    """The position of a run's settings: as it was said, or found; a later version may find
    another."""
    if said or known_position(spec.name):
        return said
    return tuple(map(str, spec.position)) or (NONE,)


def known_position(env: str) -> bool:
    """Whether the library knows where the agent is in the environment of this name."""
    return robot_of(registered_name(env)) is not None


def with_latent(config: Settings, needed: Latent | None) -> Settings:
    """The configuration with the latent that its reward needs, said to the environment: then all
    who act with the run's policies tell them the same kind."""
    if needed is None:
        return config
    options = named_values("--env-options", config.env_options, f"{LATENT_OPTION}=16")
    told = options.get(LATENT_OPTION)
    if told is None:
        pair = f"{LATENT_OPTION}={needed.option}"
        return dataclasses.replace(config, env_options=(*config.env_options, pair))
    if parsed_latent(told) != parsed_latent(needed.option):
        raise ValueError(
            f"--env-options {LATENT_OPTION}={told} is not what {config.reward} needs, which is "
            f"{needed.option}: leave it out."
        )
    return config
