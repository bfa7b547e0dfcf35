"""The best episode of a run as a film, made by living it again: its seed and its actions are all
that was kept of it."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from element_rl.acting.policies import action_scale
from element_rl.envs.make import make_env
from element_rl.runs.folder import RunError, RunFolder
from element_rl.training.on_policy.config import OnPolicyConfig, env_options

FILE = "best_episode.mp4"
FRAMES_PER_SECOND = 15
SMALLEST = 336  # pixels: smaller pictures are enlarged, pixel by pixel, to be seen


def write_video(config: OnPolicyConfig, run: RunFolder) -> Path:
    """Writes the episode with the most cells (then: the furthest, then: the highest return) of all
    agents into the run folder."""
    seed, actions = best_episode(run)
    path = run.path / FILE
    env = _seen(config)
    # Otherwise imageio runs code of its own between fork and exec, which can hang where JAX has
    # threads.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    try:
        import imageio.v2 as imageio

        writer: Any
        with imageio.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=2) as writer:
            frame, _ = env.reset(seed=seed)
            writer.append_data(_picture(env, frame))
            stepped = (
                action_scale(env.action_space)
                if isinstance(env.action_space, gymnasium.spaces.Box)
                else int
            )
            for action in actions:
                frame = env.step(stepped(action))[0]
                writer.append_data(_picture(env, frame))
    except Exception as error:
        path.unlink(missing_ok=True)
        raise RunError(
            f"No video could be made ({type(error).__name__}: {error}): install imageio with its "
            "ffmpeg plug-in."
        ) from error
    finally:
        env.close()
    return path


def best_episode(run: RunFolder) -> tuple[int, np.ndarray]:
    """Seed and actions of the best episode that ended before the newest checkpoint."""
    arrays, _, _ = run.load_resume()
    agents = [
        name.split("/")[2]
        for name in arrays
        if name.startswith("measures/best/") and name.endswith("/worth")
    ]
    if not agents:
        raise RunError(f"No episode of the run {run.path} has ended yet: let it train for longer.")
    best = max(agents, key=lambda agent: tuple(arrays[f"measures/best/{agent}/worth"]))
    return int(arrays[f"measures/best/{best}/seed"]), arrays[f"measures/best/{best}/actions"]


def _seen(config: OnPolicyConfig) -> gymnasium.Env:
    """The environment, in colour where it can be rendered."""
    env = make_env(config.env, **env_options(config))
    if "rgb_array" not in env.metadata.get("render_modes", []):
        return env
    env.close()
    return make_env(config.env, render_mode="rgb_array", **env_options(config))


def _picture(env: gymnasium.Env, frame: np.ndarray) -> np.ndarray:
    picture = env.render() if env.render_mode == "rgb_array" else None
    picture = np.repeat(frame[..., None], 3, axis=-1) if picture is None else np.asarray(picture)
    times = -(-SMALLEST // max(picture.shape[:2]))
    enlarged = picture.repeat(times, axis=0).repeat(times, axis=1)
    return np.ascontiguousarray(
        enlarged[: enlarged.shape[0] // 2 * 2, : enlarged.shape[1] // 2 * 2]
    )
