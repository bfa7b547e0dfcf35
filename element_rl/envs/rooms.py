"""Twelve rooms seen through a small window: a pixel environment that needs no ROM, for tests and
for everyone.

The world is 49 × 37 tiles. It has four rooms in each of three rows, and doors lead from one to the
next like a snake, eleven of them, each at the far end of its room. The agent moves one tile per
step (stay, up, down, left, right); a wall stops it. It sees 84 × 84 grey pixels, 12 × 12 tiles,
around itself: the view scrolls, and stops at the edges of the world. Every room has its own floor.
The world is the same in all episodes; the tile where one begins is drawn from nine in the first
room.

The goal, a chequered tile, ends the episode with reward 1. It stands in the last room, 204 steps
away, where a random policy does not come; `goal_distance` puts it nearer, on the same way.
Explorers are not told of the goal.

    reward = [goal reached] + progress_reward · (steps to the goal before − steps to the goal after)

The second term is off by default. Without it, and with the goal far away, nothing but exploration
gets there.
"""

from collections import deque
from typing import Any

import gymnasium
import numpy as np

TILE = 7  # pixels along the edge of a tile
VIEW = 12  # tiles along the edge of the view
ROOM = 12  # tiles from one wall to the next
ROOMS = (4, 3)  # columns and rows of rooms
SHAPE = (ROOM * ROOMS[1] + 1, ROOM * ROOMS[0] + 1)  # tiles of the world, rows first
START = (SHAPE[0] - 1 - ROOM // 2, ROOM // 2)  # row and column; row 0 is the upper edge
EPISODE_STEPS = 500
ACTION_NAMES = ("stay", "up", "down", "left", "right")
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
NEVER = -1  # steps from a tile to the start, where that tile is a wall


class Rooms(gymnasium.Env[np.ndarray, int | np.integer]):
    """The rooms for Gymnasium. `info["position"]` is the middle of the agent's tile, x to the right
    and y upwards."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)
    action_names = ACTION_NAMES
    coverage_axes = ("x", "y")
    coverage_bounds = ((0.0, float(SHAPE[1])), (0.0, float(SHAPE[0])))
    coverage_cells = (SHAPE[1], SHAPE[0])  # a cell is a tile
    coverage_unit = "tiles"
    coverage_start = (START[1] + 0.5, SHAPE[0] - START[0] - 0.5)

    def __init__(self, goal_distance: int | None = None, progress_reward: float = 0.0) -> None:
        steps_from_start = distances(_WALL, START)
        farthest = int(steps_from_start.max())
        if goal_distance is not None and not 3 <= goal_distance <= farthest:
            raise ValueError(
                f"goal_distance must be from 3 to {farthest} steps, not {goal_distance!r}."
            )
        self.observation_space = gymnasium.spaces.Box(0, 255, (TILE * VIEW, TILE * VIEW), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(ACTION_NAMES))
        self.goal = _way(steps_from_start)[farthest if goal_distance is None else goal_distance]
        self._steps_to_goal = distances(_WALL, self.goal)
        self._progress_reward = progress_reward
        self._picture = _picture(self.goal)
        self._row, self._column = START

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        shift = self.np_random.integers(-1, 2, 2)
        self._row, self._column = START[0] + int(shift[0]), START[1] + int(shift[1])
        return self._view(), self._info()

    def step(
        self, action: int | np.integer
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self._steps_to_goal[self._row, self._column]
        down, right = MOVES[action]
        if not _WALL[self._row + down, self._column + right]:
            self._row, self._column = self._row + down, self._column + right
        after = self._steps_to_goal[self._row, self._column]
        reward = float(after == 0) + self._progress_reward * float(before - after)
        return self._view(), reward, bool(after == 0), False, self._info()

    def _view(self) -> np.ndarray:
        """The window of the world around the agent, and the agent in it."""
        top = min(max(self._row - VIEW // 2, 0), SHAPE[0] - VIEW)
        left = min(max(self._column - VIEW // 2, 0), SHAPE[1] - VIEW)
        view = self._picture[
            top * TILE : (top + VIEW) * TILE, left * TILE : (left + VIEW) * TILE
        ].copy()
        y, x = (self._row - top) * TILE, (self._column - left) * TILE
        view[y : y + TILE, x : x + TILE] = _AGENT
        return view

    def _info(self) -> dict[str, Any]:
        return {"position": np.array((self._column + 0.5, SHAPE[0] - self._row - 0.5), np.float32)}


def distances(wall: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """Steps from `start` to every tile by the shortest way, NEVER for walls and what lies behind
    them."""
    steps = np.full(wall.shape, NEVER)
    steps[start] = 0
    waiting = deque([start])
    while waiting:
        row, column = waiting.popleft()
        for down, right in MOVES[1:]:
            tile = (row + down, column + right)
            if not wall[tile] and steps[tile] == NEVER:
                steps[tile] = steps[row, column] + 1
                waiting.append(tile)
    return steps


def _way(steps_from_start: np.ndarray) -> list[tuple[int, int]]:
    """The tiles of one shortest way from the start to the farthest tile."""
    row, column = (
        int(index)
        for index in np.unravel_index(np.argmax(steps_from_start), steps_from_start.shape)
    )
    way = [(row, column)]
    while steps_from_start[row, column] > 0:
        near = ((row + down, column + right) for down, right in MOVES[1:])
        row, column = next(
            tile for tile in near if steps_from_start[tile] == steps_from_start[way[-1]] - 1
        )
        way.append((row, column))
    return way[::-1]


def _walls() -> np.ndarray:
    """True where a wall is. The rooms are walked from the lower left: to the right, up, to the
    left, up, to the right."""
    wall = np.zeros(SHAPE, bool)
    wall[::ROOM], wall[:, ::ROOM] = True, True
    columns, rows = ROOMS
    for level in range(rows):
        floor = SHAPE[0] - 1 - ROOM * level  # the row of the wall under this row of rooms
        for door in range(1, columns):
            # low and high by turns: rooms are crossed
            row = floor - 2 if (door + level) % 2 else floor - ROOM + 2
            wall[row - 1 : row + 1, ROOM * door] = False
        if level < rows - 1:
            column = ROOM * columns - 2 if level % 2 == 0 else 2
            wall[floor - ROOM, column - 1 : column + 1] = False
    return wall


def _picture(goal: tuple[int, int]) -> np.ndarray:
    """All of the world in pixels: dark walls, a floor of its own kind in every room, the goal; not
    the agent."""
    rows, columns = np.indices((SHAPE[0] * TILE, SHAPE[1] * TILE))
    room = (rows // (ROOM * TILE)) * (ROOMS[0] + 1) + columns // (ROOM * TILE)
    across, along, period = (
        1 + room % 3,
        room // 3 % 3,
        5 + room % 4 * 2,
    )  # stripes of many slopes and widths
    floor = 90 + room * 37 % 100 + 30 * ((across * columns + along * rows) % period < period // 2)
    walls = np.kron(_WALL, np.ones((TILE, TILE), bool))
    picture = np.where(walls, 20, floor).astype(np.uint8)
    y, x = goal[0] * TILE, goal[1] * TILE
    picture[y : y + TILE, x : x + TILE] = np.where(np.indices((TILE, TILE)).sum(axis=0) % 2, 255, 0)
    return picture


def _agent() -> np.ndarray:
    agent = np.full((TILE, TILE), 255, np.uint8)
    agent[2:-2, 2:-2] = 0
    return agent


_WALL = _walls()
_AGENT = _agent()

gymnasium.register(
    id="Rooms-v0", entry_point="element_rl.envs.rooms:Rooms", max_episode_steps=EPISODE_STEPS
)
