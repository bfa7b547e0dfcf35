"""What the library knows of an environment: its sizes, where the agent is, and its coverage map.

One description serves all environments. Observations are vectors or frames, which is told by their
shape; actions are a Box with bounds, or a choice among a few with names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, Integer, Shaped

from element_rl.envs.cells import OtherCells, map_cell
from element_rl.envs.positions import MAP_AXES, Bounds, Position, read_position

CELLS_PER_AXIS = 100


@dataclass(frozen=True)
class EnvSpec:
    """All that the rest of the library needs to know of an environment; hashable, so it can be
    static under jit."""

    # as registered with Gymnasium, with its version, and with its package where that must be
    # imported
    name: str
    observation_shape: tuple[int, ...]  # (O,) of vectors, (height, width) of frames
    max_episode_steps: int
    action_low: tuple[float, ...] = ()  # of a Box
    action_high: tuple[float, ...] = ()
    action_names: tuple[str, ...] = ()  # of a choice; empty where actions are a Box
    position_dim: int = 0
    orientation_slice: tuple[int, int] = (0, 0)  # where the torso's stands in the observation
    coverage_axes: tuple[str, str] | None = None
    coverage_bounds: Bounds | None = None  # of the two axes
    coverage_cells: tuple[int, int] = (CELLS_PER_AXIS, CELLS_PER_AXIS)  # along the two axes
    # False for -v4 robots, whose infos lack it at reset or give the centre of mass
    position_in_info: bool = True
    # where it is read, as the user says it or as it was found (`positions`); empty: as the library
    # knows
    position: Position = ()
    found: str = ""  # what the position is, in words, where nobody said it
    # sides of the cells of a map that has no bounds
    coverage_cell_size: tuple[float, float] | None = None
    other_cells: OtherCells | None = None  # what coverage counts where there is no map
    coverage_unit: str = "m"  # of positions
    coverage_start: tuple[float, float] | None = None  # about where episodes begin
    latent_dim: int = 0  # last columns of the observation that tell the agent z (`latents`)
    left_out: tuple[str, ...] = ()  # entries of the environment's observations that nobody sees

    @property
    def sees_frames(self) -> bool:
        return len(self.observation_shape) > 1

    @property
    def frame_shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.observation_shape
        return height, width

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""
        return int(np.prod(self.observation_shape))

    @property
    def task_dim(self) -> int:
        """Numbers in an observation that are the task's own: all but z."""
        return self.observation_dim - self.latent_dim

    @property
    def chooses(self) -> bool:
        """Whether an action is one choice among a few, and not coordinates of a Box."""
        return bool(self.action_names)

    @property
    def action_dim(self) -> int:
        """Numbers in an action as replays keep it and rewards see it: the coordinates of a Box, or
        a one-hot of the choice."""
        return len(self.action_names) if self.chooses else len(self.action_low)

    @property
    def actions(self) -> int:
        """Actions of a choice."""
        return len(self.action_names)

    @property
    def orientation_dim(self) -> int:
        return self.orientation_slice[1] - self.orientation_slice[0]

    @property
    def has_map(self) -> bool:
        """Whether coverage counts cells of a map."""
        return self.coverage_bounds is not None or self.coverage_cell_size is not None

    @property
    def coverage_of(self) -> str | None:
        """What coverage counts the cells of; None where it counts nothing."""
        if self.has_map:
            return "positions"
        return None if self.other_cells is None else self.other_cells.kind

    @property
    def grown_axes(self) -> int:
        """Axes of cells that have no bounds (`cells`); 0 where the map has bounds, or there is
        nothing to count."""
        if self.coverage_bounds is not None:
            return 0
        if self.coverage_cell_size is not None:
            return MAP_AXES
        return 0 if self.other_cells is None else self.other_cells.axes


def position_of(
    spec: EnvSpec,
    observation: Shaped[np.ndarray, "..."],
    info: Mapping[str, Any],
    env: gymnasium.Env | None = None,
) -> Float[np.ndarray, " position"]:
    """Where the agent is after ``reset`` or ``step`` gave ``observation`` and ``info``: what the
    user has said that it is, or what the environment of frames says, or (x, y) or (x, z) of a
    robot's torso, or nothing.

    ``env`` is needed where the infos do not tell (``spec.position_in_info`` is False).
    """
    if spec.position:
        position = read_position(spec.position, observation, info, env)
        if spec.sees_frames:  # whose workers tell two numbers
            position = position[:MAP_AXES]
        if len(position) != spec.position_dim:
            raise ValueError(
                f"The position of {spec.name} had {spec.position_dim} numbers before, and has "
                f"{len(position)} now ({', '.join(map(str, spec.position))})"
            )
        return position
    if spec.sees_frames:
        return np.asarray(info["position"], np.float32)
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


class MapScale(NamedTuple):
    """The coverage map as a square from −1 to 1: what positions are told to learners in. Of a map
    without bounds, 100 cells around the start."""

    centre: tuple[float, float]
    unit: tuple[float, float]  # half of the map's range


def map_scale(spec: EnvSpec) -> MapScale:
    """The scale of an environment's coverage map; a ValueError where it has none."""
    if spec.coverage_bounds is None and spec.coverage_cell_size is not None:
        half = CELLS_PER_AXIS / 2
        width, height = spec.coverage_cell_size
        return MapScale(spec.coverage_start or (0.0, 0.0), (half * width, half * height))
    if spec.coverage_bounds is None:
        raise ValueError(
            f"--tell-position tells where on its coverage map the agent is, and {spec.name} has "
            "none: say with --position which two coordinates tell it."
        )
    (left, right), (low, high) = spec.coverage_bounds
    centre, unit = ((left + right) / 2, (low + high) / 2), ((right - left) / 2, (high - low) / 2)
    return MapScale(centre, unit)


def coverage_cell(
    spec: EnvSpec,
    positions: Float[np.ndarray, "*batch C"],
    observations: Shaped[np.ndarray, "..."] | None = None,
) -> Integer[np.ndarray, "*batch"]:
    """The cell that each position is in, as a number.

    On a map with bounds: column · cells[1] + row, outside clipped to the border. Elsewhere as
    `cells` has it; where there is no map, of the observations.
    """
    if spec.coverage_bounds is None:
        if spec.coverage_cell_size is not None:
            return map_cell(positions, spec.coverage_cell_size)
        if spec.other_cells is not None and observations is not None:
            return spec.other_cells.cell(observations)
        others = (
            "; SuperMarioBros-1-1 and Rooms-v0 have one."
            if spec.sees_frames
            else ": say where the agent is with --position."
        )
        raise ValueError(f"Environment {spec.name!r} has no coverage map{others}")
    low, high = np.asarray(spec.coverage_bounds, np.float64).T
    cells = np.asarray(spec.coverage_cells)
    # Clipped as floats: a position beyond the range of integers would wrap around.
    column_row = np.clip(
        np.floor((positions[..., :2] - low) / (high - low) * cells), 0, cells - 1
    ).astype(np.int64)
    return np.asarray(column_row[..., 0] * cells[1] + column_row[..., 1])
