"""What the library knows of an environment: its sizes, where the robot is and how it is turned, and its coverage map.

The state of the paper is ``encoder(observation) ⊕ position ⊕ orientation``. For the four robots, and the maze of this library,

    robot               observation        position      orientation               coverage map (100 × 100 cells)
    Hopper-v5           11-D               (x, z)        torso angle, 1-D          x ±25 m (0.5 m), z 0–2.5 m (2.5 cm)
    Walker2d-v5         17-D               (x, z)        torso angle, 1-D          x ±40 m (0.8 m), z 0–2.5 m (2.5 cm)
    Ant-v5              27-D (see below)   (x, y)        torso quaternion, 4-D     x, y ±100 m (2 m)
    Humanoid-v4, -v5    376-D, 348-D       (x, y)        torso quaternion, 4-D     x, y ±25 m (0.5 m)
    PointMaze-v0        2-D                (x, y)        none                      x, y 0–10 (0.1): `point_maze`

Ant-v5 is made without contact forces (``include_cfrc_ext_in_observation=False``), which gives the paper's 27-D; pass
the option to have the 105-D one. Humanoid-v4 is the paper's 376-D; -v5 (which the short name "Humanoid" means) drops 28
entries that are always zero. Both run with current MuJoCo. Any other Gymnasium environment with a flat Box observation
and a bounded Box action works too: its state is the encoder alone, and it has no coverage map.

Why these maps: they are fixed, so that coverage can be compared between runs, methods and seeds. An episode lasts at
most 1000 steps: 8 s for Hopper and Walker2d, 50 s for Ant, 15 s for Humanoid. A Hopper trained on the task reward does
about 3 m/s and ends near 24 m, a Walker2d 5 m/s and 40 m, so their maps hold a full-speed run in either direction.
An Ant at 5 m/s gets 250 m away; explorers turn, and one that may fall without ending its episode stays within about 100 m
(docs/results/coverage.md; maps of ±25 m and ±50 m, which this library had first, were filled to their edges after 700k
and 160k steps). Heights never exceed 2.5 m. What lies outside is counted in the cells of the border.
"""

import difflib
import importlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Integer

from element_rl.envs.point_maze import SIZE  # and registers the maze

CELLS_PER_AXIS = 100
HEALTH_OPTION = "terminate_when_unhealthy"  # of the robots that can fall
DEFAULT_EPISODE_STEPS = 1000  # for environments registered without a time limit

Bounds = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class EnvSpec:
    """All that the rest of the library needs to know of an environment; hashable, so it can be static under jit."""

    name: str  # as registered with Gymnasium, with its version
    observation_dim: int
    action_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    max_episode_steps: int
    position_dim: int = 0
    orientation_slice: tuple[int, int] = (0, 0)  # where the torso's orientation stands in the observation
    coverage_axes: tuple[str, str] | None = None
    coverage_bounds: Bounds | None = None  # of the two axes, in metres
    position_in_info: bool = True  # False for -v4 robots, whose infos lack it at reset or give the centre of mass

    @property
    def orientation_dim(self) -> int:
        return self.orientation_slice[1] - self.orientation_slice[0]


def describe(name: str, **env_options: Any) -> EnvSpec:
    """The EnvSpec of environment ``name`` ("Ant" or "Ant-v5"), or a ValueError that says why it cannot be used."""
    env = make_env(name, **env_options)
    try:
        registration = env.spec
        assert registration is not None  # make_env goes through the registry
        observation_dim, action_low, action_high = _checked_spaces(registration.id, env)
        return EnvSpec(
            name=registration.id,
            observation_dim=observation_dim,
            action_dim=len(action_low),
            action_low=action_low,
            action_high=action_high,
            max_episode_steps=int(registration.max_episode_steps),
            **_robot_fields(registration.id, env_options),
        )
    finally:
        env.close()


def can_fall(name: str) -> bool:
    """Whether the environment of this name has `HEALTH_OPTION`."""
    stem, _, version = name.rpartition("-v")
    robot = _ROBOTS.get(stem)
    return robot is not None and robot.can_fall and version in robot.versions


def make_env(name: str, **env_options: Any) -> gymnasium.Env:
    """Environment ``name`` with its time limit. ``env_options`` go to Gymnasium; those of the robots win over ours."""
    name = _registered_name(name)
    options = dict(env_options)
    if name == "Ant-v5":
        options.setdefault("include_cfrc_ext_in_observation", False)
    limit = options.get("max_episode_steps")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"max_episode_steps must be a positive whole number, not {limit!r}.")
    try:
        with warnings.catch_warnings():
            # Humanoid-v4 is asked for on purpose: it is the one of the paper.
            warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
            if limit is None and _time_limit(name) is None:
                options["max_episode_steps"] = DEFAULT_EPISODE_STEPS
            return gymnasium.make(name, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        advice = "correct the options, or install what it needs" if env_options else "install what it needs"
        raise ValueError(f"Environment {name!r} cannot be made: {reason}; {advice}.") from error


def position_of(
    spec: EnvSpec, observation: Float[np.ndarray, " O"], info: Mapping[str, Any], env: gymnasium.Env | None = None
) -> Float[np.ndarray, " position"]:
    """Where the torso is after ``reset`` or ``step`` gave ``observation`` and ``info``: (x, y), (x, z) or nothing.

    ``env`` is needed where the infos do not tell (``spec.position_in_info`` is False).
    """
    if spec.coverage_axes is None:
        return np.zeros(0, np.float32)
    if not spec.position_in_info:
        assert env is not None, f"{spec.name} tells its position only through the environment itself"
        return env.unwrapped.data.qpos[:2].astype(np.float32)
    if spec.coverage_axes[1] == "y":
        return np.array((info["x_position"], info["y_position"]), np.float32)
    # The height stands in the observation just before the torso angle.
    return np.array((info["x_position"], observation[spec.orientation_slice[0] - 1]), np.float32)


def orientation_of(
    spec: EnvSpec, observation: Float[np.ndarray, "*batch O"]
) -> Float[np.ndarray, "*batch orientation"]:
    """The torso's quaternion (w, x, y, z), its angle in radians, or nothing: a slice of the observation."""
    first, last = spec.orientation_slice
    return observation[..., first:last]


def coverage_cell(spec: EnvSpec, positions: Float[np.ndarray, "*batch 2"]) -> Integer[np.ndarray, "*batch"]:
    """Index in [0, 10,000) of the map cell of each position: 100 · column + row, outside clipped to the border."""
    if spec.coverage_bounds is None:
        raise ValueError(f"Environment {spec.name!r} has no coverage map; only {', '.join(_ROBOTS)} have one.")
    low, high = np.asarray(spec.coverage_bounds, np.float64).T
    # Clipped as floats: a position beyond the range of integers would wrap around.
    cells = np.clip(np.floor((positions - low) / (high - low) * CELLS_PER_AXIS), 0, CELLS_PER_AXIS - 1).astype(np.int64)
    return np.asarray(cells[..., 0] * CELLS_PER_AXIS + cells[..., 1])


@dataclass(frozen=True)
class _Robot:
    coverage_axes: tuple[str, str]
    coverage_bounds: Bounds
    orientation_slice: tuple[int, int]
    hidden_coordinates: int  # leading coordinates left out of the observation unless the user asks for them
    versions: tuple[str, ...] = ("4", "5")
    can_fall: bool = True  # Gymnasium ends the episode when it does, unless told otherwise by HEALTH_OPTION


_SQUARE: Bounds = ((-25.0, 25.0), (-25.0, 25.0))
_LARGE_SQUARE: Bounds = ((-100.0, 100.0), (-100.0, 100.0))
_ROBOTS = {
    "Hopper": _Robot(("x", "z"), ((-25.0, 25.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1),
    "Walker2d": _Robot(("x", "z"), ((-40.0, 40.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1),
    "Ant": _Robot(("x", "y"), _LARGE_SQUARE, (1, 5), hidden_coordinates=2),
    "Humanoid": _Robot(("x", "y"), _SQUARE, (1, 5), hidden_coordinates=2),
    "PointMaze": _Robot(
        ("x", "y"), ((0.0, SIZE), (0.0, SIZE)), (0, 0), hidden_coordinates=0, versions=("0",), can_fall=False
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
        "orientation_slice": (robot.orientation_slice[0] + shift, robot.orientation_slice[1] + shift),
        "coverage_axes": robot.coverage_axes,
        "coverage_bounds": robot.coverage_bounds,
        "position_in_info": version != "4",
    }


def _checked_spaces(name: str, env: gymnasium.Env) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    observation_space, action_space = env.observation_space, env.action_space
    if not isinstance(observation_space, gymnasium.spaces.Box) or len(observation_space.shape) != 1:
        raise ValueError(
            f"Environment {name!r} observes {observation_space}, but a flat Box is needed; wrap it with "
            "gymnasium.wrappers.FlattenObservation and register the result."
        )
    if not isinstance(action_space, gymnasium.spaces.Box) or len(action_space.shape) != 1:
        raise ValueError(f"Environment {name!r} acts in {action_space}, but a flat Box (continuous actions) is needed.")
    if not action_space.is_bounded():
        raise ValueError(
            f"Environment {name!r} has infinite action bounds ({action_space}); wrap it with "
            "gymnasium.wrappers.RescaleAction or give its action space finite bounds."
        )
    low, high = (tuple(bound.astype(np.float64).tolist()) for bound in (action_space.low, action_space.high))
    return observation_space.shape[0], low, high


def _registered_name(name: str) -> str:
    """``name`` as registered: the newest version if none is given; of "module:Env-v0" the module is imported first."""
    module, _, name = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"Module {module!r} of environment {name!r} cannot be imported: {error}.") from error
    if name in gymnasium.registry:
        return name
    versions = [int(entry.rpartition("-v")[2]) for entry in gymnasium.registry if _stem(entry) == name]
    if versions:
        return f"{name}-v{max(versions)}"
    entries = {entry.lower(): entry for entry in gymnasium.registry}
    nearest = [entries[match] for match in difflib.get_close_matches(name.lower(), sorted(entries), n=3, cutoff=0.5)]
    advice = f"did you mean {' or '.join(nearest)}?" if nearest else f"try one of {', '.join(_ROBOTS)}."
    raise ValueError(f"There is no environment {name!r}; {advice}")


def _stem(entry: str) -> str | None:
    match = re.fullmatch(r"(.+)-v\d+", entry)
    return match[1] if match else None


def _time_limit(name: str) -> int | None:
    return gymnasium.spec(name).max_episode_steps
