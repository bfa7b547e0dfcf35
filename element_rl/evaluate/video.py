"""A film of one episode of a policy: of a robot, with a camera that goes where the robot goes, or
of the frames that the policy saw.

Gymnasium's MuJoCo robots are filmed by a camera that stands at the origin: after a few seconds an
Ant is out of its picture. Their models have one that follows them, `track`; it is taken. A model
without one has a free camera follow its torso. Environments that are not MuJoCo's render as they
do.
"""

import contextlib
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from element_rl.acting.episode import Step, run_episode
from element_rl.acting.policies import Parameters, policy_of
from element_rl.envs.make import make_env
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunError

FRAMES_PER_SECOND = 30  # of a robot
SCREENS_PER_SECOND = 15  # of the frames that a policy saw
ENLARGED = 4  # pixels along the edge of one of theirs
TRACK = "track"  # the name of the camera that follows, in models of Gymnasium and of others
TORSO = "torso"  # the name of the body that is followed
# Of MuJoCo: the shadows' pixels along an edge, and samples of a pixel. Its own 4,096 and 4 take
# three times as long where no graphics card draws, and look the same in a film.
SHADOW_SIZE, SAMPLES = 1024, 0
# of an environment: with these the user aims
CAMERA_OPTIONS = ("camera_id", "camera_name", "default_camera_config")

Watch = Callable[[int, float], None]
"""Told the number of frames so far, and how many there are in a second."""
AddFrame = Callable[[Any], None]


@contextlib.contextmanager
def without_a_screen() -> Iterator[None]:
    """MuJoCo and pygame draw to memory. Afterwards the environment is as it was: processes that are
    started later could not even import MuJoCo where OSMesa is missing."""
    before = dict(os.environ)
    if before.get("MUJOCO_GL", "") in ("", "disable", "disabled"):
        os.environ["MUJOCO_GL"] = "osmesa"
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        yield
    finally:
        for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM", "SDL_VIDEODRIVER"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@without_a_screen()
def film_robot(
    path: Path,
    env_name: str,
    env_options: Mapping[str, Any],
    parameters: Parameters,
    seed: Sequence[int],
    deterministic: bool,
    watch: Watch = lambda frames, per_second: None,
    every: int = 1,
    spec: EnvSpec | None = None,
) -> Path:
    """Acts until the episode ends and films every so many steps. `spec` is needed for a policy that
    is told where the robot is."""
    check_can_be_seen(env_name, env_options)
    env = make_env(env_name, render_mode="rgb_array", **env_options)

    def act(add_frame: AddFrame) -> None:
        prepare(env, env_options)
        steps = count()

        def show(step: Step) -> None:
            number = next(steps)
            if number > 0 and number % every == 0:
                add_frame(env.render())

        policy = policy_of(parameters, env.action_space)
        run_episode(env, policy, seed, deterministic, show, spec)

    return write_film(path, [env], act, FRAMES_PER_SECOND, watch, remedy_of(env))


def film_frames(
    path: Path,
    env: gymnasium.Env,
    parameters: Parameters,
    seed: Sequence[int],
    deterministic: bool,
    watch: Watch = lambda frames, per_second: None,
    every: int = 1,
) -> Path:
    """The same with the frames that the policy saw, from the reset on; closes the environment."""

    def act(add_frame: AddFrame) -> None:
        steps = count()

        def show(step: Step) -> None:
            if next(steps) % every == 0:
                newest = step.observation[-1] if step.observation.ndim == 3 else step.observation
                add_frame(np.kron(newest, np.ones((ENLARGED, ENLARGED), np.uint8)))

        run_episode(env, policy_of(parameters, env.action_space), seed, deterministic, show)

    remedy = ": install imageio with its ffmpeg plug-in."
    return write_film(path, [env], act, SCREENS_PER_SECOND, watch, remedy)


def write_film(
    path: Path,
    envs: Sequence[gymnasium.Env],
    act: Callable[[AddFrame], None],
    frames_per_second: int,
    watch: Watch,
    remedy: str,
) -> Path:
    """The film of what `act` adds to it; closes the environments. What went wrong is one sentence
    with its remedy."""
    # Otherwise imageio runs code of its own between fork and exec, which can hang where JAX has
    # threads.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    # an older film stays until there is a new one
    unfinished = path.with_suffix(f".part{path.suffix}")
    failure = ""
    try:
        with _silent_renderer():
            try:
                with _writer(unfinished, frames_per_second, watch) as add_frame:
                    act(add_frame)
            # whatever a renderer, a driver or an encoder of films may raise
            except Exception as error:
                failure = f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"
            finally:
                for env in envs:
                    _make_current(env)
                    env.close()
            gc.collect()  # what a failed renderer left behind complains now, where nobody hears it
        if failure:
            raise RunError(f"No video could be rendered ({failure}){remedy}")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def _writer(path: Path, frames_per_second: int, watch: Watch) -> Iterator[AddFrame]:
    import imageio.v2 as imageio

    writer: Any
    with imageio.get_writer(path, fps=frames_per_second, macro_block_size=2) as writer:
        frames, began = 0, time.perf_counter()

        def add_frame(picture: Any) -> None:
            nonlocal frames
            writer.append_data(picture)
            frames += 1
            watch(frames, frames / max(time.perf_counter() - began, 1e-9))

        yield add_frame


def prepare(env: gymnasium.Env, given: Collection[str] = ()) -> None:
    """Before the first picture of a film: the camera follows the robot, and drawing is cheap."""
    follow_robot(env, given)
    renderer = renderer_of(env)
    if renderer is not None:
        quality = renderer.model.vis.quality
        quality.shadowsize, quality.offsamples = SHADOW_SIZE, SAMPLES


def drawn(env: gymnasium.Env) -> Any:
    """The picture of an environment, which need not be the only one that is drawn: OpenGL draws
    for the one that is current, and Gymnasium leaves that to who has several."""
    _make_current(env)
    return env.render()


def _make_current(env: gymnasium.Env) -> None:
    viewer = getattr(renderer_of(env), "viewer", None)
    if viewer is not None:
        viewer.make_context_current()


def follow_robot(env: gymnasium.Env, given: Collection[str] = ()) -> None:
    """Has MuJoCo's camera follow the robot, unless the options `given` to the environment aim it,
    or the environment does."""
    renderer = renderer_of(env)
    if renderer is None or any(name in given for name in CAMERA_OPTIONS):
        return
    camera, config = tracking_camera(renderer.model), renderer.default_cam_config or {}
    if camera is not None:
        renderer.camera_id = camera
    elif (
        "trackbodyid" not in config
        and "lookat" not in config
        and (body := followed_body(renderer.model)) is not None
    ):
        import mujoco

        tracking = {"type": int(mujoco.mjtCamera.mjCAMERA_TRACKING), "trackbodyid": body}
        renderer.default_cam_config = {**config, **tracking}
        renderer.camera_id = None  # any number would turn the camera into one that stands


def tracking_camera(model: Any) -> int | None:
    """The number of the model's camera that follows a body: `track`, or the first that does."""
    import mujoco

    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, TRACK)
    if named >= 0:
        return int(named)
    following = (mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    return next(
        (
            number
            for number, mode in enumerate(model.cam_mode.tolist())
            if mode in map(int, following)
        ),
        None,
    )


def followed_body(model: Any) -> int | None:
    """The number of the torso; without a body of that name, of the first body in the world that can
    move."""
    import mujoco

    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, TORSO)
    if named >= 0:
        return int(named)
    parents, joints = model.body_parentid.tolist(), model.body_jntnum.tolist()
    return next(
        (body for body in range(1, model.nbody) if parents[body] == 0 and joints[body] > 0), None
    )


@contextlib.contextmanager
def _silent_renderer() -> Iterator[None]:
    """Gymnasium's viewer that could not be made is thrown away with "Exception ignored in ...", and
    glfw warns of each of its errors: one sentence is enough."""
    usual = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="glfw")
            yield
    finally:
        sys.unraisablehook = usual


def check_can_be_seen(env_name: str, env_options: Mapping[str, Any]) -> None:
    env = make_env(env_name, **env_options)
    modes = env.metadata.get("render_modes") or []
    env.close()
    if "rgb_array" not in modes:
        raise RunError(
            f"No video of {env_name}: the environment has no render mode rgb_array to film it by."
        )


def remedy_of(env: gymnasium.Env) -> str:
    """The end of the sentence that no video could be rendered."""
    is_mujoco = renderer_of(env) is not None
    return ": install OSMesa or EGL and set MUJOCO_GL=osmesa or egl." if is_mujoco else "."


def renderer_of(env: gymnasium.Env) -> Any:
    """Gymnasium's renderer of MuJoCo environments; None for others."""
    return getattr(env.unwrapped, "mujoco_renderer", None)
