"""The point maze: its walls, its two twins (NumPy and compiled JAX), and how hard its last room is
to reach."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from element_rl.envs import point_maze
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import coverage_cell

WAY = [
    (3.25, 2.5),
    (6.75, 1.0),
    (8.75, 3.25),
    (6.75, 5.75),
    (3.25, 4.0),
    (1.0, 6.75),
    (3.25, 7.5),
    (6.75, 9.0),
    (8.0, 9.0),
]


def test_walls_stop_one_axis_and_the_other_goes_on() -> None:
    assert point_maze.step(np.array([0.6, 0.6]), np.array([-1.0, 1.0])) == pytest.approx(
        [0.51, 0.8]
    )
    # no door here
    assert point_maze.step(np.array([2.9, 0.8]), np.array([1.0, 0.5])) == pytest.approx([2.99, 0.9])
    # the door; clipped to 1
    assert point_maze.step(np.array([2.9, 2.2]), np.array([5.0, 0.0])) == pytest.approx([3.1, 2.2])


def test_jax_twin() -> None:
    rng = np.random.default_rng(0)
    free = np.argwhere(~point_maze.WALL)
    position = (
        free[rng.integers(0, len(free), 5_000)] + rng.uniform(0.01, 0.99, (5_000, 2))
    ) * point_maze.CELL
    action = rng.uniform(-1.5, 1.5, (5_000, 2))
    compiled = jax.jit(lambda p, a: point_maze.step(p, a, jnp))(
        jnp.asarray(position), jnp.asarray(action)
    )
    expected = point_maze.step(position, action)
    assert np.asarray(compiled) == pytest.approx(expected, abs=1e-5)
    assert not point_maze.WALL[tuple((expected / point_maze.CELL).astype(int).swapaxes(0, 1))].any()
    rewards = jax.jit(lambda p: point_maze.task_reward(p, jnp))(jnp.asarray(position))
    assert np.asarray(rewards) == pytest.approx(point_maze.task_reward(position))


def test_who_knows_the_way_is_there_in_130_steps() -> None:
    env = make_env("PointMaze")
    env.reset(seed=0)
    position, reward, steps = np.array(env.unwrapped.position), 0.0, 0
    for target in WAY:
        while np.abs(np.array(target) - position).max() > 0.1:
            _, reward, *_ = env.step((np.array(target) - position) / point_maze.STRIDE)
            position, steps = env.unwrapped.position, steps + 1
            assert steps <= 130
    assert reward == 1.0


def test_a_random_walk_never_sees_the_last_room() -> None:
    rng = np.random.default_rng(1)
    position = np.tile(point_maze.START, (200, 1))  # 200 episodes at once
    for _ in range(point_maze.EPISODE_STEPS):
        position = point_maze.step(position, rng.uniform(-1, 1, (200, 2)))
        assert point_maze.task_reward(position).sum() == 0.0


def test_gymnasium_environment() -> None:
    with warnings.catch_warnings():
        # Gymnasium would rather be told its name, and not the environment without its time limit
        warnings.simplefilter("ignore")
        check_env(gymnasium.make("PointMaze-v0", render_mode="rgb_array").unwrapped)
    spec = describe("PointMaze")
    assert (spec.name, spec.observation_dim, spec.action_dim, spec.max_episode_steps) == (
        "PointMaze-v0",
        2,
        2,
        500,
    )
    assert coverage_cell(spec, np.array([0.05, 0.15])) == 1
    env = make_env("PointMaze")
    first, info = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    assert np.array_equal(first, again)
    assert first == pytest.approx([info["x_position"] / 5 - 1, info["y_position"] / 5 - 1])


def test_it_draws_itself() -> None:
    """A cell has 24 pixels, so 1 along an axis is 48; the first row is the upper edge."""
    env = make_env("PointMaze", render_mode="rgb_array")
    env.reset(seed=0)
    env.unwrapped.position = np.array([1.0, 1.0])
    env.unwrapped._trail = [env.unwrapped.position]
    for _ in range(5):
        env.step(np.array([1.0, 0.0]))  # to x = 2
    picture = env.render()
    assert picture.shape == (480, 480, 3)
    assert picture.dtype == np.uint8

    def colour(x: float, y: float) -> tuple[int, ...]:
        return tuple(picture[int((10 - y) * 48), int(x * 48)].tolist())

    assert colour(0.2, 5.0) == point_maze.WALL_COLOUR
    assert colour(8.0, 8.0) == point_maze.LAST_ROOM_COLOUR
    assert colour(1.0, 2.5) == point_maze.FREE_COLOUR
    assert colour(1.5, 1.0) == point_maze.TRAIL_COLOUR
    assert colour(2.0, 1.0) == point_maze.POINT_COLOUR
    env.reset(seed=0)
    assert not np.all(env.render() == point_maze.TRAIL_COLOUR, axis=-1).any()  # a new way


def test_it_draws_nothing_unless_told_to() -> None:
    env = make_env("PointMaze")
    env.reset(seed=0)
    env.step(np.array([1.0, 0.0]))
    assert env.unwrapped.render() is None
    assert len(env.unwrapped._trail) == 1
