"""A film of one episode of a policy on a robot, with a camera that goes where the robot goes.

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from element_rl.acting.episodes import run_episode
from element_rl.envs.robots import EnvSpec, make_env
from element_rl.runs.folder import RunError

FRAMES_PER_SECOND = 30
TRACK = "track"  # the name of the camera that follows, in models of Gymnasium and of others
TORSO = "torso"  # the name of the body that is followed
CAMERA_OPTIONS = (
    "camera_id",
    "camera_name",
    "default_camera_config",
)  # of an environment: with these the user aims


def write_video(
    path: Path,
    env_name: str,
    env_options: Mapping[str, Any],
    spec: EnvSpec,
    parameters: Mapping[str, np.ndarray],
    seed: Sequence[int],
    deterministic: bool,
    watch: Callable[[int, float], None] = lambda frames, per_second: None,
    every: int = 1,
) -> Path:
    """Acts until the episode ends and films every so many steps.

    The watcher is told the number of frames and how many there are in a second.
    """
    _check_can_be_seen(env_name, env_options)
    if os.environ.get("MUJOCO_GL", "") in ("", "disable", "disabled"):
        os.environ["MUJOCO_GL"] = "osmesa"
    # environments drawn by pygame need no screen either
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    # Otherwise imageio runs code of its own between fork and exec, which can hang where JAX has
    # threads.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    # an older film stays until there is a new one
    unfinished = path.with_suffix(f".part{path.suffix}")
    env = make_env(env_name, render_mode="rgb_array", **env_options)
    is_mujoco = _renderer_of(env) is not None
    failure = ""
    try:
        with _silent_destructors():
            try:
                follow_robot(env, env_options)
                with _frames_of(unfinished, env, watch, every) as add_frame:
                    run_episode(spec, env, parameters, seed, deterministic, add_frame)
            # whatever a renderer, a driver or an encoder of films may raise
            except Exception as error:
                failure = f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"
            finally:
                env.close()
            gc.collect()  # what a failed renderer left behind complains now, where nobody hears it
        if failure:
            remedy = (
                ": install OSMesa or EGL and set MUJOCO_GL=osmesa or egl." if is_mujoco else "."
            )
            raise RunError(f"No video could be rendered ({failure}){remedy}")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def follow_robot(env: gymnasium.Env, given: Collection[str] = ()) -> None:
    """Has MuJoCo's camera follow the robot, unless the options `given` to the environment aim it,
    or the environment does."""
    renderer = _renderer_of(env)
    if renderer is None or any(name in given for name in CAMERA_OPTIONS):
        return
    camera, own = tracking_camera(renderer.model), renderer.default_cam_config or {}
    if camera is not None:
        renderer.camera_id = camera
    elif (
        "trackbodyid" not in own
        and "lookat" not in own
        and (body := followed_body(renderer.model)) is not None
    ):
        import mujoco

        tracking = {"type": int(mujoco.mjtCamera.mjCAMERA_TRACKING), "trackbodyid": body}
        renderer.default_cam_config = {**own, **tracking}
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
def _frames_of(
    path: Path, env: gymnasium.Env, watch: Callable[[int, float], None], every: int
) -> Iterator[Callable[[], None]]:
    """A function, to be called at every step, that adds what the environment looks like now to a
    film."""
    import imageio.v2 as imageio

    writer: Any
    with imageio.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=2) as writer:
        steps, frames, began = 0, 0, time.perf_counter()

        def add_frame() -> None:
            nonlocal steps, frames
            steps += 1
            if steps % every:
                return
            writer.append_data(env.render())
            frames += 1
            watch(frames, frames / max(time.perf_counter() - began, 1e-9))

        yield add_frame


@contextlib.contextmanager
def _silent_destructors() -> Iterator[None]:
    """Gymnasium's viewer that could not be made is thrown away with "Exception ignored in ...": one
    sentence is enough."""
    usual = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _check_can_be_seen(env_name: str, env_options: Mapping[str, Any]) -> None:
    env = make_env(env_name, **env_options)
    modes = env.metadata.get("render_modes") or []
    env.close()
    if "rgb_array" not in modes:
        raise RunError(
            f"No video of {env_name}: the environment has no render mode rgb_array to film it by."
        )


def _renderer_of(env: gymnasium.Env) -> Any:
    """Gymnasium's renderer of MuJoCo environments; None for others."""
    return getattr(env.unwrapped, "mujoco_renderer", None)
