"""The rooms: their walls, what is seen of them, the way through them and how hard it is to find."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from element_rl.envs import rooms
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import coverage_cell

STAY, UP, DOWN, LEFT, RIGHT = range(5)


def test_gymnasium_environment() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no renderer, and check_env says so
        check_env(gymnasium.make("Rooms-v0").unwrapped, skip_render_check=True)


def test_moves_and_walls() -> None:
    env = make_env("rooms")
    _, info = env.reset(seed=0)
    x, y = info["position"]
    assert tuple(env.step(RIGHT)[-1]["position"]) == (x + 1, y)
    assert tuple(env.step(UP)[-1]["position"]) == (x + 1, y + 1)  # y is upwards
    assert tuple(env.step(LEFT)[-1]["position"]) == (x, y + 1)
    assert tuple(env.step(DOWN)[-1]["position"]) == (x, y)
    assert tuple(env.step(STAY)[-1]["position"]) == (x, y)
    for _ in range(12):
        position = env.step(LEFT)[-1]["position"]
    assert tuple(position) == (1.5, y)  # tile 0 is the wall


def test_who_knows_the_way_gets_the_reward_and_it_ends_the_episode() -> None:
    env = make_env("Rooms-v0")
    rewards, terminated, steps = walk_to_goal(env)
    assert steps == sum(1 for _ in rewards)
    assert terminated
    assert rewards[-1] == 1.0
    assert sum(rewards) == 1.0
    assert 202 <= steps <= 206  # 204 from the middle of the nine tiles of the start


@pytest.mark.parametrize("distance", [3, 8, 40, 204])
def test_goal_distance_and_progress(distance: int) -> None:
    env = make_env("rooms", goal_distance=distance, progress_reward=0.5)
    assert rooms.distances(rooms._WALL, rooms.START)[env.unwrapped.goal] == distance
    rewards, terminated, steps = walk_to_goal(env)
    assert terminated
    assert sum(rewards) == pytest.approx(1.0 + 0.5 * steps)


def test_goal_distance_out_of_reach() -> None:
    with pytest.raises(ValueError, match="goal_distance must be from 3 to 204 steps, not 205"):
        make_env("rooms", goal_distance=205)


def test_a_random_policy_stays_in_the_first_rooms() -> None:
    spec, env = describe("rooms"), make_env("rooms")
    env.action_space.seed(0)
    tiles = set()
    for episode in range(40):
        _, info = env.reset(seed=episode)
        truncated = False
        while not truncated:
            _, reward, _, truncated, info = env.step(env.action_space.sample())
            tiles.add(int(coverage_cell(spec, info["position"])))
            assert reward == 0.0
    assert 150 < len(tiles) < 600  # of 1,474


def test_what_is_seen_tells_the_place() -> None:
    """No two tiles look the same, and the view scrolls with the agent."""
    env = make_env("rooms")
    env.reset(seed=0)
    unwrapped = env.unwrapped
    frames = set()
    free = np.argwhere(~rooms._WALL)
    for row, column in free.tolist():
        unwrapped._row, unwrapped._column = row, column
        frames.add(unwrapped._view().tobytes())
    assert len(frames) == len(free)


def walk_to_goal(env: gymnasium.Env) -> tuple[list[float], bool, int]:
    env.reset(seed=3)
    world = env.unwrapped
    steps_to_goal = rooms.distances(rooms._WALL, world.goal)
    rewards, terminated = [], False
    while not terminated and len(rewards) < 300:
        here = steps_to_goal[world._row, world._column]
        action = next(
            number
            for number, (down, right) in enumerate(rooms.MOVES)
            if steps_to_goal[world._row + down, world._column + right] == here - 1
        )
        _, reward, terminated, _, _ = env.step(action)
        rewards.append(reward)
    return rewards, terminated, len(rewards)
