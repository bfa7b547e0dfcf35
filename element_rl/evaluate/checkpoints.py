"""Acting with the policies of a run's checkpoints: what has each learned to do?

Writes `trajectories.safetensors` (positions per checkpoint) and `evaluation.json` (means per
checkpoint) into the run's evaluation folder, where `element plot` finds them, and on request a
video.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from element_rl.acting.episode import Episode, padded_paths, record_episode
from element_rl.acting.evaluator import Evaluator, environment_maker, workers_for
from element_rl.acting.policies import Parameters
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.evaluate.entropies import MeasureEntropy, entropy_measure
from element_rl.evaluate.side_by_side import film_side_by_side
from element_rl.evaluate.video import film_frames, film_robot
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.runs.watching import Progress
from element_rl.storage.capacity import refuse_beyond_memory
from element_rl.storage.files import write_arrays, write_json
from element_rl.training.off_policy.config import read_env_options
from element_rl.training.off_policy.resolving import described

RANDOM = "random policy"  # the title of one in a film


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
    steps, policies = _steps(run, checkpoint), stored_policies(run, spec)
    _refuse_endless(policies, episodes)
    measure = entropy_measure(run, policies.spec, policies.seed)
    rows, trajectories = [], {}
    began = time.perf_counter()
    for step, acted in _acted(policies, steps, episodes, deterministic, workers):
        row, positions = _measured(policies.spec, acted, measure)
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
    beside_random: bool = False,
) -> Path:
    """The mp4 of one episode of the first agent, of the newest checkpoint unless told; the watcher
    is told of frames.

    `every`: steps between two frames; 4 shows it four times as fast, in a quarter of the time to
    render. `beside_random`: with an episode of a random policy beside it.
    """
    policies, step = stored_policies(run, spec), _steps(run, checkpoint)[-1]
    spec, folder = policies.spec, out or run.evaluation_path
    path = folder / f"step_{step:09d}{'_beside_random' if beside_random else ''}.mp4"
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = {name: array[0] for name, array in policies.at(step).items()}
    seed, options = (policies.seed, step, 0), policies.env_options

    def tell(frames: int, per_second: float) -> None:
        watch(Progress(frames, max(spec.max_episode_steps // every, frames), per_second, {}))

    if beside_random and spec.sees_frames:
        raise RunError(
            f"No film of {spec.name} beside a random policy: its films show the frames that the "
            "policy saw; leave --beside-random out."
        )
    if beside_random:
        sides: dict[str, Parameters] = {f"{_title(run)}, step {step:,}": parameters, RANDOM: {}}
        return film_side_by_side(path, spec, options, sides, seed, deterministic, tell, every)
    if spec.sees_frames:
        env = policies.make(spec.name, **options)
        return film_frames(path, env, parameters, seed, deterministic, tell, every)
    return film_robot(path, spec.name, options, parameters, seed, deterministic, tell, every, spec)


def _title(run: RunFolder) -> str:
    """What the policies of a run were paid with."""
    reward = str(run.config["settings"].get("reward", run.config.get("kind", "policy")))
    return "ELEMENT" if reward == "element" else reward


@dataclass(frozen=True)
class StoredPolicies:
    """The policies of a run's checkpoints, and where they act."""

    run: RunFolder
    spec: EnvSpec
    env_options: Mapping[str, Any]
    make: Callable[..., gymnasium.Env]
    seed: int  # of the first agent

    def at(self, step: int) -> Parameters:
        """Parameters [P, ...] of a checkpoint; none where actions are random."""
        # An on-policy run without a reward acted at random; its networks never did.
        on_policy = kind_of(self.run.config) == "on-policy"
        at_random = on_policy and self.run.config["reward"] == "random"
        return {} if at_random else self.run.load_policy(step)


def stored_policies(run: RunFolder, spec: EnvSpec | None = None) -> StoredPolicies:
    """The policies of a run in the environment that its settings name; older runs say nothing of
    positions."""
    settings = run.config["settings"]
    env = run.config["env"]
    options = read_env_options(settings["env_options"])
    if spec is None:
        on_map = settings.get("position", ()), settings.get("bounds", ())
        spec = (
            described(settings, options)
            if kind_of(run.config) == "explore"
            else describe(env, *on_map, **options)
        )
    make: Callable[..., gymnasium.Env] = make_env
    if kind_of(run.config) == "offline":  # their observations are those of a dataset
        make = environment_maker(spec.sees_frames, settings.get("frame_stack", 1))
    return StoredPolicies(run, spec, options, make, settings["seed"])


def _steps(run: RunFolder, checkpoint: int | None) -> list[int]:
    """The checkpoints asked for, in order."""
    steps = run.checkpoint_steps() if checkpoint is None else [checkpoint]
    if not steps:
        raise RunError(
            f"The run {run.path} has no checkpoint yet: let it train until its first one."
        )
    return steps


def _refuse_endless(policies: StoredPolicies, episodes: int) -> None:
    """Episodes of a checkpoint are kept until all of them are measured."""
    spec = policies.spec
    number = 1 if spec.sees_frames else 4  # bytes
    row = number * int(np.prod(spec.observation_shape)) + 4 * spec.position_dim
    refuse_beyond_memory(
        f"{counted_steps(episodes, spec.max_episode_steps)} of each agent and checkpoint",
        episodes * spec.max_episode_steps * row,
    )


def counted_steps(episodes: int, steps: int) -> str:
    """What --episodes and the environment's max_episode_steps ask for."""
    return f"{episodes:,} episodes of up to {steps:,} steps (max_episode_steps)"


def _acted(
    policies: StoredPolicies,
    steps: Sequence[int],
    episodes: int,
    deterministic: bool,
    workers: int | None,
) -> Iterator[tuple[int, list[list[Episode]]]]:
    """Every checkpoint, and what each of its agents did in each episode; as many at a time as keep
    all processes busy."""
    spec = policies.spec
    agents = len(next(iter(policies.run.load_policy(steps[0]).values())))
    each = agents * episodes
    if workers is None:
        workers = workers_for(len(steps) * each, len(steps) * each * spec.max_episode_steps)
    together = max(workers // each, 1)
    record = partial(record_episode, spec)
    with Evaluator(spec.name, policies.env_options, workers, policies.make, record) as evaluator:
        for batch in (steps[begin : begin + together] for begin in range(0, len(steps), together)):
            parameters = [policies.at(step) for step in batch]
            seeds = [
                [(policies.seed + agent, step, episode) for episode in range(episodes)]
                for step in batch
                for agent in range(agents)
            ]
            joined = {
                name: np.concatenate([policy[name] for policy in parameters])
                for name in parameters[0]
            }
            evaluator.start(joined, seeds, deterministic)
            found = evaluator.results()
            by_agent = [found[first : first + episodes] for first in range(0, len(found), episodes)]
            for index, step in enumerate(batch):
                yield step, by_agent[index * agents : (index + 1) * agents]


def _measured(
    spec: EnvSpec, acted: Sequence[Sequence[Episode]], entropy: MeasureEntropy
) -> tuple[dict[str, Any], Float[np.ndarray, "E M C"]]:
    """Means of a checkpoint's episodes, agent by agent, and their positions, NaN after the end of
    each."""
    episodes = [episode for by_agent in acted for episode in by_agent]
    entropies = [
        entropy(agent, episode) for agent, by_agent in enumerate(acted) for episode in by_agent
    ]
    paths = [episode.positions for episode in episodes]
    coverage = None
    if spec.coverage_of is not None:
        cells = [
            coverage_cell(spec, episode.positions, episode.observations) for episode in episodes
        ]
        coverage = len(np.unique(np.concatenate(cells)))
    row = {
        "extrinsic_return": float(np.mean([episode.total for episode in episodes])),
        "episode_length": float(np.mean([len(path) - 1 for path in paths])),
        "episodic_entropy": float(np.mean(entropies)),
        "coverage": coverage,
    }
    drawn = [path[:, :2] if spec.has_map else path[:, :0] for path in paths]
    return row, padded_paths(drawn, spec.max_episode_steps)
