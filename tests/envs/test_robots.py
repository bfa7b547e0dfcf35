"""Sizes, positions and orientations of robots against MuJoCo's own state; names and refusals."""

import dataclasses
import importlib.util
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces

from element_rl.envs.make import describe, make_env
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.envs.spec import EnvSpec, coverage_cell, orientation_of, position_of

ROBOTS = [
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "Humanoid-v5",
    "Humanoid-v4",
    "Ant-v4",
    "Hopper-v4",
    "Walker2d-v4",
    "HalfCheetah-v5",
    "HalfCheetah-v4",
]
PLANAR = ("Hopper", "Walker2d", "HalfCheetah")


@pytest.mark.parametrize(
    ("name", "full_name", "observation_dim", "action_dim"),
    [
        ("Hopper", "Hopper-v5", 11, 3),
        ("Walker2d", "Walker2d-v5", 17, 6),
        ("Ant", "Ant-v5", 27, 8),
        ("HalfCheetah", "HalfCheetah-v5", 17, 6),
        ("Humanoid-v4", "Humanoid-v4", 376, 17),
        ("Humanoid", "Humanoid-v5", 348, 17),
    ],
)
def test_sizes_are_those_of_the_paper(
    name: str, full_name: str, observation_dim: int, action_dim: int
) -> None:
    spec = describe(name)
    assert (spec.name, spec.observation_dim, spec.action_dim) == (
        full_name,
        observation_dim,
        action_dim,
    )
    assert (spec.position_dim, spec.max_episode_steps) == (2, 1000)
    assert spec.orientation_dim == (1 if name in PLANAR else 4)
    assert spec.coverage_axes == (("x", "z") if name in PLANAR else ("x", "y"))
    bound = 0.4 if "Humanoid" in name else 1.0
    np.testing.assert_allclose(spec.action_high, bound)
    np.testing.assert_allclose(spec.action_low, -bound)
    assert hash(spec) == hash(describe(full_name))


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("name", ROBOTS)
def test_position_and_orientation_are_those_of_the_torso(name: str, exclude: bool) -> None:
    options = {"exclude_current_positions_from_observation": exclude}
    spec = describe(name, **options)
    env = make_env(name, **options)
    planar = name.startswith(PLANAR)
    observation, info = env.reset(seed=3)
    env.action_space.seed(3)
    for _ in range(20):
        coordinates = env.unwrapped.data.qpos
        position = position_of(spec, observation, info, env)
        orientation = orientation_of(spec, observation)
        assert position.dtype == np.float32
        np.testing.assert_array_equal(position, coordinates[:2].astype(np.float32))
        np.testing.assert_array_equal(orientation, coordinates[2:3] if planar else coordinates[3:7])
        assert orientation_of(spec, np.stack([observation] * 3)).shape == (3, spec.orientation_dim)
        observation, _, terminated, _, info = env.step(env.action_space.sample())
        if terminated:
            observation, info = env.reset()


def test_ant_observes_contact_forces_when_asked_to() -> None:
    spec = describe("Ant", include_cfrc_ext_in_observation=True)
    assert spec.observation_dim == 105
    assert spec.orientation_slice == (1, 5)


def test_cells_of_the_map() -> None:
    ant = describe("Ant")
    positions = np.array(
        [
            [-100.0, -100.0],
            [-98.4, -97.6],
            [0.0, 0.0],
            [99.96, -100.0],
            [1e30, -1e30],
            [100.0, 100.0],
        ]
    )
    np.testing.assert_array_equal(coverage_cell(ant, positions), [0, 1, 5050, 9900, 9900, 9999])
    assert coverage_cell(ant, positions.reshape(2, 3, 2).astype(np.float32)).shape == (2, 3)
    hopper = describe("Hopper")
    assert int(coverage_cell(hopper, np.array([0.1, 1.26]))) == 50 * 100 + 50
    assert int(coverage_cell(hopper, np.array([0.1, 99.0]))) == 50 * 100 + 99


def test_any_box_environment_works_without_a_map() -> None:
    spec = describe("Pendulum")
    plain = EnvSpec("Pendulum-v1", (3,), 200, (-2.0,), (2.0,))
    assert spec == dataclasses.replace(plain, other_cells=spec.other_cells)
    assert (spec.position_dim, spec.orientation_dim, spec.coverage_bounds) == (0, 0, None)
    env = make_env("Pendulum")
    observation, info = env.reset(seed=0)
    assert position_of(spec, observation, info).shape == (0,)
    assert orientation_of(spec, observation).shape == (0,)
    with pytest.raises(ValueError, match="'Pendulum-v1' has no coverage map"):
        coverage_cell(spec, np.zeros((1, 2)))


def test_every_environment_has_a_time_limit() -> None:
    assert describe("Ant", max_episode_steps=70).max_episode_steps == 70
    gymnasium.register(
        "element-tests/NoLimit-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    )
    try:
        assert describe("element-tests/NoLimit").max_episode_steps == 1000
        env = make_env("element-tests/NoLimit-v0")
        env.reset(seed=0)
        assert [env.step(np.zeros(1, np.float32))[3] for _ in range(1000)] == [False] * 999 + [True]
    finally:
        del gymnasium.registry["element-tests/NoLimit-v0"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Atn-v5", {}, "There is no environment 'Atn-v5'; did you mean Ant-v5"),
        ("ant", {}, "did you mean Ant-v5"),
        ("HalfCheeta", {}, "did you mean HalfCheetah-v5"),
        (
            "Zzyzx",
            {},
            "There is no environment 'Zzyzx'; try one of Hopper.*One of another package: "
            "package:Zzyzx",
        ),
        ("Ant-v9", {}, "did you mean Ant-v5"),
        (
            "ALE/Breakout-v5",
            {},
            "no environment 'ALE/Breakout-v5' until .* imported: say ale_py:ALE/Breakout-v5.$",
        ),
        (
            "MiniGrid-Empty-8x8-v0",
            {},
            "'MiniGrid-Empty-8x8-v0' until .* imported: say minigrid:MiniGrid-Empty-8x8-v0.$",
        ),
        (
            "mine/Walk-v0",
            {},
            "say package:mine/Walk-v0, where package is the one that registers it",
        ),
        (
            "own_world:OwnWallk-v0",
            {},
            "'own_world' registers no environment 'OwnWallk-v0'; did you mean own_world:OwnWalk-v0",
        ),
        ("own_world:Zzyzx", {}, "it registers OwnWalk-v0"),
        ("json:Walk-v0", {}, "it registers none"),
        (
            "own_world:OwnFailing",
            {},
            "cannot be made: AttributeError: module 'mujoco' has no attribute 'MjOld'; install",
        ),
        (
            "no_such_module:Ant-v5",
            {},
            "Module 'no_such_module' of environment 'Ant-v5' cannot be imported",
        ),
        (
            "Ant",
            {"legs": 5},
            "'Ant-v5' cannot be made: .*unexpected keyword argument 'legs'.* correct the options",
        ),
        (
            "Ant",
            {"max_episode_steps": 0},
            "max_episode_steps must be a whole number from 1 to 10,000,000, not 0",
        ),
        ("Ant-v3", {}, "'Ant-v3' cannot be made: .*gymnasium-robotics"),
    ],
)
def test_refusals_are_one_sentence(
    name: str, options: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # other tests may have imported the package that registers these
    for known in [known for known in gymnasium.registry if known.startswith("MiniGrid-")]:
        monkeypatch.delitem(gymnasium.registry, known)
    with pytest.raises(ValueError, match=message) as refusal:
        describe(name, **options)
    assert "\n" not in str(refusal.value)


VECTOR, IMAGE = spaces.Box(0.0, 1.0, (4,)), spaces.Box(0, 255, (40, 40, 3), np.uint8)
TURN, CHOICE = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("seen", "acts", "message"),
    [
        (IMAGE, CHOICE, "shows images .*`element on-policy own_world:OwnSpaces-v0`, or .*DQN"),
        (spaces.Dict(a=IMAGE, b=IMAGE), CHOICE, r"shows 2 images \(a, b\).*FilterObservation"),
        (spaces.Text(3), CHOICE, "observes Text.*one of them has no numbers"),
        (spaces.Discrete(2_000_000), CHOICE, "takes 2,000,000 numbers.*at most 1,000,000"),
        (VECTOR, spaces.MultiDiscrete([33, 32]), "has 1,056 combinations.*1,024 at most.*PPO"),
        (VECTOR, spaces.Tuple([CHOICE, TURN]), "not both: wrap it with .*TransformAction"),
        (
            VECTOR,
            spaces.Box(-1.0, np.inf, (1,)),
            "infinite action bounds .*TransformAction.*IntrinsicCallback",
        ),
    ],
)
def test_a_refusal_of_spaces_names_a_way_out(
    seen: spaces.Space, acts: spaces.Space, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        describe(
            *("own_world:OwnSpaces-v0", (), (), "vectors"),
            **{"observation_space": seen, "action_space": acts},
        )
    assert "\n" not in str(refusal.value)


def test_a_missing_dependency_is_one_sentence() -> None:
    if importlib.util.find_spec("Box2D") is not None:
        pytest.skip("Box2D is installed, so nothing is missing")
    with pytest.raises(
        ValueError,
        match=r"'BipedalWalker-v3' cannot be made: Box2D is not installed.*what it needs\.$",
    ):
        describe("BipedalWalker")


def test_modules_of_worker_processes_do_not_import_jax() -> None:
    code = "import sys, element_rl.acting.collector; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_who_can_fall() -> None:
    assert all(can_fall(name) for name in ("Ant-v5", "Humanoid-v4", "Hopper-v5"))
    assert not any(can_fall(name) for name in ("PointMaze-v0", "Pendulum-v1", "Ant-v3"))
    env = make_env("Hopper", **{HEALTH_OPTION: False})
    env.reset(seed=0)
    # it has fallen long since
    assert not any(env.step(env.action_space.high)[2] for _ in range(200))


def test_the_physics_is_the_one_that_was_measured_with() -> None:
    """Margins of geoms are added up, as from MuJoCo 3.5 on (docs/design.md)."""
    ball_over_plane = """
        <mujoco><worldbody>
            <geom type="plane" size="1 1 1" margin="0.1"/>
            <body pos="0 0 0.25"><freejoint/><geom type="sphere" size="0.1" margin="0.1"/></body>
        </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(ball_over_plane)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.ncon == 1  # 0.15 apart
