"""What the library knows of an environment: its sizes, where the robot is and how it is turned, and
its coverage map.

The state of the paper is ``encoder(observation) ⊕ position ⊕ orientation``. For the four robots,
and the maze of this library,

    robot               observation        position      orientation               coverage map (100 × 100 cells)
    Hopper-v5           11-D               (x, z)        torso angle, 1-D          x ±25 m (0.5 m), z 0–2.5 m (2.5 cm)
    Walker2d-v5         17-D               (x, z)        torso angle, 1-D          x ±40 m (0.8 m), z 0–2.5 m (2.5 cm)
    Ant-v5              27-D (see below)   (x, y)        torso quaternion, 4-D     x, y ±100 m (2 m)
    Humanoid-v4, -v5    376-D, 348-D       (x, y)        torso quaternion, 4-D     x, y ±25 m (0.5 m)
    PointMaze-v0        2-D                (x, y)        none                      x, y 0–10 (0.1): `point_maze`

Ant-v5 is made without contact forces (``include_cfrc_ext_in_observation=False``), which gives the
paper's 27-D; pass the option to have the 105-D one. Humanoid-v4 is the paper's 376-D; -v5 (which
the short name "Humanoid" means) drops 28 entries that are always zero. Both run with current
MuJoCo. Any other Gymnasium environment with a flat Box observation and a bounded Box action works
too: its state is the encoder alone, and it has no coverage map, unless its user says where the
agent is (`positions`).

Why these maps: they are fixed, so that coverage can be compared between runs, methods and seeds. An
episode lasts at most 1000 steps: 8 s for Hopper and Walker2d, 50 s for Ant, 15 s for Humanoid. A
Hopper trained on the task reward does about 3 m/s and ends near 24 m, a Walker2d 5 m/s and 40 m, so
their maps hold a full-speed run in either direction. An Ant at 5 m/s gets 250 m away; explorers
turn, and one that may fall without ending its episode stays within about 100 m
(docs/results/coverage.md; maps of ±25 m and ±50 m, which this library had first, were filled to
their edges after 700k and 160k steps). Heights never exceed 2.5 m. What lies outside is counted in
the cells of the border.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Integer

from element_rl.envs.names import gymnasium_id, reason_of, registered_name, registration_of
from element_rl.envs.point_maze import SIZE, START  # and registers the maze
from element_rl.envs.positions import (
    Bounds,
    Pairs,
    Position,
    checked_bounds,
    own_map,
    parsed_position,
    read_position,
)

CELLS_PER_AXIS = 100
HEALTH_OPTION = "terminate_when_unhealthy"  # of the robots that can fall
DEFAULT_EPISODE_STEPS = 1000  # for environments registered without a time limit


@dataclass(frozen=True)
class EnvSpec:
    """All that the rest of the library needs to know of an environment; hashable, so it can be
    static under jit."""

    # as registered with Gymnasium, with its version, and with its package where that must be
    # imported
    name: str
    observation_dim: int
    action_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    max_episode_steps: int
    position_dim: int = 0
    orientation_slice: tuple[int, int] = (
        0,
        0,
    )  # where the torso's orientation stands in the observation
    coverage_axes: tuple[str, str] | None = None
    coverage_bounds: Bounds | None = None  # of the two axes
    # False for -v4 robots, whose infos lack it at reset or give the centre of mass
    position_in_info: bool = True
    position: Position = ()  # as the user says it: entries of info, or columns of the observation
    coverage_unit: str = "m"  # of positions
    coverage_start: tuple[float, float] | None = None  # about where episodes begin

    @property
    def orientation_dim(self) -> int:
        return self.orientation_slice[1] - self.orientation_slice[0]


def describe(
    name: str, position: Sequence[str] = (), bounds: Pairs = (), /, **env_options: Any
) -> EnvSpec:
    """The EnvSpec of environment ``name`` ("Ant" or "Ant-v5"), or a ValueError that says why it
    cannot be used.

    ``position``: entries of info, or columns of the observation, that say where the agent is;
    ``bounds``: of its map.
    """
    name = registered_name(name)
    env = make_env(name, **env_options)
    try:
        registration = env.spec
        assert registration is not None  # make_env goes through the registry
        observation_dim, action_low, action_high = _checked_spaces(name, env)
        return EnvSpec(
            name=name,
            observation_dim=observation_dim,
            action_dim=len(action_low),
            action_low=action_low,
            action_high=action_high,
            max_episode_steps=int(registration.max_episode_steps),
            **_robot_fields(registration.id, env_options)
            | _own_fields(env, name, position, bounds),
        )
    finally:
        env.close()


def can_fall(name: str) -> bool:
    """Whether the environment of this name has `HEALTH_OPTION`."""
    stem, _, version = gymnasium_id(name).rpartition("-v")
    robot = _ROBOTS.get(stem)
    return robot is not None and robot.can_fall and version in robot.versions


def make_env(name: str, **env_options: Any) -> gymnasium.Env:
    """Environment ``name`` with its time limit. ``env_options`` go to Gymnasium; those of the
    robots win over ours."""
    name = registered_name(name)
    options = dict(env_options)
    if gymnasium_id(name) == "Ant-v5":
        options.setdefault("include_cfrc_ext_in_observation", False)
    limit = options.get("max_episode_steps")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"max_episode_steps must be a positive whole number, not {limit!r}.")
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
        advice = (
            "correct the options, or install what it needs"
            if env_options
            else "install what it needs"
        )
        raise ValueError(
            f"Environment {name!r} cannot be made: {reason_of(error)}; {advice}."
        ) from error


def position_of(
    spec: EnvSpec,
    observation: Float[np.ndarray, " O"],
    info: Mapping[str, Any],
    env: gymnasium.Env | None = None,
) -> Float[np.ndarray, " position"]:
    """Where the torso is after ``reset`` or ``step`` gave ``observation`` and ``info``: (x, y), (x,
    z) or nothing. Where the user has said it, what that is.

    ``env`` is needed where the infos do not tell (``spec.position_in_info`` is False).
    """
    if spec.position:
        return read_position(spec.position, observation, info)
    if spec.coverage_axes is None:
        return np.zeros(0, np.float32)
    if not spec.position_in_info:
        assert env is not None, (
            f"{spec.name} tells its position only through the environment itself"
        )
        return env.unwrapped.data.qpos[:2].astype(np.float32)
    if spec.coverage_axes[1] == "y":
        return np.array((info["x_position"], info["y_position"]), np.float32)
    # The height stands in the observation just before the torso angle.
    return np.array((info["x_position"], observation[spec.orientation_slice[0] - 1]), np.float32)


def orientation_of(
    spec: EnvSpec, observation: Float[np.ndarray, "*batch O"]
) -> Float[np.ndarray, "*batch orientation"]:
    """The torso's quaternion (w, x, y, z), its angle in radians, or nothing: a slice of the
    observation."""
    first, last = spec.orientation_slice
    return observation[..., first:last]


def coverage_cell(
    spec: EnvSpec, positions: Float[np.ndarray, "*batch C"]
) -> Integer[np.ndarray, "*batch"]:
    """Index in [0, 10,000) of the map cell of each position: 100 · column + row, outside clipped to
    the border."""
    if spec.coverage_bounds is None:
        raise ValueError(
            f"Environment {spec.name!r} has no coverage map: say where the agent is with "
            "--position."
        )
    low, high = np.asarray(spec.coverage_bounds, np.float64).T
    # Clipped as floats: a position beyond the range of integers would wrap around.
    cells = np.clip(
        np.floor((positions[..., :2] - low) / (high - low) * CELLS_PER_AXIS), 0, CELLS_PER_AXIS - 1
    ).astype(np.int64)
    return np.asarray(cells[..., 0] * CELLS_PER_AXIS + cells[..., 1])


@dataclass(frozen=True)
class _Robot:
    coverage_axes: tuple[str, str]
    coverage_bounds: Bounds
    orientation_slice: tuple[int, int]
    # leading coordinates left out of the observation unless the user asks for them
    hidden_coordinates: int
    versions: tuple[str, ...] = ("4", "5")
    start: tuple[float, float] = (0.0, 0.0)  # on the map; resets add a little noise
    # Gymnasium ends the episode when it does, unless told otherwise by HEALTH_OPTION
    can_fall: bool = True


_SQUARE: Bounds = ((-25.0, 25.0), (-25.0, 25.0))
_LARGE_SQUARE: Bounds = ((-100.0, 100.0), (-100.0, 100.0))
_ROBOTS = {
    "Hopper": _Robot(
        ("x", "z"), ((-25.0, 25.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1, start=(0.0, 1.25)
    ),
    "Walker2d": _Robot(
        ("x", "z"), ((-40.0, 40.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1, start=(0.0, 1.25)
    ),
    "Ant": _Robot(("x", "y"), _LARGE_SQUARE, (1, 5), hidden_coordinates=2),
    "Humanoid": _Robot(("x", "y"), _SQUARE, (1, 5), hidden_coordinates=2),
    "PointMaze": _Robot(
        ("x", "y"),
        ((0.0, SIZE), (0.0, SIZE)),
        (0, 0),
        hidden_coordinates=0,
        versions=("0",),
        start=START,
        can_fall=False,
    ),
}


def _robot_fields(name: str, env_options: Mapping[str, Any]) -> dict[str, Any]:
    stem, _, version = name.rpartition("-v")
    robot = _ROBOTS.get(stem)
    if robot is None or version not in robot.versions:
        return {}
    hidden = env_options.get("exclude_current_positions_from_observation", True)
    shift = 0 if hidden else robot.hidden_coordinates
    return {
        "position_dim": 2,
        "orientation_slice": (
            robot.orientation_slice[0] + shift,
            robot.orientation_slice[1] + shift,
        ),
        "coverage_axes": robot.coverage_axes,
        "coverage_bounds": robot.coverage_bounds,
        "position_in_info": version != "4",
        "coverage_start": robot.start,
    }


def _own_fields(
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
    if not _robot_fields(gymnasium_id(name), {}):
        raise ValueError(
            "--bounds are of the map of the agent's positions: say with --position where it is."
        )
    (left, right), (low, high) = checked_bounds(bounds, 2).tolist()
    return {"coverage_bounds": ((left, right), (low, high))}


def _checked_spaces(
    name: str, env: gymnasium.Env
) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """Columns of the observation and bounds of the action; a refusal names what does take such an
    environment."""
    seen, acts, spaces = env.observation_space, env.action_space, gymnasium.spaces
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise ValueError(
            f"Environment {name!r} observes {seen}, but a flat Box is needed: "
            f"{_way_out(name, seen, acts)}."
        )
    if not isinstance(acts, spaces.Box) or len(acts.shape) != 1:
        raise ValueError(
            f"Environment {name!r} acts in {acts}, but a flat Box (continuous actions) is needed: "
            f"{_way_out(name, seen, acts)}."
        )
    if not acts.is_bounded():
        raise ValueError(
            f"Environment {name!r} has infinite action bounds ({acts}), and SAC needs finite ones: "
            "wrap it with "
            "gymnasium.wrappers.TransformAction and a bounded action space and register the "
            "result, or use "
            "IntrinsicCallback with Stable-Baselines3's PPO (docs/sb3.md)."
        )
    low, high = (tuple(bound.astype(np.float64).tolist()) for bound in (acts.low, acts.high))
    return seen.shape[0], low, high


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
