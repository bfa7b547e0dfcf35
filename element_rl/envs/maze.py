"""A discrete maze of 20 × 20 cells: corridors to deep regions, and shallow dead ends beside the
start (section "How Does ELEMENT Assign Intrinsic Rewards?").

The start is the upper left corner. Four actions move to a neighbouring cell; walking into a wall,
or off the plan, stays. The depth of a cell is the least number of steps from the start. Some sixth
of the cells are in dead ends less than 20 steps deep; the deepest cell is 73 steps away, and 700
steps of a random walk get to a depth of 16 on average.

A cell is a number from 0, in the order of the plan. `step` is a lookup: with `xp=jax.numpy` it can
be compiled.
"""

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

# '#' wall, '.' free. Our own drawing: the paper's maze is not copied.
PLAN = """
.........##.......#.
.##########.#####.#.
.....#...##...#.....
.###.#.######.#####.
...#...#.##.....#...
.#####.#.######.###.
.#.#...#......#...#.
.#.###.#.####.#.#.#.
.....#.#.##.....#.#.
.#######.##.#####.##
.#######.##.#####.##
.#.......##.....#...
.###.######.###.###.
.#...#...##...#.....
.#.#####.########.#.
.#.#.....##.......#.
.#.#.######.#######.
...#...#.##.......#.
.#####.#.##.###.###.
.......#......#.....
"""
ACTIONS = ("up", "down", "left", "right")
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # rows down, columns to the right
SHALLOW = 20  # cells of less depth than this are shallow


class Maze(NamedTuple):
    """N free cells, numbered row by row from the top."""

    next_cell: Int[np.ndarray, "N 4"]  # where each action leads
    # x to the right, y upwards; the lower left cell of the plan is (0, 0)
    position: Float[np.ndarray, "N 2"]
    depth: Int[np.ndarray, " N"]  # least number of steps from the start
    size: tuple[int, int]  # columns and rows of the plan

    @property
    def start(self) -> int:
        return 0  # the first free cell of the plan


def step(cell: Any, action: Any, xp: Any = np, maze: Maze | None = None) -> Any:
    """The cells after the actions, each an index into `ACTIONS`."""
    return xp.asarray((maze or MAZE).next_cell)[cell, action]


def read_plan(plan: str) -> Maze:
    """The maze of a drawing; its first free cell is the start. Cells that cannot be reached are
    refused."""
    rows = plan.strip().splitlines()
    width = max(map(len, rows))
    free = np.array([[letter != "#" for letter in row.ljust(width, "#")] for row in rows])
    places = np.argwhere(free)
    number = {(int(row), int(column)): index for index, (row, column) in enumerate(places)}
    next_cell = np.array(
        [
            [number.get((row + down, column + right), here) for down, right in MOVES]
            for (row, column), here in number.items()
        ]
    )
    depth = _depths(next_cell)
    if lost := int(np.sum(depth < 0)):
        row, column = places[np.argmin(depth)]
        raise ValueError(
            f"{lost} cells of the plan cannot be reached, such as that in row {row}, column "
            f"{column}: open a wall."
        )
    position = np.stack([places[:, 1], len(rows) - 1 - places[:, 0]], axis=1).astype(np.float64)
    return Maze(next_cell, position, depth, (width, len(rows)))


def shallow_dead_ends(maze: Maze, shallow: int = SHALLOW) -> Bool[np.ndarray, " N"]:
    """The shallow cells that are on no shortest way to a deep one: who is there goes nowhere."""
    leads_on = maze.depth >= shallow
    # the deepest first, so that every cell knows all ways through it
    for cell in np.argsort(-maze.depth):
        if leads_on[cell]:
            neighbours = maze.next_cell[cell]
            leads_on[neighbours[maze.depth[neighbours] == maze.depth[cell] - 1]] = True
    return ~leads_on


def _depths(next_cell: Int[np.ndarray, "N 4"]) -> Int[np.ndarray, " N"]:
    """Breadth-first distances from cell 0; −1 where no way leads."""
    depth = np.full(len(next_cell), -1)
    depth[0] = 0
    waiting = deque([0])
    while waiting:
        cell = waiting.popleft()
        for neighbour in next_cell[cell]:
            if depth[neighbour] < 0:
                depth[neighbour] = depth[cell] + 1
                waiting.append(int(neighbour))
    return depth


MAZE = read_plan(PLAN)
