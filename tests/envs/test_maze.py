"""The discrete maze: its walls and depths, by hand on a small plan, and what the fixed plan
promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.envs import maze
from element_rl.envs.maze import MAZE, read_plan, shallow_dead_ends

# Cells in order: 0 1 2 / 3 4 / 5 6 7. The start is cell 0; 2 is a dead end, the way down is on the
# left.
SMALL = """
...
.#.
.#.
...
"""
UP, DOWN, LEFT, RIGHT = range(4)


def test_walls_and_edges_stop() -> None:
    small = read_plan(SMALL)
    assert maze.step(0, UP, maze=small) == 0
    assert maze.step(0, RIGHT, maze=small) == 1
    assert maze.step(1, DOWN, maze=small) == 1  # a wall
    assert maze.step(0, DOWN, maze=small) == 3
    assert maze.step(np.array([0, 2]), np.array([DOWN, RIGHT]), maze=small).tolist() == [3, 2]


def test_depths_by_hand() -> None:
    small = read_plan(SMALL)
    # 0 1 2 / 3 # 4 / 5 # 6 / 7 8 9: both ways around meet in the lower row.
    assert small.depth.tolist() == [0, 1, 2, 1, 3, 2, 4, 3, 4, 5]
    assert small.position[0].tolist() == [0.0, 3.0]
    assert small.position[9].tolist() == [2.0, 0.0]


def test_dead_ends_by_hand() -> None:
    comb = read_plan("......\n.#.###\n.#.###\n.#####")
    # The row leads to depth 5; the teeth below columns 0 and 2 lead nowhere.
    assert comb.depth.tolist() == [0, 1, 2, 3, 4, 5, 1, 3, 2, 4, 3]
    dead = shallow_dead_ends(comb, shallow=5)
    assert np.flatnonzero(dead).tolist() == [6, 7, 8, 9, 10]


def test_cells_out_of_reach_are_refused() -> None:
    with pytest.raises(
        ValueError, match="1 cells of the plan cannot be reached, such as that in row 0, column 2"
    ):
        read_plan(".#.")


def test_the_plan() -> None:
    assert MAZE.size == (20, 20)
    assert MAZE.position[MAZE.start].tolist() == [0.0, 19.0]  # the upper left corner
    assert MAZE.depth.min() == 0  # so every cell is reached, or read_plan would have refused
    assert MAZE.depth.max() == 73
    assert 25 <= shallow_dead_ends(MAZE).sum() <= 45
    # Neighbours are one step apart, and every step can be taken back.
    moved = MAZE.next_cell != np.arange(len(MAZE.depth))[:, None]
    assert (np.abs(MAZE.depth[MAZE.next_cell] - MAZE.depth[:, None])[moved] == 1).all()
    for action, back in ((UP, DOWN), (LEFT, RIGHT)):
        cells = np.flatnonzero(moved[:, action])
        assert np.array_equal(MAZE.next_cell[MAZE.next_cell[cells, action], back], cells)


def test_jax_twin() -> None:
    cells, actions = np.divmod(np.arange(MAZE.next_cell.size), 4)
    compiled = jax.jit(lambda cell, action: maze.step(cell, action, jnp))(cells, actions)
    assert np.array_equal(compiled, maze.step(cells, actions))


def test_a_random_walk_stays_shallow() -> None:
    rng = np.random.default_rng(0)
    cell, deepest = np.zeros(500, int), np.zeros(500, int)
    for _ in range(700):
        cell = maze.step(cell, rng.integers(0, 4, 500))
        deepest = np.maximum(deepest, MAZE.depth[cell])
    assert 14 < deepest.mean() < 18
