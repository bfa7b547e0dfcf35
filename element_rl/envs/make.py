"""From the name of an environment to the environment, and to its description (`spec.EnvSpec`).

Agents see flat vectors or frames, and give coordinates of a bounded Box or one of a few choices.
Every environment is brought into this form: images become frames of 84 × 84 grey pixels
(`screens`), all other observations one vector (`vectors`), and actions are counted from 0 or laid
in a row (`choices`). What an environment is, its spaces tell. Flat vectors with a flat Box, and
with choices from 0, need nothing: such an environment acts in no wrapper of ours.

    name                 actions     steps of an episode    coverage map
    Rooms-v0             5           500                    49 × 37 tiles: `rooms`
    SuperMarioBros-1-1   12 or 16    1,000                  100 × 200 cells, half for the bonus
                                                            room: `mario`, needs that extra
    robots, PointMaze    a Box       1,000, 500             100 × 100 cells: `robots`

An environment of images may say more of itself: `info["position"]` (two numbers) at reset and every
step, and the attributes `action_names`, `coverage_axes`, `coverage_bounds`, `coverage_cells`,
`coverage_unit` and `coverage_start`, which mean what they mean in EnvSpec. In any other environment
its user says where the agent is (`positions`), or it is found (`finding`). Its map has no bounds;
without a position coverage counts other cells (`cells`).
"""

import functools
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from element_rl.envs.choices import Choices, FlatActions, with_plain_actions
from element_rl.envs.latents import LatentObservation, LatentSettings, parted_options
from element_rl.envs.measuring import coverage_fields
from element_rl.envs.names import (
    MARIO,
    gymnasium_id,
    reason_of,
    registered_name,
    registration_of,
    without_alias,
)
from element_rl.envs.positions import Pairs, checked_bounds
from element_rl.envs.robots import robot_fields, robot_of
from element_rl.envs.screens import Screen, no_image
from element_rl.envs.spec import EnvSpec
from element_rl.envs.vectors import OneImage, Vectors, seen_of
from element_rl.envs.versions import needs_older_mujoco

DEFAULT_EPISODE_STEPS = 1000  # for environments registered without a time limit
LONGEST_EPISODE = 10_000_000  # steps: hours of acting, and more than any replay holds twice
OURS = (LatentObservation, Screen, OneImage, Vectors, Choices, FlatActions)  # wrappers
Observations = Literal["vectors", "frames"]


class ImagesShownError(ValueError):
    """Agents would see frames in an environment that was to show vectors."""


def make_env(name: str, /, **env_options: Any) -> gymnasium.Env:
    """Environment ``name`` with its time limit, as agents act in it: it shows frames of `Screen` or
    flat vectors, and takes coordinates of a flat Box or a choice. ``env_options`` go to Gymnasium.
    Options of robots win over ours; `latent` is none of the environment's, but tells the agent a
    random vector (`latents`)."""
    options, latent = parted_options(env_options)
    name = registered_name(name)
    env = _as_agents_act(_made(name, options), name)
    return env if latent is None else _with_latent(env, latent)


def make_plain_env(name: str, /, **env_options: Any) -> gymnasium.Env:
    """The same with observations and actions as they come."""
    options, latent = parted_options(env_options)
    env = _made(registered_name(name), options)
    return env if latent is None else _with_latent(env, latent)


def _as_agents_act(env: gymnasium.Env, name: str) -> gymnasium.Env:
    """The environment in the form that agents take; closed, with a ValueError that says what to do,
    where it cannot be brought into it."""
    try:
        seen = seen_of(env.observation_space)
        env = with_plain_actions(env)
        if seen.image is not None:
            return Screen(OneImage(env) if seen.image.path else env)
        flat = isinstance(env.observation_space, gymnasium.spaces.Box)
        return env if flat and len(env.observation_space.shape or ()) == 1 else Vectors(env)
    except ValueError as error:
        env.close()
        raise ValueError(f"Environment {name!r} cannot be taken: {error}.") from error


def _with_latent(env: gymnasium.Env, latent: LatentSettings) -> LatentObservation:
    try:
        return LatentObservation(env, *latent)
    except ValueError:
        env.close()
        raise


def _made(name: str, env_options: Mapping[str, Any]) -> gymnasium.Env:
    """The environment of a registered name, with our defaults."""
    options = dict(env_options)
    if gymnasium_id(name) == "Ant-v5":
        options.setdefault("include_cfrc_ext_in_observation", False)
    limit = options.get("max_episode_steps")
    if limit is not None and not (isinstance(limit, int) and 1 <= limit <= LONGEST_EPISODE):
        raise ValueError(
            f"max_episode_steps must be a whole number from 1 to {LONGEST_EPISODE:,}, not "
            f"{limit!r}."
        )
    try:
        with warnings.catch_warnings():
            # Humanoid-v4 is asked for on purpose: it is the one of the paper.
            warnings.filterwarnings(
                "ignore", message=".*is out of date", category=DeprecationWarning
            )
            # A worker is given the registration; the module of the environment then registers it
            # again.
            warnings.filterwarnings(
                "ignore", message=".*Overriding environment", category=UserWarning
            )
            if limit is None and registration_of(name).max_episode_steps is None:
                options["max_episode_steps"] = DEFAULT_EPISODE_STEPS
            return gymnasium.make(gymnasium_id(name), disable_env_checker=True, **options)
    except Exception as error:  # an environment, and what it imports, may raise anything
        if older := needs_older_mujoco(error):
            raise ValueError(f"Environment {name!r} cannot be made: {older}.") from error
        needs = "install what it needs"
        advice = f"correct the options, or {needs}" if env_options else needs
        raise ValueError(
            f"Environment {name!r} cannot be made: {reason_of(error)}; {advice}."
        ) from error


@dataclass(frozen=True)
class EnvMaker:
    """Makes an environment in any process, also where nobody has run the code that registered
    it."""

    registration: gymnasium.envs.registration.EnvSpec
    options: Mapping[str, Any]
    make: Callable[..., gymnasium.Env]
    module: str = ""  # that registers it, where the name says one

    def __call__(self) -> gymnasium.Env:
        gymnasium.registry.setdefault(self.registration.id, self.registration)
        return self.make(self.registration.id, **self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        """A registration goes to other processes as it is; where it cannot (Shimmy's holds a
        function within a function), its module is imported there and registers it again."""
        registration: Any = self.registration
        if self.module and not _can_be_sent(registration):
            return _maker_of, (self.module, registration.id, self.options, self.make)
        return EnvMaker, (registration, self.options, self.make, self.module)


def _maker_of(
    module: str, registered_id: str, options: Mapping[str, Any], make: Callable[..., gymnasium.Env]
) -> EnvMaker:
    name = registered_name(f"{module}:{registered_id}")
    return EnvMaker(registration_of(name), options, make, module)


def _can_be_sent(registration: gymnasium.envs.registration.EnvSpec) -> bool:
    try:
        pickle.dumps(registration)
    except Exception:  # what cannot be pickled raises anything
        return False
    return True


def env_maker(
    name: str, options: Mapping[str, Any], make: Callable[..., gymnasium.Env] = make_env
) -> EnvMaker:
    """What makes environment ``name`` with these options; a ValueError where there is no such."""
    name = registered_name(name)
    return EnvMaker(registration_of(name), dict(options), make, name.rpartition(":")[0])


def describe(
    name: str,
    position: Sequence[str] = (),
    bounds: Pairs = (),
    observations: Observations | None = None,
    cell_size: Sequence[float] = (),
    /,
    **env_options: Any,
) -> EnvSpec:
    """The EnvSpec of environment ``name`` ("Ant" or "Ant-v5"), or a ValueError that says why it
    cannot be used.

    ``position``: where the agent is (`positions`); where it is empty, and the library does not
    know, it is looked for (`finding`). ``bounds``: of its map; without them it grows in cells of
    ``cell_size``, or of a size that is measured. ``observations``: those that the agent takes, with
    the actions that go with them; None for either. An environment that the library does not know is
    stepped.
    """
    name = registered_name(name)
    env = make_env(name, **env_options)
    try:
        _refuse_others(name, env, observations)
        known, own, latent_dim = _known(env, env_options)
        said = (position, bounds, cell_size)
        fields = known | _coverage_fields(own, name, known, *said) | {"latent_dim": latent_dim}
        return _spec(name, env, fields)
    finally:
        env.close()


def describe_spaces(
    name: str, observations: Observations | None = None, /, **env_options: Any
) -> EnvSpec:
    """The same without what coverage counts, unless the library knows it: nothing is stepped."""
    name = registered_name(name)
    env = make_env(name, **env_options)
    try:
        _refuse_others(name, env, observations)
        known, _, latent_dim = _known(env, env_options)
        return _spec(name, env, known | {"latent_dim": latent_dim})
    finally:
        env.close()


def _known(
    env: gymnasium.Env, env_options: Mapping[str, Any]
) -> tuple[dict[str, Any], gymnasium.Env, int]:
    """What is known of position and map, the environment that has them, and the width of z, which
    tells nothing of the world."""
    own, latent_dim = env, 0
    if isinstance(env, LatentObservation):
        own, latent_dim = env.env, env.settings.dim
    return _known_fields(own, parted_options(env_options)[0]), own, latent_dim


def _spec(name: str, env: gymnasium.Env, fields: Mapping[str, Any]) -> EnvSpec:
    assert env.spec is not None  # it comes from the registry
    return EnvSpec(
        name,
        env.observation_space.shape or (),
        int(env.spec.max_episode_steps),
        *_action_bounds(env),
        action_names=_action_names(env),
        left_out=seen_of(_beneath(env).observation_space).left_out,
        **fields,
    )


@functools.cache
def is_screen(name: str) -> bool:
    """Whether agents see frames of environment ``name``. Mario shows them, also where the emulator
    is not installed."""
    if without_alias(name) == MARIO:
        return True
    env = make_env(name)
    env.close()
    return isinstance(env, Screen)


def _beneath(env: gymnasium.Env) -> gymnasium.Env:
    """The environment without our wrappers."""
    while isinstance(env, OURS):
        env = env.env
    return env


def _refuse_others(name: str, env: gymnasium.Env, observations: Observations | None) -> None:
    """A ValueError where an environment has other spaces than agents can take, or than is asked
    for."""
    seen, acts = _beneath(env).observation_space, _beneath(env).action_space
    if observations == "vectors" and isinstance(env, Screen):
        raise ImagesShownError(
            f"Environment {name!r} shows images ({seen}), but vectors are needed: use `element "
            f"on-policy {name}`, or IntrinsicReplayBuffer with Stable-Baselines3's DQN or SAC "
            "(docs/sb3.md)."
        )
    if observations == "frames" and not isinstance(env, Screen):
        raise ValueError(no_image(name, seen))
    if 0 in (*(env.observation_space.shape or ()), *(env.action_space.shape or ())):
        raise ValueError(
            f"Environment {name!r} observes {seen} and acts in {acts}, and one of them has no "
            "numbers: there is nothing to learn."
        )
    if not isinstance(env.action_space, gymnasium.spaces.Box):
        return
    if observations == "frames":
        raise ValueError(
            f"Environment {name!r} acts in {acts}, but Discrete actions are needed: use "
            "IntrinsicReplayBuffer with Stable-Baselines3's SAC (docs/sb3.md)."
        )
    if not env.action_space.is_bounded():
        raise ValueError(
            f"Environment {name!r} has infinite action bounds ({acts}), and agents need finite "
            "ones: wrap it with gymnasium.wrappers.TransformAction and a bounded action space and "
            "register the result, or use IntrinsicCallback with Stable-Baselines3's PPO "
            "(docs/sb3.md)."
        )


def _action_bounds(env: gymnasium.Env) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of the coordinates of a Box; none of a choice."""
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box):
        return (), ()
    low, high = (tuple(bound.astype(np.float64).tolist()) for bound in (space.low, space.high))
    return low, high


def _action_names(env: gymnasium.Env) -> tuple[str, ...]:
    """What the environment calls its choices (the Atari games do), or their numbers; none of a
    Box."""
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        return ()
    numbers = tuple(str(choice) for choice in range(int(env.action_space.n)))
    own = env.unwrapped
    said: tuple[str, ...] = numbers
    if hasattr(own, "action_names"):
        said = tuple(own.action_names)
    elif hasattr(own, "get_action_meanings"):
        said = tuple(own.get_action_meanings())
    elif isinstance(chooser := _chooser(env), Choices):
        said = chooser.choice_names
    return said if len(said) == len(numbers) else numbers


def _chooser(env: gymnasium.Env) -> gymnasium.Env:
    """Our wrapper of the actions, or what is beneath all of them."""
    while isinstance(env, OURS) and not isinstance(env, Choices):
        env = env.env
    return env


def _known_fields(env: gymnasium.Env, env_options: Mapping[str, Any]) -> dict[str, Any]:
    """What the library knows of the position and its map, or an environment of images says of
    itself."""
    assert env.spec is not None
    if not isinstance(env, Screen):
        return robot_fields(env.spec.id, env_options)
    own = env.unwrapped
    fields = ("coverage_axes", "coverage_bounds", "coverage_cells", "coverage_start")
    said = {field: getattr(own, field) for field in fields if hasattr(own, field)}
    return {"position_dim": 2, "coverage_unit": getattr(own, "coverage_unit", ""), **said}


def _coverage_fields(
    env: gymnasium.Env,
    name: str,
    known: Mapping[str, Any],
    position: Sequence[str],
    bounds: Pairs,
    cell_size: Sequence[float],
) -> dict[str, Any]:
    """What the user has said of the position and its map, or what is found out."""
    if position or "coverage_bounds" not in known:
        return coverage_fields(env, name, position, bounds, cell_size)
    if cell_size:
        raise ValueError(
            f"--cell-size is of a map without bounds, and that of {name} has bounds: leave it out, "
            "or say with --position where the agent is."
        )
    if not bounds:
        return {}
    if robot_of(name) is None:
        raise ValueError(f"{name} says the bounds of its map itself: leave out --bounds.")
    (left, right), (low, high) = checked_bounds(bounds, 2).tolist()
    return {"coverage_bounds": ((left, right), (low, high))}
