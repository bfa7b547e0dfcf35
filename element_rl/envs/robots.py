"""The robots whose position, orientation and coverage map the library knows.

The state of the paper is ``encoder(observation) ⊕ position ⊕ orientation``. For its four robots,
one that nobody tuned on, and the maze of this library,

    robot             observation       position  orientation           coverage map (100 × 100)
    Hopper-v5         11-D              (x, z)    torso angle, 1-D      x ±25 m, z 0–2.5 m
    Walker2d-v5       17-D              (x, z)    torso angle, 1-D      x ±40 m, z 0–2.5 m
    Ant-v5            27-D (see below)  (x, y)    torso quaternion, 4-D x, y ±100 m
    Humanoid-v4, -v5  376-D, 348-D      (x, y)    torso quaternion, 4-D x, y ±25 m
    HalfCheetah-v5    17-D              (x, z)    torso angle, 1-D      x ±100 m, z −1–1.5 m
    PointMaze-v0      2-D               (x, y)    none                  x, y 0–10: `point_maze`

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
their edges after 700k and 160k steps). Heights never exceed 2.5 m; a HalfCheetah's are counted from
where it stands. What lies outside is counted in the cells of the border.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from element_rl.envs.names import gymnasium_id
from element_rl.envs.point_maze import SIZE, START  # and registers the maze
from element_rl.envs.positions import Bounds

HEALTH_OPTION = "terminate_when_unhealthy"  # of the robots that can fall


@dataclass(frozen=True)
class Robot:
    """What is known of a robot besides its spaces."""

    coverage_axes: tuple[str, str]
    coverage_bounds: Bounds
    orientation_slice: tuple[int, int]
    # leading coordinates left out of the observation unless the user asks for them
    hidden_coordinates: int
    versions: tuple[str, ...] = ("4", "5")
    start: tuple[float, float] = (0.0, 0.0)  # on the map; resets add a little noise
    # Gymnasium ends the episode when it does, unless told otherwise by HEALTH_OPTION
    can_fall: bool = True
    # whether its embedding, position and orientation are comparable as they are
    # (docs/results/calibration.md)
    units_fit: bool = True


_SQUARE: Bounds = ((-25.0, 25.0), (-25.0, 25.0))
_LARGE_SQUARE: Bounds = ((-100.0, 100.0), (-100.0, 100.0))
ROBOTS = {
    "Hopper": Robot(
        ("x", "z"), ((-25.0, 25.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1, start=(0.0, 1.25)
    ),
    "Walker2d": Robot(
        ("x", "z"), ((-40.0, 40.0), (0.0, 2.5)), (1, 2), hidden_coordinates=1, start=(0.0, 1.25)
    ),
    "Ant": Robot(("x", "y"), _LARGE_SQUARE, (1, 5), hidden_coordinates=2),
    "Humanoid": Robot(("x", "y"), _SQUARE, (1, 5), hidden_coordinates=2, units_fit=False),
    "HalfCheetah": Robot(
        ("x", "z"),
        ((-100.0, 100.0), (-1.0, 1.5)),
        (1, 2),
        hidden_coordinates=1,
        can_fall=False,
        units_fit=False,
    ),
    "PointMaze": Robot(
        ("x", "y"),
        ((0.0, SIZE), (0.0, SIZE)),
        (0, 0),
        hidden_coordinates=0,
        versions=("0",),
        start=START,
        can_fall=False,
    ),
}


def robot_of(name: str) -> Robot | None:
    """The robot of the environment of this name; None for all others."""
    stem, _, version = gymnasium_id(name).rpartition("-v")
    robot = ROBOTS.get(stem)
    return robot if robot is not None and version in robot.versions else None


def can_fall(name: str) -> bool:
    """Whether the environment of this name has `HEALTH_OPTION`."""
    robot = robot_of(name)
    return robot is not None and robot.can_fall


def units_fit(name: str) -> bool:
    """Whether the states of the environment of this name need no calibration; nobody knows it of
    one that is no robot of the table."""
    robot = robot_of(name)
    return robot is not None and robot.units_fit


def robot_fields(name: str, env_options: Mapping[str, Any]) -> dict[str, Any]:
    """What an `EnvSpec` says of a robot; nothing of other environments."""
    robot = robot_of(name)
    if robot is None:
        return {}
    hidden = env_options.get("exclude_current_positions_from_observation", True)
    shift = 0 if hidden else robot.hidden_coordinates
    first, last = robot.orientation_slice
    return {
        "position_dim": 2,
        "orientation_slice": (first + shift, last + shift),
        "coverage_axes": robot.coverage_axes,
        "coverage_bounds": robot.coverage_bounds,
        "position_in_info": not name.endswith("-v4"),
        "coverage_start": robot.start,
    }
