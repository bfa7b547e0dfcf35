"""The cells of an environment that the library does not know, as `element explore` counts them: of
a position that is found, or of what the environment shows (`element_rl.envs.measuring`).

They are found out in an environment of their own, made by the name that Gymnasium knows and stepped
at random for a moment. So they are the same for every agent and every seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from element_rl.envs.atari import RAM
from element_rl.envs.make import describe
from element_rl.envs.positions import NONE
from element_rl.envs.screens import grey_frame
from element_rl.envs.spec import EnvSpec, coverage_cell, position_of
from element_rl.envs.vectors import Vectors, entry_of, seen_of

# options of a vector environment
OF_SEVERAL = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")


class FoundPlaces:
    """The cells that have been visited."""

    def __init__(self, spec: EnvSpec, space: gymnasium.Space, env: gymnasium.Env | None) -> None:
        self.visited: set[int] = set()
        self.spec, self._env = spec, env
        seen = seen_of(space)
        self._image = seen.image
        self._vectors = None if seen.image is not None else Vectors(_Observing(space))

    @property
    def width(self) -> int | None:
        """Numbers in an observation; None of images."""
        return None if self._vectors is None else self._vectors.observation_space.shape[0]

    def see(self, observations: Any, infos: Sequence[Mapping[str, Any]] | None) -> None:
        """Count the cells of these observations [B, ...] as visited."""
        for row, info in enumerate(infos or ()):
            shown = self._seen(_row(observations, row))
            position = np.zeros(0, np.float32)
            if self.spec.has_map:
                position = position_of(self.spec, shown, info, self._env)
            self.visited.add(int(coverage_cell(self.spec, position, shown)))

    def _seen(self, observation: Any) -> np.ndarray:
        """An observation as the library's agents see it."""
        if self._image is not None:
            return grey_frame(np.asarray(entry_of(observation, self._image.path)))
        assert self._vectors is not None
        return self._vectors.observation(observation)


class _Observing(gymnasium.Env[Any, Any]):
    """An observation space, for `Vectors`."""

    def __init__(self, space: gymnasium.Space) -> None:
        self.observation_space = space


def found_places(
    registration: Any, space: gymnasium.Space, env: gymnasium.Env | None
) -> FoundPlaces | None:
    """The cells of an environment by its registration; None of one that is not registered, or whose
    cells are of other observations than these."""
    if registration is None:
        return None
    options = {name: value for name, value in registration.kwargs.items() if name not in OF_SEVERAL}
    try:
        spec = describe(registration.id, **options)
        if env is None and not _is_told(spec):  # of several environments in other processes
            spec = describe(registration.id, (NONE,), **options)
        places = FoundPlaces(spec, space, env)
    except ValueError:  # nothing that the library takes
        return None
    alike = places.width in (None, spec.observation_dim) or _is_beside(spec)
    return places if alike and spec.coverage_of is not None else None


def _is_told(spec: EnvSpec) -> bool:
    """Whether observations and infos tell the position."""
    return not any(str(entry) == RAM or "." in str(entry) for entry in spec.position)


def _is_beside(spec: EnvSpec) -> bool:
    """Whether the position is not in the observation, which may then be any other."""
    return spec.has_map and not any(isinstance(entry, int) for entry in spec.position)


def _row(observations: Any, row: int) -> Any:
    if isinstance(observations, Mapping):
        return {name: _row(part, row) for name, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(part, row) for part in observations)
    return observations[row]
