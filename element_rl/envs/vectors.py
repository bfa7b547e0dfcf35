"""Observations of any kind as one flat vector of float32, or as one image.

    space of an entry          in the vector
    Box of any shape           its numbers, row by row
    Discrete(n)                a one-hot of n numbers
    MultiDiscrete([n, m, …])   a one-hot for each
    MultiBinary(n)             n numbers, 0 or 1
    Dict, Tuple                their entries, one after the other, as the space orders them
    anything else              left out: text (MiniGrid's `mission`), sequences, graphs

An image is what agents see, as frames (`screens`), and all else beside it is left out. An image
with a side of less than 16 pixels is no picture but a table of numbers, such as the 7 × 7 × 3 of
MiniGrid, and goes into the vector. Its numbers stay as they are: MiniGrid's are indices from 0 to
10, of the size of a one-hot or of a joint's velocity. Divided by 255, as pixels are, all of them
would be below 0.04, and neither a network nor a distance could tell them apart.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from jaxtyping import Float32, Int

SMALLEST_PICTURE = 16  # pixels along a side; what is smaller is a table of numbers
LONGEST_VECTOR = 1_000_000  # numbers: a replay of 1,000 such observations is 4 GB


class Entry(NamedTuple):
    """A part of an observation: what leads to it, and its space."""

    path: tuple[Any, ...]
    space: gymnasium.Space

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))


class Seen(NamedTuple):
    """What agents see of an observation: one image, or the numbers of these entries."""

    image: Entry | None
    numbers: tuple[Entry, ...]
    left_out: tuple[str, ...]  # names of all other entries


def seen_of(space: gymnasium.Space) -> Seen:
    """What agents see of observations in this space; a ValueError where it has two images."""
    entries = tuple(_entries(space))
    images = [entry for entry in entries if is_picture(entry.space)]
    if len(images) > 1:
        shown = ", ".join(entry.name for entry in images)
        raise ValueError(
            f"it shows {len(images)} images ({shown}), and agents see one: wrap it with "
            "gymnasium.wrappers.FilterObservation and register the result"
        )
    if images:
        others = tuple(entry.name for entry in entries if entry != images[0])
        return Seen(images[0], (), others)
    numbers = tuple(entry for entry in entries if _numbers(entry.space) is not None)
    others = tuple(entry.name for entry in entries if _numbers(entry.space) is None)
    return Seen(None, numbers, others)


def is_image(space: gymnasium.Space) -> bool:
    """Whether observations have the form of images: uint8, [H, W], [H, W, 1] or [H, W, 3]."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    grey_or_rgb = len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[-1] in (1, 3))
    return grey_or_rgb and min(space.shape[:2]) >= 2


def is_picture(space: gymnasium.Space) -> bool:
    """Whether they are images large enough to be seen as such."""
    return is_image(space) and min(space.shape[:2]) >= SMALLEST_PICTURE


def entry_of(observation: Any, path: tuple[Any, ...]) -> Any:
    """The part of an observation that a path leads to."""
    for step in path:
        observation = observation[step]
    return observation


class Vectors(gymnasium.ObservationWrapper, RecordConstructorArgs):
    """An environment whose observations are one flat vector of float32."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        bounds: list[np.ndarray] = []
        self._parts: list[_Part] = []
        width = 0
        for entry in seen_of(env.observation_space).numbers:
            numbers = _numbers(entry.space)
            assert numbers is not None  # what `seen_of` found
            bounds.append(np.stack([numbers.low, numbers.high]).reshape(2, -1))
            self._parts.append(_part(entry, width, numbers))
            width += bounds[-1].shape[1]
        low, high = np.concatenate([np.zeros((2, 0), np.float32), *bounds], axis=1)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def columns_of(self, name: str) -> tuple[int, int] | None:
        """First and last + 1 column of an entry of a Dict; None where there is none of it."""
        found = next((part for part in self._parts if part.path == (name,)), None)
        return None if found is None else (found.columns.start, found.columns.stop)

    def observation(self, observation: Any) -> Float32[np.ndarray, " O"]:
        vector = np.zeros(self.observation_space.shape, np.float32)
        for path, columns, hot in self._parts:
            numbers = np.asarray(entry_of(observation, path)).reshape(-1)
            if hot is None:
                vector[columns] = numbers
                continue
            chosen = numbers - hot.starts
            if not ((chosen >= 0) & (chosen < hot.sizes)).all():
                raise ValueError(
                    f"The environment observes {self.env.observation_space}, and gave {observation}"
                )
            vector[hot.columns + chosen] = 1.0
        return vector


class OneImage(gymnasium.ObservationWrapper, RecordConstructorArgs):
    """An environment of which only the image in its observations is seen."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        image = seen_of(env.observation_space).image
        if image is None:
            raise ValueError(f"There is no image in {env.observation_space}")
        self._path, self.observation_space = image

    def observation(self, observation: Any) -> Any:
        return entry_of(observation, self._path)


class _OneHots(NamedTuple):
    """Where the one-hots of an entry go, a number each."""

    starts: Int[np.ndarray, " N"]  # its lowest value
    sizes: Int[np.ndarray, " N"]  # how many it has
    columns: Int[np.ndarray, " N"]  # of its lowest value


class _Part(NamedTuple):
    """Where an entry of the observation goes."""

    path: tuple[Any, ...]
    columns: slice
    hot: _OneHots | None  # None: its numbers go there as they are


def _part(entry: Entry, first: int, numbers: spaces.Box) -> _Part:
    columns, space = slice(first, first + int(np.prod(numbers.shape))), entry.space
    if isinstance(space, spaces.Discrete):
        starts, sizes = np.array([space.start]), np.array([space.n])
    elif isinstance(space, spaces.MultiDiscrete):
        starts, sizes = np.ravel(space.start), np.ravel(space.nvec)
    else:
        return _Part(entry.path, columns, None)
    return _Part(entry.path, columns, _OneHots(starts, sizes, first + np.cumsum(sizes) - sizes))


def _entries(space: gymnasium.Space, path: tuple[Any, ...] = ()) -> Iterator[Entry]:
    """The leaves of a space of spaces, in its order."""
    if isinstance(space, spaces.Dict):
        children: Any = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        children = enumerate(space.spaces)
    else:
        yield Entry(path, space)
        return
    for key, child in children:
        yield from _entries(child, (*path, key))


def _numbers(space: gymnasium.Space) -> spaces.Box | None:
    """The bounds of the numbers that stand for an entry; None where nothing does."""
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):  # of float64 beyond float32's range: infinite
            low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=np.float32)
    width = _width(space)
    if width is None:
        return None
    if width > LONGEST_VECTOR:
        raise ValueError(
            f"{space} takes {width:,} numbers, one for each value, and agents see at most "
            f"{LONGEST_VECTOR:,}: wrap it so that it tells the value in fewer numbers, and "
            "register the result"
        )
    return spaces.Box(0.0, 1.0, (width,), np.float32)


def _width(space: gymnasium.Space) -> int | None:
    """Numbers of 0 or 1 that stand for an entry."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else None
