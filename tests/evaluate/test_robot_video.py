"""Films of robots: the camera goes where they go; where nothing can be rendered, one sentence says
so.

What needs no OpenGL is tested without. MuJoCo computes where its cameras are, whether anything is
drawn or not.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from support.films import frames_of

from element_rl.agents.sac import SACConfig
from element_rl.envs.make import make_env
from element_rl.envs.point_maze import PointMaze
from element_rl.evaluate.checkpoints import film
from element_rl.evaluate.video import follow_robot, followed_body, tracking_camera
from element_rl.runs.folder import RunError, RunFolder
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run

FAR = 30.0  # metres that a robot is put away from where it begins
NEAR = 6.0  # metres from which it is filmed, at most


def looked_from(env: gymnasium.Env) -> np.ndarray:
    """Where the camera of a film is, the robot being far away."""
    env.reset(seed=0)
    model, data, renderer = env.unwrapped.model, env.unwrapped.data, env.unwrapped.mujoco_renderer
    data.qpos[0] += FAR
    mujoco.mj_forward(model, data)
    camera, scene = mujoco.MjvCamera(), mujoco.MjvScene(model, 1000)
    for name, value in (renderer.default_cam_config or {}).items():  # as the renderer does
        if isinstance(value, np.ndarray):
            getattr(camera, name)[:] = value
        else:
            setattr(camera, name, value)
    if renderer.camera_id is not None:
        kinds = mujoco.mjtCamera
        camera.type = kinds.mjCAMERA_FREE if renderer.camera_id == -1 else kinds.mjCAMERA_FIXED
        camera.fixedcamid = renderer.camera_id
    options, perturbation = mujoco.MjvOption(), mujoco.MjvPerturb()
    mujoco.mjv_updateScene(
        model, data, options, perturbation, camera, mujoco.mjtCatBit.mjCAT_ALL, scene
    )
    return np.array(scene.camera[0].pos)


@pytest.mark.parametrize(
    "robot", ["Ant-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5", "Humanoid-v4", "Swimmer-v5"]
)
def test_the_camera_goes_where_the_robot_goes(robot: str) -> None:
    env = make_env(robot, render_mode="rgb_array")
    follow_robot(env)
    camera = env.unwrapped.mujoco_renderer.camera_id
    assert env.unwrapped.model.camera(camera).name == "track"
    assert abs(looked_from(env)[0] - FAR) < NEAR
    env.close()


def test_an_ant_left_its_picture_before() -> None:
    env = make_env("Ant-v5", render_mode="rgb_array")
    assert abs(looked_from(env)[0] - FAR) > NEAR
    env.close()


MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="40 40 1"/>{post}
    <body name="{name}" pos="0 0 1">
      <freejoint/><geom type="sphere" size="0.2"/><body><geom size="0.1"/></body>
    </body>
  </worldbody>
</mujoco>
"""


class Ball(MujocoEnv):
    """A model of somebody's own, without a camera."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, path: str, **options: Any) -> None:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float64)
        super().__init__(path, 5, space, **options)

    def _set_action_space(self) -> None:
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset_model(self) -> np.ndarray:
        self.set_state(self.init_qpos, self.init_qvel)
        return self.data.qpos.copy()


@pytest.mark.parametrize("name", ["torso", "anything"])
def test_a_model_without_such_a_camera(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ball.xml"
    path.write_text(
        MODEL.format(name=name, post='<body name="post" pos="9 9 0"><geom size="0.1"/></body>')
    )
    env = Ball(str(path), render_mode="rgb_array")
    assert tracking_camera(env.model) is None
    assert env.model.body(followed_body(env.model)).name == name  # not the post, which cannot move
    before = looked_from(env)
    follow_robot(env)
    assert abs(looked_from(env)[0] - before[0] - FAR) < NEAR
    env.close()


def test_who_aims_the_camera_keeps_it() -> None:
    """The user by an option, or an environment that has thought of it."""
    env = make_env("Ant-v5", render_mode="rgb_array", camera_id=-1)
    follow_robot(env, {"camera_id": -1})
    assert env.unwrapped.mujoco_renderer.camera_id == -1
    env.close()
    env = make_env("Pusher-v5", render_mode="rgb_array")
    before = dict(env.unwrapped.mujoco_renderer.default_cam_config)
    follow_robot(env)
    assert env.unwrapped.mujoco_renderer.default_cam_config == before
    env.close()
    follow_robot(make_env("Pendulum-v1", render_mode="rgb_array"))  # is not MuJoCo's


def small_run(folder: Path, env: str) -> RunFolder:
    config = ExploreConfig(
        env,
        steps=60,
        replay_size=500,
        chunk_steps=20,
        random_seeds=0,
        workers=0,
        env_options=("max_episode_steps=20",),
        sac=SACConfig(hidden_sizes=(8,), batch_size=8),
    )
    run = create_run(config, folder)
    explore(config, run)
    return run


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return small_run(tmp_path_factory.mktemp("film") / "hopper", "Hopper-v5")


def evaluated(
    run: RunFolder, out: Path, warnings: str = "ignore", **variables: str
) -> subprocess.CompletedProcess[str]:
    """`element evaluate RUN --video`, as a person runs it."""
    command = [
        sys.executable,
        "-W",
        warnings,
        "-m",
        "element_rl.cli",
        "evaluate",
        str(run.path),
        "--video",
    ]
    command += ["--episodes", "1", "--out", str(out)]
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")
    }
    return subprocess.run(
        command, env=surroundings | variables, capture_output=True, text=True, check=False
    )


def test_without_opengl_there_is_one_sentence_and_nothing_is_lost(
    hopper: RunFolder, tmp_path: Path
) -> None:
    """MuJoCo is asked for one library and PyOpenGL for another, which no machine can do."""
    older = tmp_path / "step_000000060.mp4"
    older.write_text("a film of yesterday")
    done = evaluated(hopper, tmp_path, MUJOCO_GL="osmesa", PYOPENGL_PLATFORM="egl")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("element: No video could be rendered (ImportError: ")
    assert lines[0].endswith("install OSMesa or EGL and set MUJOCO_GL=osmesa or egl.")
    assert "Exception ignored" not in done.stdout
    assert "entropy" in done.stdout  # the table
    assert (tmp_path / "evaluation.json").exists()
    assert older.read_text() == "a film of yesterday"
    assert not list(tmp_path.glob("*.part*"))


def test_without_a_display_there_is_one_sentence_too(hopper: RunFolder, tmp_path: Path) -> None:
    """glfw would warn of each of its errors."""
    done = evaluated(hopper, tmp_path, warnings="default::UserWarning", MUJOCO_GL="glfw")
    assert done.returncode == 2
    assert "GLFWError" not in done.stderr
    assert done.stderr.startswith("element: No video could be rendered (")


def test_later_processes_do_not_inherit_the_renderer(hopper: RunFolder, tmp_path: Path) -> None:
    """Where OSMesa is missing, they could not import MuJoCo."""
    before = os.environ.get("MUJOCO_GL")
    with contextlib.suppress(RunError):  # whether it can be rendered here or not
        film(hopper, out=tmp_path)
    assert os.environ.get("MUJOCO_GL") == before


def test_a_film(hopper: RunFolder, tmp_path: Path) -> None:
    done = evaluated(hopper, tmp_path)
    if "No video could be rendered" in done.stderr:
        pytest.skip(f"MuJoCo cannot render here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    path = tmp_path / "step_000000060.mp4"
    assert done.stdout.splitlines()[-1] == f"Video: {path}"
    assert "film         20 / 20" in done.stdout
    frames = frames_of(path, 480, 480).astype(int)
    assert len(frames) == 20
    red, _, blue = np.moveaxis(frames[-1], -1, 0)
    # the robot is of the colour of clay, the floor and the sky are not
    assert np.sum(red - blue > 60) > 1000


def test_two_robots_in_one_film(hopper: RunFolder, tmp_path: Path) -> None:
    """OpenGL draws for one of two renderers at a time, and each draws its own robot."""
    try:
        path = film(hopper, out=tmp_path, every=10, beside_random=True)
    except RunError as error:
        pytest.skip(f"MuJoCo cannot render here: {error}")
    assert path.name == "step_000000060_beside_random.mp4"
    frames = frames_of(path, 540, 968)
    assert len(frames) == 2
    left, right = (frames[-1].astype(int)[60:, side] for side in (slice(480), slice(488, None)))
    assert np.abs(left - right).max() > 100
    for side in (left, right):
        assert np.sum(side[..., 0] - side[..., 2] > 60) > 1000  # the colour of clay
        assert side[-50:, 20:100].min(axis=-1).mean() > 180  # the map in its corner


def test_environments_that_are_not_mujocos(tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="Pendulum is drawn by pygame")
    told = []
    path = film(small_run(tmp_path / "pendulum", "Pendulum-v1"), out=tmp_path, watch=told.append)
    assert path.stat().st_size > 1_000
    assert [progress.step for progress in told] == list(range(1, 21))


def test_an_environment_that_cannot_draw_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PointMaze, "metadata", {"render_modes": []})
    run = small_run(tmp_path / "maze", "PointMaze-v0")
    for beside_random in (False, True):
        with pytest.raises(
            RunError, match="No video of PointMaze-v0: the environment has no render mode"
        ):
            film(run, beside_random=beside_random)
