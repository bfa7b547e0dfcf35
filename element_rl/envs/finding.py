"""Where the agent is in an environment that the library does not know, found by itself.

Looked at, in this order, unless the user says it:

    info["position"]             numbers, at reset and step
    achieved_goal                of a Dict observation, as Gymnasium-Robotics has it: its columns of
                                 the vector that the agent sees
    info x_position, y_position  as Gymnasium's robots have it
    MuJoCo's root                x and y of a body that moves freely; x and y, or x and z, of one
                                 that slides along two axes. dm_control's through Shimmy, too
    agent_pos                    the tile, in MiniGrid
    an Atari game's memory       where its addresses are known (`atari`)
    two columns                  an observation of two numbers is a position

What was found is a position as the user could have said it (`positions`), and is stored as such in
the settings of a run: so the run has it also when a later version finds another.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from element_rl.envs import atari
from element_rl.envs.positions import MAP_AXES, Position
from element_rl.envs.vectors import Vectors, seen_of

GOAL = "achieved_goal"
FREE, SLIDE = 0, 2  # MuJoCo's numbers of joints
TILE_CELLS = 10  # along the side of a tile of a maze
MOST_NUMBERS = 3  # of info["position"]: more are no place


class Found(NamedTuple):
    """A position, and what its map should know."""

    position: Position
    what: str  # in words
    axes: tuple[str, str] = ("x", "y")
    cell: tuple[float, float] | None = None  # sides of a cell; None: measured
    unit: str = ""
    # columns of the observation that say which way the agent looks
    orientation: tuple[int, int] = (0, 0)


def find_position(
    env: gymnasium.Env, info: Mapping[str, Any], later: Mapping[str, Any]
) -> Found | None:
    """The first of these that the environment has; None where it has none. `info` is that of a
    reset, `later` that of a step."""
    finders: tuple[Callable[[], Found | None], ...] = (
        lambda: _entry(info, later),
        lambda: _goal(env),
        lambda: _coordinates(info, later),
        lambda: _root(env),
        lambda: _tile(env),
        lambda: _memory(env),
        lambda: _two_columns(env),
    )
    return next((found for find in finders if (found := find()) is not None), None)


def _entry(info: Mapping[str, Any], later: Mapping[str, Any]) -> Found | None:
    widths = [_width(told.get("position")) for told in (info, later)]
    if widths[0] != widths[1] or not MAP_AXES <= widths[0] <= MOST_NUMBERS:
        return None
    return Found(("position",), f"the entry position of info ({widths[0]} numbers)")


def _width(value: Any) -> int:
    """Numbers in a list of numbers; 0 of anything else."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return 0
    return len(array) if value is not None and array.ndim == 1 else 0


def _goal(env: gymnasium.Env) -> Found | None:
    columns = columns_of(env, GOAL)
    if columns is None or not MAP_AXES <= columns[1] - columns[0] <= MOST_NUMBERS:
        return None
    return Found(tuple(range(*columns)), f"{GOAL} of the observation", cell=_part_of_a_tile(env))


def _part_of_a_tile(env: gymnasium.Env) -> tuple[float, float] | None:
    """Sides of a cell in a maze of Gymnasium-Robotics, whose episodes begin anywhere in it: how far
    random actions get tells nothing of its corridors, and the side of its tiles does."""
    side = getattr(getattr(env.unwrapped, "maze", None), "maze_size_scaling", None)
    if not isinstance(side, int | float) or not 0 < side < np.inf:
        return None
    return (side / TILE_CELLS,) * 2


def columns_of(env: gymnasium.Env, entry: str) -> tuple[int, int] | None:
    """Where an entry of a Dict observation stands in the vector that the agent sees: first and last
    + 1 column; None where it stands nowhere."""
    wrapper: gymnasium.Env = env
    while isinstance(wrapper, gymnasium.Wrapper) and not isinstance(wrapper, Vectors):
        wrapper = wrapper.env
    if not isinstance(wrapper, Vectors):
        return None
    return wrapper.columns_of(entry)


def _coordinates(info: Mapping[str, Any], later: Mapping[str, Any]) -> Found | None:
    names = ("x_position", "y_position")
    if not all(np.isscalar(told.get(name)) for told in (info, later) for name in names):
        return None
    return Found(names, "the entries x_position and y_position of info")


def _root(env: gymnasium.Env) -> Found | None:
    for path in ("", "_env.physics.", "physics."):
        holder: Any = env.unwrapped
        for name in path.split(".")[:-1]:
            holder = getattr(holder, name, None)
        model, data = (getattr(holder, name, None) for name in ("model", "data"))
        if hasattr(model, "jnt_type") and hasattr(data, "qpos"):
            return _root_of(model, f"env.{path}data.qpos")
    return None


def _root_of(model: Any, array: str) -> Found | None:
    """Of the body of the first joint, where that is not held by another."""
    types, bodies = np.asarray(model.jnt_type), np.asarray(model.jnt_bodyid)
    if not len(types) or np.asarray(model.body_parentid)[bodies[0]] != 0:
        return None
    first = int(np.asarray(model.jnt_qposadr)[0])
    if types[0] == FREE:
        word = f"{array}[{first}:{first + MAP_AXES}]"
        return Found((word,), f"x and y of MuJoCo's root body ({word})", unit="m")
    if len(types) < MAP_AXES or bodies[1] != bodies[0] or (types[:MAP_AXES] != SLIDE).any():
        return None
    directions = np.abs(np.asarray(model.jnt_axis)[:MAP_AXES]).argmax(axis=1)
    along = {"xyz"[int(direction)]: first + slide for slide, direction in enumerate(directions)}
    axes = ("x", "y") if set(along) == {"x", "y"} else ("x", "z")
    if set(along) != set(axes):
        return None
    columns = [along[axis] for axis in axes]
    words: tuple[str, ...] = (f"{array}[{first}:{first + MAP_AXES}]",)
    if columns != sorted(columns):  # dm_control's walker slides upwards first
        words = tuple(f"{array}[{column}]" for column in columns)
    what = f"{axes[0]} and {axes[1]} of MuJoCo's root body ({' '.join(words)})"
    return Found(words, what, axes, unit="m")


def _tile(env: gymnasium.Env) -> Found | None:
    own: Any = env.unwrapped
    if not hasattr(own, "agent_pos") or not hasattr(own, "agent_dir"):
        return None
    looks = columns_of(env, "direction")
    also = "" if looks is None else "; its direction is its orientation"
    return Found(
        ("env.agent_pos",),
        f"the tile of the agent (env.agent_pos{also})",
        cell=(1.0, 1.0),
        unit="tiles",
        orientation=looks or (0, 0),
    )


def _memory(env: gymnasium.Env) -> Found | None:
    if atari.known_game(env) is None:
        return None
    return Found(
        (atari.RAM,),
        "the player's place in the game's memory, each room in its own part of the map",
        cell=atari.CELL,
        unit="pixels",
    )


def _two_columns(env: gymnasium.Env) -> Found | None:
    space = env.observation_space
    if seen_of(space).image is not None or space.shape != (MAP_AXES,):
        return None
    return Found(
        (0, 1), "the observation, which has two numbers", ("observation[0]", "observation[1]")
    )
