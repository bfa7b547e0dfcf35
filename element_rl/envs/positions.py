"""Where the agent is in an environment that the library does not know: as its user says it, and a
map for that.

    position    entries of `info`, there after every reset and step, or columns of the observation
    bounds      lowest and highest value on the axes of the map, the first two coordinates

Bounds that are not given are those of the observation's columns, where these are finite. Elsewhere
they are measured: the map reaches ten times as far from the start as random actions get in 1,000
steps. A random walk gets away from its start with the square root of time, an explorer with time
itself, so such a map has room for it; the same environment gets the same map in every run, whatever
its seed.
"""

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float

from element_rl.envs.names import reason_of

Position = tuple[str, ...] | tuple[int, ...]
# lowest and highest value of each coordinate, as users give them
Pairs = Sequence[Sequence[int | float]]
Bounds = tuple[tuple[float, float], tuple[float, float]]

MAP_AXES = 2
RANDOM_STEPS = 1000
STARTS = 10  # resets, to see where episodes begin
REACH = 10.0  # times the distance that random actions get from the start
SAME_START = 0.15  # of the map; starts that lie further apart have no mark


class OwnMap(NamedTuple):
    """What is known of a position and its map; no axes where there is one coordinate only."""

    axes: tuple[str, str] | None
    bounds: Bounds | None
    start: tuple[float, float] | None  # about where episodes begin, if they begin about one place


def parsed_position(words: Sequence[str]) -> Position:
    """Words of a command line: numbers are columns of the observation, all else are entries of
    `info`."""
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else tuple(words)


def read_position(
    position: Position, observation: Float[Any, " O"], info: Mapping[str, Any]
) -> Float[np.ndarray, " C"]:
    """Where the agent is after ``reset`` or ``step`` gave these."""
    if isinstance(position[0], int):
        return np.asarray(observation)[list(position)].astype(np.float32)
    try:
        return np.array([float(info[name]) for name in position], np.float32)
    except KeyError as error:
        entries = ", ".join(map(str, info)) or "none"
        raise ValueError(
            f"The info of a reset or step has no entry {error}, which --position names; it has "
            f"{entries}."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            "--position names entries of info that are no single numbers: "
            f"{', '.join(map(str, position))}."
        ) from error


def own_map(env: gymnasium.Env, name: str, position: Position, bounds: Pairs) -> OwnMap:
    """The map of an environment whose user says where the agent is. Steps the environment."""
    space = env.observation_space
    assert isinstance(space, gymnasium.spaces.Box)  # `describe` refuses others
    _refuse_columns(name, position, space.shape[0])
    starts = _starts(env, name, position)
    if len(position) < MAP_AXES:
        if bounds:
            raise ValueError(
                "--bounds are of a map, which has two axes: give --position two coordinates."
            )
        return OwnMap(None, None, None)
    start = starts.mean(axis=0)
    if bounds:
        limits = checked_bounds(bounds, MAP_AXES).tolist()
    else:
        known = column_bounds(space, position[:MAP_AXES])
        reached = (
            np.abs(_random_positions(env, name, position) - start).max(axis=0)
            if None in known
            else start
        )
        limits = [pair or _around(start[axis], reached[axis]) for axis, pair in enumerate(known)]
    (left, right), (low, high) = limits
    spread = np.ptp(starts, axis=0)[:MAP_AXES] / (right - left, high - low)
    mark = (float(start[0]), float(start[1])) if (spread <= SAME_START).all() else None
    first, second = (axis_name(coordinate) for coordinate in position[:MAP_AXES])
    return OwnMap((first, second), ((left, right), (low, high)), mark)


def column_bounds(
    space: gymnasium.spaces.Box, columns: Sequence[Any]
) -> list[tuple[float, float] | None]:
    """Lowest and highest value of columns of the observation; None where infinite, and for entries
    of `info`."""
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    pairs = [
        (0.0, np.inf) if isinstance(c, str) else (float(low[c]), float(high[c])) for c in columns
    ]
    infinite = float(np.finfo(np.float32).max)  # what some environments have for it
    return [pair if -infinite < pair[0] < pair[1] < infinite else None for pair in pairs]


def checked_bounds(bounds: Pairs, axes: int) -> Float[np.ndarray, "axes 2"]:
    """Bounds as an array, if they are finite pairs in order."""
    array = np.asarray(bounds, np.float64)
    if array.shape != (axes, 2):
        raise ValueError(
            f"bounds must be {axes} pairs (low, high), one for each coordinate, got {bounds}."
        )
    if not np.isfinite(array).all() or not (array[:, 0] < array[:, 1]).all():
        raise ValueError(
            f"bounds must be finite, and the first of each pair below the second, got {bounds}."
        )
    return array


def axis_name(coordinate: str | int) -> str:
    """What stands along an axis: x for x_position."""
    return (
        f"observation[{coordinate}]"
        if isinstance(coordinate, int)
        else coordinate.removesuffix("_position")
    )


def _starts(env: gymnasium.Env, name: str, position: Position) -> Float[np.ndarray, "E C"]:
    """Where some episodes begin; each takes one step, so that both kinds of info have been read."""
    try:
        starts = np.stack([_walk(env, position, seed, 1)[0] for seed in range(STARTS)]).astype(
            np.float64
        )
    except ValueError:
        raise
    except Exception as error:  # an environment may raise anything
        raise ValueError(
            f"Environment {name!r} fails at its first step: {reason_of(error)}."
        ) from error
    if not np.isfinite(starts).all():
        raise ValueError(
            f"Environment {name!r} begins at a position that is no finite number: "
            f"{starts[0].tolist()}."
        )
    return starts


def _random_positions(
    env: gymnasium.Env, name: str, position: Position
) -> Float[np.ndarray, "N C"]:
    """Where random actions lead in `RANDOM_STEPS` steps."""
    found: list[np.ndarray] = []
    env.action_space.seed(0)
    try:
        while len(found) < RANDOM_STEPS:
            found += _walk(env, position, len(found), RANDOM_STEPS - len(found))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(
            f"Environment {name!r} fails under random actions: {reason_of(error)}."
        ) from error
    return np.stack(found).astype(np.float64)


def _walk(env: gymnasium.Env, position: Position, seed: int, steps: int) -> list[np.ndarray]:
    """Positions of one episode of random actions, of so many steps at most."""
    observation, info = env.reset(seed=seed)
    found = [read_position(position, observation, info)]
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        found.append(read_position(position, observation, info))
        if terminated or truncated:
            break
    return found


def _around(start: float, reached: float) -> tuple[float, float]:
    """Bounds around the start, in round numbers."""
    reach = REACH * reached if np.isfinite(reached) and reached > 0 else 1.0
    digits = 1 - floor(log10(reach))
    low, high = round(float(start - reach), digits), round(float(start + reach), digits)
    return low, high


def _refuse_columns(name: str, position: Position, width: int) -> None:
    for column in position:
        if isinstance(column, int) and column >= width:
            raise ValueError(
                f"Environment {name!r} observes {width} numbers, so that there is no column "
                f"{column}."
            )
