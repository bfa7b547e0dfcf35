"""Acting with the policies of a run's checkpoints: what has each learned to do?

Writes `trajectories.safetensors` (positions per checkpoint) and `evaluation.json` (means per checkpoint) into the run's
evaluation folder, where `element plot` finds them, and on request a video.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from element_rl.config import ExploreConfig, parsed_options
from element_rl.encoders.state import StateEncoder, make_state_encoder
from element_rl.entropy import renyi_entropy
from element_rl.envs.robots import EnvSpec, coverage_cell, describe, make_env
from element_rl.episodes import Episode, run_episode
from element_rl.evaluate_screens import evaluate_on_screen, is_on_screen, write_screen_video
from element_rl.evaluators import Evaluator, workers_for
from element_rl.explore import Progress
from element_rl.files import write_arrays, write_json
from element_rl.learner import EVALUATION_ORDER
from element_rl.runs import RunError, RunFolder

FRAMES_PER_SECOND = 30

Measure = Callable[[np.ndarray, np.ndarray], float]  # the entropy of an episode's observations and positions
Acted = tuple[dict[str, Any], Float[np.ndarray, "E M C"]]  # means of a checkpoint, positions of its episodes


def evaluate(
    run: RunFolder,
    episodes: int = 5,
    deterministic: bool = False,
    checkpoint: int | None = None,
    video: bool = False,
    out: Path | None = None,
    workers: int | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> list[dict[str, Any]]:
    """Means over seeds and episodes, one entry per checkpoint; the watcher is told of episodes.

    Robots act in `workers` processes (None: as many as there are cores, if there is much to do); what is written does not
    depend on their number. Screens act in this one.
    """
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}.")
    if workers is not None and workers < 0:
        raise ValueError(f"--workers must not be negative, got {workers}.")
    on_screen = is_on_screen(run)
    steps = run.checkpoint_steps() if checkpoint is None else [checkpoint]
    if not steps:
        raise RunError(f"The run {run.path} has no checkpoint yet: let it train until its first one.")
    rows, trajectories = [], {}
    acted = (
        _acted_on_screen(run, steps, episodes, deterministic)
        if on_screen
        else _acted(run, steps, episodes, deterministic, workers)
    )
    began = time.perf_counter()
    for row, positions in acted:
        rows.append(row)
        if positions.shape[-1]:
            trajectories[f"step_{row['step']:09d}/positions"] = positions
        done = sum(entry["episodes"] for entry in rows)
        planned = row["episodes"] * len(steps)
        watch(Progress(done, planned, done / max(time.perf_counter() - began, 1e-9), {}))
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


def _acted_on_screen(run: RunFolder, steps: Sequence[int], episodes: int, deterministic: bool) -> Iterator[Acted]:
    for step in steps:
        yield evaluate_on_screen(run, step, episodes, deterministic)


def _acted(
    run: RunFolder, steps: Sequence[int], episodes: int, deterministic: bool, workers: int | None
) -> Iterator[Acted]:
    """Checkpoint after checkpoint, as many at a time as keep all processes busy."""
    config, spec = _environment_of(run)
    agents = len(run.load_policy(steps[0])["bias_0"])
    measures = [_entropy_measure(config.seed + agent, spec) for agent in range(agents)]
    if workers is None:
        jobs = len(steps) * agents * episodes
        workers = workers_for(jobs, jobs * spec.max_episode_steps)
    together = -(-max(workers, 1) // (agents * episodes))
    with Evaluator(config.env, parsed_options(config), workers, run=partial(run_episode, spec)) as evaluator:
        for begin in range(0, len(steps), together):
            batch = steps[begin : begin + together]
            policies = [run.load_policy(step) for step in batch]
            seeds = [
                [(config.seed + agent, step, episode) for episode in range(episodes)]
                for step in batch
                for agent in range(agents)
            ]
            parameters = {name: np.concatenate([policy[name] for policy in policies]) for name in policies[0]}
            evaluator.start(parameters, seeds, deterministic)
            found = evaluator.results()
            for index, step in enumerate(batch):
                own = found[index * agents * episodes : (index + 1) * agents * episodes]
                yield _measured(step, own, [measures[place // episodes] for place in range(len(own))], spec)


def _measured(step: int, episodes: Sequence[Episode], measures: Sequence[Measure], spec: EnvSpec) -> Acted:
    """Means of the episodes of a checkpoint, each measured by its own agent's states."""
    entropies = [
        measure(episode.observations[1:], episode.positions[1:])
        for measure, episode in zip(measures, episodes, strict=True)
    ]
    paths = [episode.positions for episode in episodes]
    padded = np.full((len(paths), spec.max_episode_steps + 1, spec.position_dim), np.nan, np.float32)
    for index, path in enumerate(paths):
        padded[index, : len(path)] = path
    cells = {int(c) for path in paths for c in coverage_cell(spec, path)} if spec.coverage_bounds else None
    return {
        "step": step,
        "episodes": len(episodes),
        "extrinsic_return": float(np.mean([episode.total for episode in episodes])),
        "episode_length": float(np.mean([len(path) - 1 for path in paths])),
        "episodic_entropy": float(np.mean(entropies)),
        "coverage": None if cells is None else len(cells),
    }, padded


def _entropy_measure(seed: int, spec: EnvSpec) -> Measure:
    """The paper's evaluation entropy of an episode's observations and positions, in the states of a seed."""
    encoder = make_state_encoder(seed, spec.observation_dim, spec.orientation_slice)

    def measure(observations: np.ndarray, positions: np.ndarray) -> float:
        missing = spec.max_episode_steps - len(observations)
        padded = [np.pad(array, ((0, missing), (0, 0))) for array in (observations, positions)]
        return float(_entropy(encoder, *padded, np.arange(spec.max_episode_steps) < len(observations)))

    return measure


@eqx.filter_jit
def _entropy(encoder: StateEncoder, observations: Array, positions: Array, mask: Array) -> Array:
    """Compiled once for the longest episode, whichever agent's encoder it is given."""
    return renyi_entropy(jax.vmap(encoder)(observations, positions), EVALUATION_ORDER, 1.0, mask)


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
                spec, env, parameters, [config.seed, step, 0], deterministic, lambda: writer.append_data(env.render())
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
