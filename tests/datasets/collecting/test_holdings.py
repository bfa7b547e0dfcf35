"""What a dataset holds: cells and upright steps, counted by hand."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from element_rl.datasets.collecting.holdings import Holdings, healthy_ranges, upright
from element_rl.datasets.minari_writing import EpisodeRecord
from element_rl.envs.spec import EnvSpec

MAP: Any = {"coverage_bounds": ((0.0, 10.0), (0.0, 10.0)), "coverage_cells": (10, 10)}
SPEC = EnvSpec("Some-v0", (2,), 100, **MAP)
RANGES = {0: (0.7, np.inf), 1: (-0.2, 0.2)}


def episode(heights: list[float], positions: list[tuple[float, float]]) -> EpisodeRecord:
    """The first height and position are those of the reset."""
    steps = len(heights) - 1
    observations = np.stack([heights, np.zeros(steps + 1)], axis=1).astype(np.float32)
    infos = {"position": np.array(positions)} if positions else {}
    zeros = np.zeros(steps)
    return EpisodeRecord(observations, zeros[:, None], zeros, zeros > 0, zeros > 0, infos)


def test_cells_are_those_of_all_episodes_and_steps_count_after_the_reset() -> None:
    episodes = [
        episode([0.1, 0.8, 0.8, 0.6], [(0.5, 0.5), (1.5, 0.5), (1.6, 0.4), (1.5, 1.5)]),
        episode([1.0, 1.0], [(0.2, 0.9), (99.0, 0.5)]),  # beyond the map: its border
    ]
    written: dict[str, float] = {}
    passed = list(Holdings(SPEC, RANGES).counted(episodes, into=written))
    assert passed == episodes
    assert written == {"coverage": 4, "upright_share": 0.75}


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    written: dict[str, float] = {}
    list(Holdings(SPEC, {}).counted([episode([1.0, 1.0], [])], into=written))
    assert written == {}


def test_upright_is_what_gymnasium_calls_healthy() -> None:
    """Of robots at random heights and angles: what its own property says."""
    env = gymnasium.make("Walker2d-v5")
    ranges = healthy_ranges(env, {})
    assert ranges == {0: (0.8, 2.0), 1: (-1.0, 1.0)}
    assert healthy_ranges(env, {"exclude_current_positions_from_observation": False}) == {}
    env.reset(seed=0)
    robot, rng = env.unwrapped, np.random.default_rng(0)
    found, expected = [], []
    for _ in range(50):
        position = robot.init_qpos.copy()
        position[1:3] = rng.uniform((0.5, -1.5), (2.3, 1.5))
        robot.set_state(position, robot.init_qvel)
        found.append(upright(robot._get_obs()[None], ranges)[0])
        expected.append(robot.is_healthy)
    assert found == expected
    assert 5 < sum(expected) < 45
    env.close()
    cheetah = gymnasium.make("HalfCheetah-v5")
    assert healthy_ranges(cheetah, {}) == {}
    cheetah.close()


@pytest.mark.parametrize(("height", "angle", "stands"), [(0.7, 0.0, False), (0.8, 0.2, False)])
def test_the_ends_of_the_ranges_do_not_belong(height: float, angle: float, stands: bool) -> None:
    assert upright(np.array([[height, angle]]), RANGES)[0] == stands
