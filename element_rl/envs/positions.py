"""Where the agent is in an environment that the library does not know: how it is said, and read.

A position is a list of coordinates. Each is one or several numbers, read after every reset and
step:

    3, obs[3], obs[0:2]          columns of the observation that the agent sees
    x_position, info[position]   entries of `info`, numbers or lists of them; info[position][0:2]
    env.data.qpos[0:2]           attributes of the environment (of `env.unwrapped`)
    atari-ram                    the memory of an Atari game that the library knows (`atari`)
    place.py:where               a function of yours of (observation, info, env), in a file

The first two numbers are the axes of the map. What the user does not say is looked for (`finding`);
`none` says that there is no position.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from element_rl.envs.atari import RAM, game_of

Coordinate = str | int
Position = tuple[Coordinate, ...]
Read = Callable[[Any, Mapping[str, Any], gymnasium.Env | None], Any]
# lowest and highest value of each coordinate, as users give them
Pairs = Sequence[Sequence[int | float]]
Bounds = tuple[tuple[float, float], tuple[float, float]]

NONE = "none"  # said instead of a position: there is none
MAP_AXES = 2

_SLICE = r"(?:\[(\d+)(?::(\d+))?\])?"
_COLUMNS = re.compile(r"obs(?:ervation)?\[(\d+)(?::(\d+))?\]")
_ENTRY = re.compile(rf"info\[['\"]?([^\[\]'\"]+)['\"]?\]{_SLICE}")
_ATTRIBUTE = re.compile(rf"env\.((?:[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*){_SLICE}")
_FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def parsed_position(words: Sequence[str]) -> Position:
    """Words of a command line as coordinates; columns are numbers. None of `none`."""
    if NONE in words:
        if len(words) > 1:
            raise ValueError(
                f"--position {' '.join(words)}: {NONE} says that there is no position, and nothing "
                "can stand beside it."
            )
        return ()
    return tuple(coordinate for word in words for coordinate in _parsed(word))


def _parsed(word: str) -> tuple[Coordinate, ...]:
    if word.isdecimal():
        return (int(word),)
    if match := _COLUMNS.fullmatch(word):
        part = _part(word, match[1], match[2])
        return tuple(range(part.start, part.stop))
    if (match := _ENTRY.fullmatch(word)) and match[2] is None:
        return (match[1],)  # as without brackets
    if "[" in word and not (_ENTRY.fullmatch(word) or _ATTRIBUTE.fullmatch(word)):
        raise ValueError(
            f"--position {word} is none that can be read: columns are obs[0] or obs[0:2], entries "
            "of info are NAME or info[NAME][0:2], attributes of the environment env.NAME[0:2]."
        )
    for match in (_ENTRY.fullmatch(word), _ATTRIBUTE.fullmatch(word)):
        if match and match[2] is not None:
            _part(word, match[2], match[3])  # refuses empty ones
    return (word,)


def _part(word: str, first: str, last: str | None) -> slice:
    """The part of an array that stands in brackets."""
    part = slice(int(first), int(first) + 1 if last is None else int(last))
    if part.stop <= part.start:
        raise ValueError(f"--position {word} names no number: the second must be above the first.")
    return part


def read_position(
    position: Position,
    observation: Any,
    info: Mapping[str, Any],
    env: gymnasium.Env | None = None,
) -> Float[np.ndarray, " C"]:
    """Where the agent is after ``reset`` or ``step`` of ``env`` gave these."""
    columns, reads = _reads(position)
    if columns is not None:
        return np.asarray(observation)[columns].astype(np.float32)
    parts = [read(observation, info, env) for read in reads]
    try:
        found = np.concatenate([np.atleast_1d(np.asarray(part, np.float32)) for part in parts])
    except (TypeError, ValueError) as error:
        raise ValueError(
            "--position names what is no number and no list of numbers: "
            f"{', '.join(map(str, position))}."
        ) from error
    return found


@functools.lru_cache
def _reads(position: Position) -> tuple[list[int] | None, list[Read]]:
    """What reads each coordinate; where all are columns, these, which are read in one go."""
    if all(isinstance(coordinate, int) for coordinate in position):
        return [int(coordinate) for coordinate in position], []
    return None, [_read_of(coordinate) for coordinate in position]


def _read_of(coordinate: Coordinate) -> Read:
    if isinstance(coordinate, int):
        return lambda observation, info, env: np.asarray(observation)[coordinate]
    if match := _FUNCTION.fullmatch(coordinate):
        return _of_function(coordinate, own_function(match[1], match[2]))
    if coordinate == RAM:
        return lambda observation, info, env: game_of(_own(env, coordinate)).position()
    if match := _ATTRIBUTE.fullmatch(coordinate):
        return _of_attribute(coordinate, match[1].split("."), _slice_of(match))
    match = _ENTRY.fullmatch(coordinate)
    return _of_entry(match[1], _slice_of(match)) if match else _of_entry(coordinate, None)


def _slice_of(match: re.Match[str]) -> slice | None:
    return None if match[2] is None else _part(match[0], match[2], match[3])


def _of_entry(name: str, part: slice | None) -> Read:
    def read(observation: Any, info: Mapping[str, Any], env: gymnasium.Env | None) -> Any:
        try:
            found = info[name]
        except KeyError as error:
            entries = ", ".join(map(str, info)) or "none"
            raise ValueError(
                f"The info of a reset or step has no entry {error}, which --position names; it has "
                f"{entries}."
            ) from error
        return found if part is None else np.asarray(found)[part]

    return read


def _of_attribute(word: str, names: Sequence[str], part: slice | None) -> Read:
    def read(observation: Any, info: Mapping[str, Any], env: gymnasium.Env | None) -> Any:
        found: Any = _own(env, word)
        for name in names:
            try:
                found = getattr(found, name)
            except AttributeError as error:
                raise ValueError(
                    f"--position {word}: {type(found).__name__} has no attribute {name}."
                ) from error
        return found if part is None else np.asarray(found)[part]

    return read


def _own(env: gymnasium.Env | None, word: str) -> gymnasium.Env:
    if env is None:
        raise ValueError(
            f"--position {word} is read from the environment itself, which is not at hand here: "
            "name entries of info or columns of the observation."
        )
    return env.unwrapped


def _of_function(word: str, function: Callable[..., Any]) -> Read:
    def read(observation: Any, info: Mapping[str, Any], env: gymnasium.Env | None) -> Any:
        try:
            return function(observation, info, env)
        except Exception as error:  # a function of the user's may raise anything
            raise ValueError(
                f"The position {word} could not be read: {type(error).__name__}: {error}."
            ) from error

    return read


@functools.lru_cache
def own_function(path: str, name: str) -> Callable[..., Any]:
    """The function of this name in a file of the user's."""
    module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if module_spec is None or module_spec.loader is None or not Path(path).is_file():
        raise ValueError(f"There is no file {path} with a position in it.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
        function = getattr(module, name)
    except Exception as error:
        raise ValueError(
            f"The position {path}:{name} could not be loaded: {type(error).__name__}: {error}."
        ) from error
    if not callable(function):
        raise ValueError(
            f"{path}:{name} is no function of (observation, info, env), but {function!r}."
        )
    return function


def refuse_columns(name: str, position: Position, width: int) -> None:
    """A ValueError where the observation has no such columns."""
    for column in position:
        if isinstance(column, int) and column >= width:
            raise ValueError(
                f"Environment {name!r} observes {width} numbers, so that there is no column "
                f"{column}."
            )


def column_bounds(
    space: gymnasium.spaces.Box, columns: Sequence[Any]
) -> list[tuple[float, float] | None]:
    """Lowest and highest value of columns of the observation; None where infinite, and for all that
    is no column."""
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


def axis_names(position: Position) -> tuple[str, str]:
    """What stands along the axes of the map: x for x_position; x and y of what is one list of
    numbers, such as the result of a function."""
    names = [
        f"observation[{coordinate}]"
        if isinstance(coordinate, int)
        else coordinate.removesuffix("_position")
        for coordinate in position[:MAP_AXES]
    ]
    return (names[0], names[1]) if len(names) == MAP_AXES else ("x", "y")
