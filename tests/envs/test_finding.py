"""Positions that are found by themselves."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from element_rl.envs.atari import GAMES, place_in, pyramid_place
from element_rl.envs.finding import Found, find_position
from element_rl.envs.make import describe, make_env
from element_rl.envs.positions import read_position
from element_rl.envs.spec import position_of
from element_rl.envs.vectors import Vectors


class Plain(gymnasium.Env[Any, Any]):
    """Observes three numbers, and has what it is given."""

    def __init__(self, space: spaces.Space | None = None, **attributes: Any) -> None:
        self.observation_space = space or spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        for name, value in attributes.items():
            setattr(self, name, value)


class Model:
    """What MuJoCo says of joints: free 0, ball 1, slide 2, hinge 3."""

    def __init__(self, types: list[int], axes: list[list[int]], bodies: list[int]) -> None:
        self.jnt_type, self.jnt_axis = np.array(types), np.array(axes, np.float64)
        self.jnt_bodyid = np.array(bodies)
        widths = [{0: 7, 1: 4}.get(kind, 1) for kind in types]
        self.jnt_qposadr = np.cumsum([0, *widths])[:-1]
        self.body_parentid = np.array([0, 0, 1, 2])


class Data:
    qpos = np.arange(10.0)


def found(env: gymnasium.Env, info: dict[str, Any] | None = None) -> Found | None:
    return find_position(env, info or {}, info or {})


def test_the_entry_of_info_comes_first() -> None:
    env = Plain(agent_pos=(1, 2), agent_dir=0)
    first = found(env, {"position": (3, 4.5), "x_position": 1.0, "y_position": 2.0})
    assert first is not None
    assert first.position == ("position",)
    read = read_position(first.position, None, {"position": (3, 4.5)})
    np.testing.assert_array_equal(read, np.array([3, 4.5], np.float32))
    for no_place in ("left", [1.0], np.zeros((2, 2)), {"x": 1}, None, np.zeros(9)):
        other = found(env, {"position": no_place})
        assert other is not None
        assert other.position == ("env.agent_pos",)
    assert find_position(Plain(), {}, {"position": (3, 4)}) is None  # not at reset


def test_the_goal_of_a_dict() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float64)
    space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
    goal = found(Vectors(Plain(space)), {"x_position": 1.0, "y_position": 2.0})
    assert goal is not None
    columns = list(space.spaces).index("achieved_goal") * 2
    assert (goal.position, goal.axes) == ((columns, columns + 1), ("x", "y"))


def test_a_maze_has_cells_of_a_tenth_of_its_tiles() -> None:
    box = spaces.Box(-1.0, 1.0, (2,), np.float64)
    space = spaces.Dict({"achieved_goal": box, "observation": box})
    for side, cell in ((4, (0.4, 0.4)), (1.0, (0.1, 0.1)), (0, None), ("wide", None)):
        maze = type("Maze", (), {"maze_size_scaling": side})()
        goal = found(Vectors(Plain(space, maze=maze)))
        assert goal is not None
        assert goal.cell == cell
    goal = found(Vectors(Plain(space)))
    assert goal is not None
    assert goal.cell is None


def test_entries_of_info_that_robots_have() -> None:
    entries = found(Plain(), {"x_position": np.float64(1.0), "y_position": 2.0})
    assert entries is not None
    assert entries.position == ("x_position", "y_position")


@pytest.mark.parametrize(
    ("model", "position", "axes"),
    [
        (Model([0, 3], [[0, 0, 1]] * 2, [1, 2]), "env.data.qpos[0:2]", ("x", "y")),
        (Model([2, 2, 3], [[1, 0, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 1]), "env.data.qpos[0:2]",
         ("x", "z")),
        (Model([2, 2], [[1, 0, 0], [0, 1, 0]], [1, 1]), "env.data.qpos[0:2]", ("x", "y")),
        (Model([2, 2], [[1, 0, 0], [1, 0, 0]], [1, 1]), None, None),  # twice along x
        (Model([2, 3], [[1, 0, 0], [0, 1, 0]], [1, 2]), None, None),  # a cart and its pole
        (Model([3, 3], [[0, 0, 1]] * 2, [1, 2]), None, None),  # an arm
        (Model([0], [[0, 0, 1]], [2]), None, None),  # no root
        (Model([], [], []), None, None),
    ],
)  # fmt: skip
def test_the_root_of_mujoco(
    model: Model, position: str | None, axes: tuple[str, str] | None
) -> None:
    root = found(Plain(model=model, data=Data()))
    if position is None:
        assert root is None
        return
    assert root is not None
    assert (root.position, root.axes, root.unit) == ((position,), axes, "m")
    env = Plain(model=model, data=Data())
    np.testing.assert_array_equal(read_position(root.position, None, {}, env), [0.0, 1.0])


def test_a_root_that_slides_upwards_first() -> None:
    """As dm_control's walker; x is the first axis of the map all the same."""
    env = Plain(model=Model([2, 2, 3], [[0, 0, 1], [1, 0, 0], [0, 1, 0]], [1, 1, 1]), data=Data())
    root = found(env)
    assert root is not None
    assert (root.position, root.axes) == (("env.data.qpos[1]", "env.data.qpos[0]"), ("x", "z"))
    np.testing.assert_array_equal(read_position(root.position, None, {}, env), [1.0, 0.0])


def test_dm_control_has_it_within() -> None:
    physics = type("Physics", (), {"model": Model([0], [[0, 0, 1]], [1]), "data": Data()})()
    within = type("Within", (), {"physics": physics})()
    root = found(Plain(_env=within))
    assert root is not None
    assert root.position == ("env._env.physics.data.qpos[0:2]",)


def test_an_observation_of_two_numbers_is_a_position() -> None:
    two = found(Plain(spaces.Box(-1.0, 1.0, (2,), np.float32)))
    assert two is not None
    assert (two.position, two.axes) == ((0, 1), ("observation[0]", "observation[1]"))
    assert found(Plain()) is None


def test_minigrid_has_tiles_and_a_direction() -> None:
    pytest.importorskip("minigrid")
    name = "minigrid:MiniGrid-Empty-5x5-v0"
    spec = describe(name)
    assert (spec.position, spec.position_dim) == (("env.agent_pos",), 2)
    assert (spec.coverage_cell_size, spec.coverage_unit) == ((1.0, 1.0), "tiles")
    assert spec.orientation_dim == 4  # one-hot
    env = make_env(name)
    observation, info = env.reset(seed=0)
    assert position_of(spec, observation, info, env).tolist() == [1.0, 1.0]
    first, last = spec.orientation_slice
    assert observation[first:last].tolist() == [1.0, 0.0, 0.0, 0.0]  # to the right
    observation, *_, info = env.step(2)  # forward
    assert position_of(spec, observation, info, env).tolist() == [2.0, 1.0]


def test_the_pyramid_of_montezuma() -> None:
    """Rooms 0 to 2, 3 to 7, 8 to 14 and 15 to 23; 5 lies below 1, 11 below 5, 19 below 11."""
    places = {room: pyramid_place(room) for room in range(24)}
    assert [places[room] for room in (0, 1, 2)] == [(-1, 0), (0, 0), (1, 0)]
    assert [places[room] for room in (3, 5, 7)] == [(-2, -1), (0, -1), (2, -1)]
    assert [places[room] for room in (8, 11, 14)] == [(-3, -2), (0, -2), (3, -2)]
    assert [places[room] for room in (15, 19, 23)] == [(-4, -3), (0, -3), (4, -3)]
    assert len(set(places.values())) == 24
    memory = np.zeros(128, np.uint8)
    memory[[42, 43, 3]] = 77, 235, 1
    assert place_in(GAMES["montezuma_revenge"], memory).tolist() == [77.0, 107.0]
    memory[[3, 57]] = 6, 1  # room 6, one column to the right, in the second level
    assert place_in(GAMES["montezuma_revenge"], memory).tolist() == [77.0 + 160, 107.0 - 5 * 128]
    memory[[97, 105, 1]] = 16, 32, 196  # 196 = 12 · 16 + 4
    assert place_in(GAMES["pitfall"], memory).tolist() == [16.0 + 4 * 160, 223.0 - 12 * 256]


def test_atari_games() -> None:
    pytest.importorskip("ale_py")
    spec = describe("ale_py:ALE/MontezumaRevenge-v5")
    assert (spec.position, spec.coverage_start) == (("atari-ram",), (77.0, 107.0))


def test_gymnasium_robotics() -> None:
    pytest.importorskip("gymnasium_robotics")
    spec = describe("gymnasium_robotics:PointMaze_UMaze-v3")
    assert spec.position == (0, 1)
    assert spec.found == "achieved_goal of the observation"
    assert spec.coverage_cell_size == (0.1, 0.1)  # tiles of a metre
