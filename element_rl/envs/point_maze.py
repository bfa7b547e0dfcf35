"""A continuous maze with a room that is hard to reach: the smallest world in which exploring
differs from wandering.

A point moves in a square of 10 × 10. Its action is a displacement of at most 0.2 along each axis; a
wall stops it where it meets it, axis by axis, so it slides along. Every episode of 500 steps begins
in the lower left of nine rooms. The doors lead from one to the next like a snake, eight of them,
each at the far end of its room: the last room, in the upper right, is 26 away. A policy that knew
the way would be there in 130 steps; a random walk gets some 3 away from where it began and never
sees the last room. The task reward, which explorers are not told, is 1 there.

`step` is a pure function of arrays. With `xp=jax.numpy` it can be compiled and mapped over
thousands of points; the Gymnasium environment steps one point in NumPy, because worker processes
load no JAX. Its pictures (`render_mode="rgb_array"`) need no OpenGL: the maze from above, the way
of the episode and the point.
"""

from typing import Any

import gymnasium
import numpy as np

SIZE = 10.0
STRIDE = 0.2  # largest displacement along an axis; less than a cell, so that no wall is jumped over
EPISODE_STEPS = 500
SKIN = 0.01  # a point stops this far from a wall, so that rounding never puts it inside
START = (0.75, 0.75)
START_SPREAD = 0.2  # the start is drawn within this distance of START, along each axis

PIXELS = 24  # of a picture, along an edge of a cell
WALL_COLOUR, FREE_COLOUR, LAST_ROOM_COLOUR = (60, 64, 72), (250, 250, 250), (214, 236, 214)
TRAIL_COLOUR, POINT_COLOUR, POINT_EDGE_COLOUR = (38, 130, 142), (213, 94, 0), (255, 255, 255)

# One letter per cell of 0.5: '#' wall, ' ' free, 'G' free and in the last room. The first line is
# the upper edge.
PLAN = """
####################
#     #       GGGGG#
#     #       GGGGG#
#     #      #GGGGG#
#            #GGGGG#
#            #GGGGG#
#  #################
#     #            #
#     #            #
#     #      #     #
#     #      #     #
#            #     #
#            #     #
#################  #
#            #     #
#            #     #
#     #      #     #
#     #            #
#     #            #
####################
"""


def _grid() -> tuple[np.ndarray, np.ndarray]:
    rows = PLAN.strip().splitlines()[::-1]  # row 0 is the lower edge
    cells = np.array([list(row) for row in rows]).swapaxes(0, 1)  # [column x, row y]
    return cells == "#", cells == "G"


WALL, LAST_ROOM = _grid()
CELL = SIZE / len(WALL)


def step(position: Any, action: Any, xp: Any = np) -> Any:
    """Positions [..., 2] after displacements STRIDE · action [..., 2] along x, then along y, as far
    as no wall is in the way."""
    wall = xp.asarray(WALL)
    x, y = position[..., 0], position[..., 1]
    move = STRIDE * xp.clip(action, -1.0, 1.0)
    wanted_x = x + move[..., 0]
    x = xp.where(wall[_cell(wanted_x, xp), _cell(y, xp)], _within_cell(x, wanted_x, xp), wanted_x)
    wanted_y = y + move[..., 1]
    y = xp.where(wall[_cell(x, xp), _cell(wanted_y, xp)], _within_cell(y, wanted_y, xp), wanted_y)
    return xp.stack([x, y], axis=-1)


def task_reward(position: Any, xp: Any = np) -> Any:
    """1 in the last room, 0 elsewhere."""
    inside = xp.asarray(LAST_ROOM)[_cell(position[..., 0], xp), _cell(position[..., 1], xp)]
    return xp.where(inside, 1.0, 0.0)


def _within_cell(coordinate: Any, wanted: Any, xp: Any) -> Any:
    """The point of the present cell that is nearest to the wanted one."""
    low = CELL * _cell(coordinate, xp)
    return xp.clip(wanted, low + SKIN, low + CELL - SKIN)


def _cell(coordinate: Any, xp: Any) -> Any:
    return xp.clip(xp.floor(coordinate / CELL), 0, len(WALL) - 1).astype(xp.int32)


def picture(trail: np.ndarray) -> np.ndarray:
    """The maze from above with a way [L, 2] in it, and a point at its end."""
    from PIL import Image, ImageDraw  # processes that only act do without

    cells = np.select(
        [WALL[..., None], LAST_ROOM[..., None]], [WALL_COLOUR, LAST_ROOM_COLOUR], FREE_COLOUR
    ).astype(np.uint8)
    upright = cells.swapaxes(0, 1)[::-1]  # rows from the upper edge
    image = Image.fromarray(upright.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1))
    scale = PIXELS / CELL
    places = [(x * scale, (SIZE - y) * scale) for x, y in trail.tolist()]
    draw = ImageDraw.Draw(image)
    draw.line(places, fill=TRAIL_COLOUR, width=3, joint="curve")
    for x, y in places[-1:]:
        corners = (x - 8, y - 8, x + 8, y + 8)
        draw.ellipse(corners, fill=POINT_COLOUR, outline=POINT_EDGE_COLOUR, width=2)
    return np.asarray(image)


class PointMaze(gymnasium.Env[np.ndarray, np.ndarray]):
    """The maze for Gymnasium: observes the position, scaled to ±1; `info` has `x_position` and
    `y_position`."""

    metadata: dict[str, Any] = {  # noqa: RUF012 (as Gymnasium declares it)
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.position = np.array(START)
        self._trail: list[np.ndarray] = []  # kept only where it may be drawn

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.array(START) + self.np_random.uniform(-START_SPREAD, START_SPREAD, 2)
        self._trail = [self.position]
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position = step(self.position, np.asarray(action, np.float64))
        if self.render_mode is not None:
            self._trail.append(self.position)
        return self._observation(), float(task_reward(self.position)), False, False, self._info()

    def render(self) -> np.ndarray | None:
        """The maze with the way of the episode so far: [480, 480, 3], the first row its upper
        edge."""
        return None if self.render_mode is None else picture(np.array(self._trail))

    def _observation(self) -> np.ndarray:
        return (2.0 * self.position / SIZE - 1.0).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {"x_position": float(self.position[0]), "y_position": float(self.position[1])}


gymnasium.register(
    id="PointMaze-v0",
    entry_point="element_rl.envs.point_maze:PointMaze",
    max_episode_steps=EPISODE_STEPS,
)
