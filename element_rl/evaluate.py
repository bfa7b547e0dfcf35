"""Acting with the policies of a run's checkpoints: what has each learned to do?

Writes `trajectories.safetensors` (positions per checkpoint) and `evaluation.json` (means per checkpoint) into the run's
evaluation folder, where `element plot` finds them, and on request a video.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from element_rl.agents.host_policy import squashed_gaussian_action
from element_rl.config import ExploreConfig, parsed_options
from element_rl.encoders.state import make_state_encoder
from element_rl.entropy import renyi_entropy
from element_rl.envs.robots import EnvSpec, coverage_cell, describe, make_env, position_of
from element_rl.evaluate_screens import evaluate_on_screen, is_on_screen, write_screen_video
from element_rl.files import write_arrays, write_json
from element_rl.learner import EVALUATION_ORDER
from element_rl.runs import RunError, RunFolder

FRAMES_PER_SECOND = 30


def evaluate(
    run: RunFolder,
    episodes: int = 5,
    deterministic: bool = False,
    checkpoint: int | None = None,
    video: bool = False,
    out: Path | None = None,
) -> list[dict[str, Any]]:
    """Means over seeds and episodes, one entry per checkpoint."""
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}.")
    on_screen = is_on_screen(run)
    steps = run.checkpoint_steps() if checkpoint is None else [checkpoint]
    if not steps:
        raise RunError(f"The run {run.path} has no checkpoint yet: let it train until its first one.")
    rows, trajectories = [], {}
    for step in steps:
        row, positions = (evaluate_on_screen if on_screen else _evaluate_checkpoint)(run, step, episodes, deterministic)
        rows.append(row)
        if positions.shape[-1]:
            trajectories[f"step_{step:09d}/positions"] = positions
    folder = out or run.evaluation_path
    folder.mkdir(parents=True, exist_ok=True)
    if trajectories:
        write_arrays(folder / "trajectories.safetensors", trajectories)
    write_json(folder / "evaluation.json", {"deterministic": deterministic, "checkpoints": rows})
    if video:
        (write_screen_video if on_screen else _write_video)(run, steps[-1], deterministic, folder)
    return rows


def _environment_of(run: RunFolder) -> tuple[ExploreConfig, EnvSpec]:
    settings = run.config["settings"]
    config = ExploreConfig(settings["env"], seed=settings["seed"], env_options=tuple(settings["env_options"]))
    return config, describe(config.env, **parsed_options(config))


def _evaluate_checkpoint(
    run: RunFolder, step: int, episodes: int, deterministic: bool
) -> tuple[dict[str, Any], Float[np.ndarray, "E T position"]]:
    (config, spec), policy = _environment_of(run), run.load_policy(step)
    returns, lengths, entropies, paths = [], [], [], []
    env = make_env(config.env, **parsed_options(config))
    for agent in range(len(policy["bias_0"])):
        measure = _entropy_measure(config.seed + agent, spec)
        parameters = {name: array[agent] for name, array in policy.items()}
        for episode in range(episodes):
            seed = [config.seed + agent, step, episode]
            observations, positions, total = run_episode(env, spec, parameters, seed, deterministic)
            returns.append(total)
            lengths.append(len(observations) - 1)
            entropies.append(measure(observations[1:], positions[1:]))
            paths.append(positions)
    env.close()
    padded = np.full((len(paths), spec.max_episode_steps + 1, spec.position_dim), np.nan, np.float32)
    for index, path in enumerate(paths):
        padded[index, : len(path)] = path
    cells = {int(c) for path in paths for c in coverage_cell(spec, path)} if spec.coverage_bounds else None
    return {
        "step": step,
        "episodes": len(returns),
        "extrinsic_return": float(np.mean(returns)),
        "episode_length": float(np.mean(lengths)),
        "episodic_entropy": float(np.mean(entropies)),
        "coverage": None if cells is None else len(cells),
    }, padded


def _entropy_measure(seed: int, spec: EnvSpec) -> Callable[[np.ndarray, np.ndarray], float]:
    """The paper's evaluation entropy of an episode's observations and positions, compiled for the longest episode."""
    encoder = make_state_encoder(seed, spec.observation_dim, spec.orientation_slice)

    @jax.jit
    def entropy(observations: Array, positions: Array, mask: Array) -> Array:
        return renyi_entropy(jax.vmap(encoder)(observations, positions), EVALUATION_ORDER, 1.0, mask)

    def measure(observations: np.ndarray, positions: np.ndarray) -> float:
        missing = spec.max_episode_steps - len(observations)
        padded = [np.pad(array, ((0, missing), (0, 0))) for array in (observations, positions)]
        return float(entropy(*padded, np.arange(spec.max_episode_steps) < len(observations)))

    return measure


def run_episode(
    env: Any, spec: EnvSpec, parameters: dict[str, np.ndarray], seed: list[int], deterministic: bool, render: Any = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Observations [T+1, O], positions [T+1, C] and the return of one episode."""
    generator = np.random.default_rng(seed)
    low, high = np.asarray(spec.action_low), np.asarray(spec.action_high)
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    observations, positions, total = [observation], [position_of(spec, observation, info, env)], 0.0
    done = False
    while not done:
        noise = generator.standard_normal(spec.action_dim, dtype=np.float32) * (0.0 if deterministic else 1.0)
        action = squashed_gaussian_action(parameters, observation.astype(np.float32), noise.astype(np.float32))
        observation, reward, terminated, truncated, info = env.step(low + (action + 1) / 2 * (high - low))
        observations.append(observation)
        positions.append(position_of(spec, observation, info, env))
        total += float(reward)
        done = terminated or truncated
        if render is not None:
            render()
    return np.asarray(observations, np.float32), np.asarray(positions, np.float32), total


def _write_video(run: RunFolder, step: int, deterministic: bool, folder: Path) -> Path:
    """One episode of the first seed as an mp4, rendered without a screen."""
    import imageio.v2 as imageio

    (config, spec), policy = _environment_of(run), run.load_policy(step)
    if os.environ.get("MUJOCO_GL", "") in ("", "disable", "disabled"):
        os.environ["MUJOCO_GL"] = "osmesa"
    path = folder / f"step_{step:09d}.mp4"
    env = make_env(config.env, render_mode="rgb_array", **parsed_options(config))
    parameters = {name: array[0] for name, array in policy.items()}
    try:
        writer: Any
        with imageio.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=16) as writer:
            run_episode(
                env, spec, parameters, [config.seed, step, 0], deterministic, lambda: writer.append_data(env.render())
            )
    except Exception as error:
        path.unlink(missing_ok=True)
        raise RunError(
            f"No video could be rendered ({type(error).__name__}: {error}): "
            "install OSMesa or EGL and set MUJOCO_GL=osmesa or egl."
        ) from error
    finally:
        env.close()
    return path
