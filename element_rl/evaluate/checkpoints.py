"""Acting with the policies of a run's checkpoints: what has each learned to do?

Writes `trajectories.safetensors` (positions per checkpoint) and `evaluation.json` (means per
checkpoint) into the run's evaluation folder, where `element plot` finds them, and on request a
video. How robots and screens are acted on and measured: `evaluate_robots`, `evaluate_screens`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from element_rl.acting.evaluators import Evaluator, Parameters, workers_for
from element_rl.envs.robots import EnvSpec
from element_rl.evaluate.robots import OnRobots
from element_rl.evaluate.screens import OnScreens, is_on_screen
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Progress
from element_rl.storage.files import write_arrays, write_json


def evaluate(
    run: RunFolder,
    episodes: int = 5,
    deterministic: bool = False,
    checkpoint: int | None = None,
    video: bool = False,
    out: Path | None = None,
    workers: int | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    spec: EnvSpec | None = None,
) -> list[dict[str, Any]]:
    """Means over seeds and episodes, one entry per checkpoint; the watcher is told of episodes.

    Policies act in `workers` processes (None: as many as there are cores, if there is much to do);
    what is written does not depend on their number. `spec`: the environment's description, where
    the caller has it already.
    """
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}.")
    if workers is not None and workers < 0:
        raise ValueError(f"--workers must not be negative, got {workers}.")
    steps, form = _steps(run, checkpoint), _form(run, spec)
    rows, trajectories = [], {}
    began = time.perf_counter()
    for step, acted in _acted(run, form, steps, episodes, deterministic, workers):
        row, positions = form.measured(acted)
        rows.append({"step": step, "episodes": sum(map(len, acted)), **row})
        if positions.shape[-1]:
            trajectories[f"step_{step:09d}/positions"] = positions
        done, each = sum(entry["episodes"] for entry in rows), rows[0]["episodes"]
        watch(Progress(done, each * len(steps), done / max(time.perf_counter() - began, 1e-9), {}))
    folder = out or run.evaluation_path
    folder.mkdir(parents=True, exist_ok=True)
    if trajectories:
        write_arrays(folder / "trajectories.safetensors", trajectories)
    write_json(folder / "evaluation.json", {"deterministic": deterministic, "checkpoints": rows})
    if video:
        film(run, deterministic, steps[-1], out, spec=spec)
    return rows


def film(
    run: RunFolder,
    deterministic: bool = False,
    checkpoint: int | None = None,
    out: Path | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    spec: EnvSpec | None = None,
    every: int = 1,
) -> Path:
    """The mp4 of one episode of the first agent, of the newest checkpoint unless told; the watcher
    is told of frames.

    `every`: steps of a robot between two frames; 4 shows it four times as fast, in a quarter of the
    time to render.
    """
    form, step = _form(run, spec), _steps(run, checkpoint)[-1]
    folder = out or run.evaluation_path
    folder.mkdir(parents=True, exist_ok=True)

    def tell(frames: int, per_second: float) -> None:
        watch(Progress(frames, max(form.episode_steps // every, frames), per_second, {}))

    return form.write_video(step, deterministic, folder, tell, every)


def _steps(run: RunFolder, checkpoint: int | None) -> list[int]:
    """The checkpoints asked for, in order."""
    steps = run.checkpoint_steps() if checkpoint is None else [checkpoint]
    if not steps:
        raise RunError(
            f"The run {run.path} has no checkpoint yet: let it train until its first one."
        )
    return steps


def _form(run: RunFolder, spec: EnvSpec | None) -> "Form":
    return OnScreens(run) if is_on_screen(run) else OnRobots(run, spec)


@runtime_checkable
class Form(Protocol):
    """How runs of one kind are evaluated."""

    seed: int  # of the first agent
    episode_steps: int  # of the longest episode

    def evaluator(self, workers: int) -> Evaluator:
        """Processes that act."""

    def acting(self, policy: Parameters) -> Parameters:
        """What they act by, of a checkpoint's policies."""

    def measured(
        self, acted: Sequence[Sequence[Any]]
    ) -> tuple[dict[str, Any], Float[np.ndarray, "E M C"]]:
        """Means of a checkpoint's episodes, agent by agent, and their positions, NaN after the end
        of each."""

    def write_video(
        self,
        step: int,
        deterministic: bool,
        folder: Path,
        watch: Callable[[int, float], None],
        every: int,
    ) -> Path:
        """One episode of the first agent as an mp4; the watcher is told the frames so far, and
        frames per second."""


def _acted(
    run: RunFolder,
    form: Form,
    steps: Sequence[int],
    episodes: int,
    deterministic: bool,
    workers: int | None,
) -> Iterator[tuple[int, list[list[Any]]]]:
    """Every checkpoint, and what each of its agents did in each episode; as many at a time as keep
    all processes busy."""
    agents = len(next(iter(run.load_policy(steps[0]).values())))
    each = agents * episodes
    if workers is None:
        workers = workers_for(len(steps) * each, len(steps) * each * form.episode_steps)
    together = max(workers // each, 1)
    with form.evaluator(workers) as evaluator:
        for batch in (steps[begin : begin + together] for begin in range(0, len(steps), together)):
            policies = [form.acting(run.load_policy(step)) for step in batch]
            seeds = [
                [(form.seed + agent, step, episode) for episode in range(episodes)]
                for step in batch
                for agent in range(agents)
            ]
            joined = {
                name: np.concatenate([policy[name] for policy in policies]) for name in policies[0]
            }
            evaluator.start(joined, seeds, deterministic)
            found = evaluator.results()
            by_agent = [found[first : first + episodes] for first in range(0, len(found), episodes)]
            for index, step in enumerate(batch):
                yield step, by_agent[index * agents : (index + 1) * agents]
