"""What coverage counts in an environment that the library does not know, found out by stepping it.

Where there is a position, its map has no bounds, and cells of a fixed size. The size is decided by
the environment alone, so that runs of every reward and seed share their cells:

    tiles       1, where positions are whole numbers that change by 1
    mazes       a tenth of a tile, in those of Gymnasium-Robotics
    columns     a hundredth of the bounds of the observation's columns, where these are finite
    all else    a fifth of how far random actions get from the start in 1,000 steps. A random walk
                gets away with the square root of time, an explorer with time itself: at the speed
                of the one the other crosses hundreds of cells

rounded to 1, 2 or 5 times a power of ten, and the same along both axes where these are x and y.
Where there is no position, cells are those of the observation (`cells`).
"""

from collections.abc import Mapping, Sequence
from math import floor, log10, sqrt
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float

from element_rl.envs.cells import DifferentPictures, OtherCells, state_cells
from element_rl.envs.finding import Found, find_position
from element_rl.envs.names import reason_of
from element_rl.envs.positions import (
    MAP_AXES,
    Pairs,
    Position,
    axis_names,
    checked_bounds,
    column_bounds,
    parsed_position,
    read_position,
    refuse_columns,
)

RANDOM_STEPS = 1000
STARTS = 10  # resets, to see where episodes begin
REACH = 5.0  # cells that random actions get away from the start
BOUNDED = 100  # cells between the bounds of a column
SAME_START = 15  # cells; starts that lie further apart have no mark

Sides = tuple[float, float]


class Moment(NamedTuple):
    """What a reset or a step gave."""

    observation: Any
    info: Mapping[str, Any]
    position: Float[np.ndarray, " C"]


def coverage_fields(
    env: gymnasium.Env, name: str, words: Sequence[str], bounds: Pairs, cell_size: Sequence[float]
) -> dict[str, Any]:
    """What an `EnvSpec` says of the position and the map. Steps the environment."""
    frames = len(env.observation_space.shape or ()) > 1
    try:
        found = _found(env)
        position = parsed_position(words) if words else found.position if found else ()
        if not position:
            _refuse_map(bounds, cell_size)
            return _without_map(MAP_AXES if frames else 0) | _other_cells(env, frames)
    except _StepError as failed:
        if words:
            raise ValueError(f"Environment {name!r} fails at its first step: {failed}.") from failed
        return {}  # whoever acts in it will say what is wrong
    if not frames:
        refuse_columns(name, position, (env.observation_space.shape or (0,))[0])
    elif any(isinstance(coordinate, int) for coordinate in position):
        raise ValueError(
            f"--position names columns of vectors, and agents see frames of {name}: name entries "
            "of info, or attributes of the environment."
        )
    known = found if found is not None and found.position == position else None
    starts = _starts(env, name, position)
    width = min(starts.shape[1], MAP_AXES) if frames else starts.shape[1]
    fields = {
        "position": position,
        "position_dim": width,
        "found": known.what if known is not None and not words else "",
        "coverage_unit": known.unit if known is not None else "",
    }
    if known is not None and known.orientation != (0, 0):
        fields["orientation_slice"] = known.orientation
    if width < MAP_AXES:
        _refuse_map(bounds, cell_size)
        return fields | _without_map(width) | _other_cells(env, frames)
    axes = known.axes if known is not None else axis_names(position)
    map_fields = _map_fields(env, name, position, known, axes, starts, bounds, cell_size)
    return fields | {"coverage_axes": axes} | map_fields


def _without_map(width: int) -> dict[str, Any]:
    """Of positions of so many numbers, also where the library knows of others."""
    return {"position_dim": width, "coverage_axes": None, "coverage_bounds": None}


def _refuse_map(bounds: Pairs, cell_size: Sequence[float]) -> None:
    if bounds or cell_size:
        option = "--bounds are" if bounds else "--cell-size is"
        raise ValueError(
            f"{option} of a map, which has two axes: give --position two coordinates, which say "
            "where the agent is."
        )


def _map_fields(
    env: gymnasium.Env,
    name: str,
    position: Position,
    known: Found | None,
    axes: tuple[str, str],
    starts: Float[np.ndarray, "E C"],
    bounds: Pairs,
    cell_size: Sequence[float],
) -> dict[str, Any]:
    if bounds and cell_size:
        raise ValueError(
            "--bounds make a map of 100 × 100 cells, and --cell-size one without bounds: leave one "
            "of them out."
        )
    limits, sides = None, None
    if bounds:
        (left, right), (low, high) = checked_bounds(bounds, MAP_AXES).tolist()
        limits = ((left, right), (low, high))
        each = np.array([right - left, high - low]) / BOUNDED
    else:
        sides = _checked_size(cell_size) or (known.cell if known is not None else None)
        sides = sides or _measured_size(env, name, position, axes, starts)
        each = np.array(sides)
    start, spread = starts.mean(axis=0), np.ptp(starts, axis=0)[:MAP_AXES] / each
    mark = (float(start[0]), float(start[1])) if (spread <= SAME_START).all() else None
    return {"coverage_bounds": limits, "coverage_cell_size": sides, "coverage_start": mark}


def _checked_size(cell_size: Sequence[float]) -> Sides | None:
    if not cell_size:
        return None
    if len(cell_size) not in (1, MAP_AXES) or not all(0 < side < np.inf for side in cell_size):
        raise ValueError(
            "--cell-size is one positive number, or two, for the sides of a cell along both axes "
            f"of the map; got {' '.join(f'{side:g}' for side in cell_size)}."
        )
    return float(cell_size[0]), float(cell_size[-1])


def _measured_size(
    env: gymnasium.Env,
    name: str,
    position: Position,
    axes: tuple[str, str],
    starts: Float[np.ndarray, "E C"],
) -> Sides:
    known: Sequence[Any] = [None, None]
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Box) and all(isinstance(c, int) for c in position):
        known = column_bounds(space, position[:MAP_AXES])
    sides = [None if pair is None else (pair[1] - pair[0]) / BOUNDED for pair in known]
    if None in sides:
        walks = _random_walks(env, name, position)
        measured = _reach(walks, starts)
        sides = [own or side for own, side in zip(sides, measured, strict=True)]
    first, second = (rounded(float(side or 0.0)) for side in sides)
    if first == 0 or second == 0:  # an axis along which nothing moves takes the other's
        first, second = first or second or 1.0, second or first or 1.0
    return (max(first, second),) * 2 if axes == ("x", "y") else (first, second)


def _reach(
    walks: Sequence[Float[np.ndarray, "_ C"]], starts: Float[np.ndarray, "E C"]
) -> list[float]:
    """The side of a cell along each axis, before it is rounded."""
    together = np.concatenate(walks)[:, :MAP_AXES]
    moves = np.abs(np.concatenate([np.diff(walk, axis=0) for walk in walks]))[:, :MAP_AXES]
    if (together == np.round(together)).all() and moves.max(initial=0.0) == 1.0:
        return [1.0] * MAP_AXES
    reached = np.abs(together - starts.mean(axis=0)[:MAP_AXES]).max(axis=0)
    return [float(side) if np.isfinite(side) else 0.0 for side in reached / REACH]


def rounded(side: float) -> float:
    """The nearest of 1, 2 and 5 times a power of ten; 0 of 0."""
    if side <= 0:
        return 0.0
    power = floor(log10(side))
    digit = side / 10.0**power
    nearest = 1 if digit < sqrt(2) else 2 if digit < sqrt(10) else 5 if digit < sqrt(50) else 10
    return float(f"{nearest}e{power}")


class _StepError(Exception):
    """The environment, or what reads its position, has raised."""


def _found(env: gymnasium.Env) -> Found | None:
    """What a look at the environment finds; under the frames, whose infos always have a
    position."""
    within = env.env if isinstance(env, gymnasium.Wrapper) and _is_screen(env) else env
    try:
        _, info = within.reset(seed=0)
        within.action_space.seed(0)
        *_, later = within.step(within.action_space.sample())
        told = [dict(one) if isinstance(one, Mapping) else {} for one in (info, later)]
        return find_position(env, told[0], told[1])
    except Exception as error:  # an environment may raise anything
        raise _StepError(reason_of(error)) from error


def _is_screen(env: gymnasium.Env) -> bool:
    return len(env.observation_space.shape or ()) > 1


def _other_cells(env: gymnasium.Env, frames: bool) -> dict[str, OtherCells]:
    """What is counted where there is no map; nothing where random actions fail: whoever acts there
    will say what is wrong."""
    if frames:
        return {"other_cells": DifferentPictures()}
    try:
        seen = np.concatenate([[moment.observation for moment in walk] for walk in _walks(env, ())])
    except _StepError:
        return {}
    return {"other_cells": state_cells(seen)} if np.isfinite(seen).all() else {}


def _starts(env: gymnasium.Env, name: str, position: Position) -> Float[np.ndarray, "E C"]:
    """Where some episodes begin; each takes one step, so that both kinds of info have been read."""
    try:
        walks = [_walk(env, position, seed, 1) for seed in range(STARTS)]
        widths = {len(moment.position) for walk in walks for moment in walk}
    except _StepError as failed:
        raise ValueError(f"Environment {name!r} fails at its first step: {failed}.") from failed
    if len(widths) > 1:
        raise ValueError(
            f"The position of {name!r} has {' and '.join(map(str, sorted(widths)))} numbers by "
            "turns, and must always have as many."
        )
    starts = np.stack([walk[0].position for walk in walks]).astype(np.float64)
    if not np.isfinite(starts).all():
        raise ValueError(
            f"Environment {name!r} begins at a position that is no finite number: "
            f"{starts[0].tolist()}."
        )
    return starts


def _random_walks(
    env: gymnasium.Env, name: str, position: Position
) -> list[Float[np.ndarray, "_ C"]]:
    """Where random actions lead, episode by episode."""
    try:
        return [
            np.stack([moment.position for moment in walk]).astype(np.float64)
            for walk in _walks(env, position)
        ]
    except _StepError as failed:
        raise ValueError(f"Environment {name!r} fails under random actions: {failed}.") from failed


def _walks(env: gymnasium.Env, position: Position) -> list[list[Moment]]:
    """`RANDOM_STEPS` random actions, in as many episodes as that takes."""
    walks: list[list[Moment]] = []
    env.action_space.seed(0)
    taken = 0
    while taken < RANDOM_STEPS:
        walks.append(_walk(env, position, taken, RANDOM_STEPS - taken))
        taken += len(walks[-1])
    return walks


def _walk(env: gymnasium.Env, position: Position, seed: int, steps: int) -> list[Moment]:
    """One episode of random actions, of so many steps at most. What the user is to be told of the
    position is a ValueError as it is."""
    told: list[tuple[Any, Any]] = []
    moments = []
    shape = env.observation_space.shape

    def keep(observation: Any, info: Any) -> None:
        if shape is not None and np.shape(observation) != shape:
            shown = type(observation).__name__
            raise _StepError(
                f"it shows {shown} of shape {np.shape(observation)} instead of {shape}"
            )
        told.append((observation, info))
        place = read_position(position, observation, info, env) if position else np.zeros(0)
        moments.append(Moment(np.array(observation), info, place))

    try:
        reset = env.reset(seed=seed)
    except Exception as error:  # an environment may raise anything
        raise _StepError(reason_of(error)) from error
    keep(*reset)
    for _ in range(steps):
        try:
            observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        except Exception as error:
            raise _StepError(reason_of(error)) from error
        keep(observation, info)
        if terminated or truncated:
            break
    return moments
