"""From the name of an environment to the environment, and to its description (`spec.EnvSpec`).

An environment observes flat vectors and acts in a bounded Box, or it shows images and takes one of
a few actions. Images become frames of 84 × 84 grey pixels (`screens.Screen`). Which of the two it
is, its spaces tell.

    name                 actions     steps of an episode    coverage map
    Rooms-v0             5           500                    49 × 37 tiles: `rooms`
    SuperMarioBros-1-1   12 or 16    1,000                  100 × 200 cells, half for the bonus
                                                            room: `mario`, needs that extra
    robots, PointMaze    a Box       1,000, 500             100 × 100 cells: `robots`

An environment of images has no coverage map, and its position is zero, unless it says more of
itself: `info["position"]` (two numbers) at reset and every step, and the attributes `action_names`,
`coverage_axes`, `coverage_bounds`, `coverage_cells`, `coverage_unit` and `coverage_start`, which
mean what they mean in EnvSpec. Of any other environment its user says where the agent is
(`positions`).
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from element_rl.envs.names import (
    MARIO,
    gymnasium_id,
    reason_of,
    registered_name,
    registration_of,
    without_alias,
)
from element_rl.envs.positions import Pairs, checked_bounds, own_map, parsed_position
from element_rl.envs.robots import robot_fields, robot_of
from element_rl.envs.screens import Screen, is_image
from element_rl.envs.spec import EnvSpec

DEFAULT_EPISODE_STEPS = 1000  # for environments registered without a time limit
LONGEST_EPISODE = 10_000_000  # steps: hours of acting, and more than any replay holds twice
Observations = Literal["vectors", "frames"]


def make_env(name: str, /, **env_options: Any) -> gymnasium.Env:
    """Environment ``name`` with its time limit, as agents act in it: images are frames of `Screen`
    where actions are a choice. ``env_options`` go to Gymnasium."""
    env = make_plain_env(name, **env_options)
    return Screen(env) if _shows_screen(env) else env


def make_plain_env(name: str, /, **env_options: Any) -> gymnasium.Env:
    """The same with observations as they come. Options of robots win over ours."""
    name = registered_name(name)
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

    def __call__(self) -> gymnasium.Env:
        gymnasium.registry.setdefault(self.registration.id, self.registration)
        return self.make(self.registration.id, **self.options)


def env_maker(
    name: str, options: Mapping[str, Any], make: Callable[..., gymnasium.Env] = make_env
) -> EnvMaker:
    """What makes environment ``name`` with these options; a ValueError where there is no such."""
    return EnvMaker(registration_of(registered_name(name)), dict(options), make)


def describe(
    name: str,
    position: Sequence[str] = (),
    bounds: Pairs = (),
    observations: Observations | None = None,
    /,
    **env_options: Any,
) -> EnvSpec:
    """The EnvSpec of environment ``name`` ("Ant" or "Ant-v5"), or a ValueError that says why it
    cannot be used.

    ``position``: entries of info, or columns of the observation, that say where the agent is;
    ``bounds``: of its map. ``observations``: those that the agent takes, with the actions that go
    with them; None for either.
    """
    name = registered_name(name)
    env = make_plain_env(name, **env_options)
    try:
        assert env.spec is not None  # it comes from the registry
        steps = int(env.spec.max_episode_steps)
        if observations == "frames" or (observations is None and _shows_screen(env)):
            return _described_screen(Screen(env), name, steps)
        low, high = _checked_spaces(name, env)
        fields = robot_fields(env.spec.id, env_options)
        fields |= _fields_of_user(env, name, position, bounds)
        return EnvSpec(name, env.observation_space.shape, steps, low, high, **fields)
    finally:
        env.close()


@functools.cache
def is_screen(name: str) -> bool:
    """Whether environment ``name`` shows images and takes one of a few actions. Mario does, also
    where the emulator is not installed."""
    if without_alias(name) == MARIO:
        return True
    env = make_plain_env(name)
    env.close()
    return _shows_screen(env)


def _shows_screen(env: gymnasium.Env) -> bool:
    return is_image(env.observation_space) and isinstance(
        env.action_space, gymnasium.spaces.Discrete
    )


def _described_screen(env: Screen, name: str, steps: int) -> EnvSpec:
    """What an environment of images says of itself."""
    own = env.unwrapped
    fields = ("coverage_axes", "coverage_bounds", "coverage_cells", "coverage_start")
    return EnvSpec(
        name,
        env.observation_space.shape,
        steps,
        action_names=_action_names(own, int(env.action_space.n)),
        position_dim=2,
        coverage_unit=getattr(own, "coverage_unit", ""),
        **{field: getattr(own, field) for field in fields if hasattr(own, field)},
    )


def _action_names(env: gymnasium.Env, actions: int) -> tuple[str, ...]:
    """What the environment calls its actions (the Atari games do), or their numbers."""
    if hasattr(env, "action_names"):
        return tuple(env.action_names)
    if hasattr(env, "get_action_meanings"):
        return tuple(env.get_action_meanings())
    return tuple(str(action) for action in range(actions))


def _fields_of_user(
    env: gymnasium.Env, name: str, position: Sequence[str], bounds: Pairs
) -> dict[str, Any]:
    """What the user has said of the position and its map."""
    if position:
        place = parsed_position(position)
        axes, limits, start = own_map(env, name, place, bounds)
        return {
            "position_dim": len(place),
            "position": place,
            "coverage_axes": axes,
            "coverage_bounds": limits,
            "coverage_unit": "",
            "coverage_start": start,
        }
    if not bounds:
        return {}
    if robot_of(name) is None:
        raise ValueError(
            "--bounds are of the map of the agent's positions: say with --position where it is."
        )
    (left, right), (low, high) = checked_bounds(bounds, 2).tolist()
    return {"coverage_bounds": ((left, right), (low, high))}


def _checked_spaces(name: str, env: gymnasium.Env) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds of the actions on flat vectors; a refusal names what does take such an
    environment."""
    seen, acts, spaces = env.observation_space, env.action_space, gymnasium.spaces
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise ValueError(
            f"Environment {name!r} observes {seen}, but a flat Box is needed: "
            f"{_way_out(name, seen, acts)}."
        )
    if 0 in (*seen.shape, *(acts.shape or ())):
        raise ValueError(
            f"Environment {name!r} observes {seen} and acts in {acts}, and one of them has no "
            "numbers: there is nothing to learn."
        )
    if not isinstance(acts, spaces.Box) or len(acts.shape) != 1:
        raise ValueError(
            f"Environment {name!r} acts in {acts}, but a flat Box (continuous actions) is needed: "
            f"{_way_out(name, seen, acts)}."
        )
    if not acts.is_bounded():
        raise ValueError(
            f"Environment {name!r} has infinite action bounds ({acts}), and SAC needs finite ones: "
            "wrap it with gymnasium.wrappers.TransformAction and a bounded action space and "
            "register the result, or use IntrinsicCallback with Stable-Baselines3's PPO "
            "(docs/sb3.md)."
        )
    low, high = (tuple(bound.astype(np.float64).tolist()) for bound in (acts.low, acts.high))
    return low, high


def _way_out(name: str, seen: gymnasium.Space, acts: gymnasium.Space) -> str:
    """What takes an environment that SAC on flat vectors cannot take."""
    spaces = gymnasium.spaces
    discrete, vector = (
        isinstance(acts, spaces.Discrete),
        isinstance(seen, spaces.Box) and len(seen.shape) == 1,
    )
    image = isinstance(seen, spaces.Box) and seen.dtype == np.uint8 and len(seen.shape) in (2, 3)
    buffer = (
        "IntrinsicDictReplayBuffer" if isinstance(seen, spaces.Dict) else "IntrinsicReplayBuffer"
    )
    plugin = "IntrinsicCallback with Stable-Baselines3's PPO"
    if isinstance(acts, spaces.Discrete | spaces.Box):
        plugin = f"{buffer} with Stable-Baselines3's {'DQN' if discrete else 'SAC'}"
    flatten = "wrap it with gymnasium.wrappers.FlattenObservation and register the result"
    ways = [f"use {plugin} (docs/sb3.md)"]
    if image and discrete:
        ways = [f"use `element on-policy {name}`", *ways]
    elif isinstance(seen, spaces.Tuple) and discrete:
        ways = [f"{flatten}, then {ways[0]}"]
    elif not (vector or image or discrete):
        ways = [flatten, *ways]
    return ", or ".join(
        [*ways, "measure an agent of your own with the wrapper ExplorationInfo (docs/wrapper.md)"]
    )
