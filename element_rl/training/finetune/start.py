"""What fine-tuning starts from: which checkpoint of a run each agent begins with, and how well it
does the task.

Actions are drawn from the policy unless told otherwise: so act the agents that train on from it,
and the returns of the choice, of the zero-shot policy and of the learning curve are then of one
kind. The zero-shot return comes from episodes of its own, because the best of ten noisy means is,
in the mean, too good. All checkpoints start from the same states.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.evaluator import Evaluator
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Interrupted, Progress, Watcher
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.finetune.experience import refuse_other_experience
from element_rl.training.finetune.tasks import Task
from element_rl.training.finetune.transplants import gathered

CHOICE, ZERO_SHOT = 0, 1  # in the seeds of episodes: what they are for
POLL_SECONDS = 0.1


def chosen_start(
    task: Task,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """The contents of transfer.json: the step that each agent's policy is taken from, and all
    returns."""
    config, source, settings = task.config, task.source, task.settings
    if config.replay == "kept":
        refuse_other_experience(source, settings)
    steps = _candidate_steps(config, source)
    seeds = [settings.seed + index for index in range(settings.seeds)]
    policies = [source.load_policy(step) for step in steps]
    choosing = config.checkpoint == "best"
    episodes = len(seeds) * config.episodes
    watch_episodes = _episode_watcher((choosing * len(steps) + 1) * episodes, watch, stop)
    with task.evaluator(episodes) as evaluator:

        def returns(policy: dict[str, np.ndarray], purpose: int) -> Float[np.ndarray, "P E"]:
            return _returns(evaluator, policy, seeds, config, purpose, watch_episodes)

        tried = [returns(policy, CHOICE) for policy in policies] if choosing else []
        means = np.array(
            [np.mean(of_seeds, axis=1) for of_seeds in tried] or np.zeros((1, len(seeds)))
        )
        best = np.argmax(means, axis=0)  # the earliest of equals
        chosen = [steps[index] for index in best]
        _refuse_what_was_not_kept(task, chosen)
        zero_shot = returns(gathered(policies, best), ZERO_SHOT)
    return {
        "transferred_from": {
            "run": str(config.run),
            "reward": source.config.get("reward"),
            "steps": source.latest_checkpoint(),
        },
        "env": settings.env,
        "env_options": settings.env_options,
        "seeds": seeds,
        "checkpoint": config.checkpoint,
        "transferred_step": chosen,
        "zero_shot_return": np.mean(zero_shot, axis=1),
        "zero_shot_returns": zero_shot,
        "candidates": [
            {"step": step, "return": np.mean(of_seeds, axis=1), "returns": of_seeds}
            for step, of_seeds in zip(steps, tried, strict=False)
        ],
    }


def _candidate_steps(config: FinetuneConfig, source: RunFolder) -> list[int]:
    """Steps of the checkpoints to choose from: those that were planned, and the last; evenly spaced
    if there are too many."""
    steps = source.checkpoint_steps()
    if config.checkpoint != "best":
        return [steps[-1] if config.checkpoint == "last" else int(config.checkpoint)]
    planned = source.planned_checkpoints()
    places = (
        np.linspace(len(planned) - 1, 0, min(config.candidates, len(planned))).round().astype(int)
    )
    return [planned[place] for place in sorted(places)]


def _refuse_what_was_not_kept(task: Task, chosen: Sequence[int]) -> None:
    latest = task.source.latest_checkpoint()
    others = sorted({step for step in chosen if step != latest})
    for name in task.in_newest_only:
        if getattr(task.config, name) == "kept" and others:
            raise RunError(
                f"--{name} kept needs the newest checkpoint of {task.source.path}, step {latest}, "
                f"which alone has them, but step {others[0]} is transferred: add --checkpoint "
                f"last, or take --{name} fresh."
            )


def _returns(
    evaluator: Evaluator,
    policy: dict[str, np.ndarray],
    seeds: Sequence[int],
    config: FinetuneConfig,
    purpose: int,
    watch_episodes: Callable[[int], None],
) -> Float[np.ndarray, "P E"]:
    """Task returns of episodes of each agent."""
    episodes = [[(seed, purpose, episode) for episode in range(config.episodes)] for seed in seeds]
    evaluator.start(
        {name: array[: len(seeds)] for name, array in policy.items()},
        episodes,
        config.deterministic,
    )
    while evaluator.working():
        watch_episodes(0)
        time.sleep(POLL_SECONDS)
    returns = evaluator.wait()[0]
    watch_episodes(returns.size)
    return returns


def _episode_watcher(total: int, watch: Watcher, stop: Callable[[], bool]) -> Callable[[int], None]:
    done, began = [0], time.perf_counter()

    def watch_episodes(more: int) -> None:
        done[0] += more
        watch(Progress(done[0], total, done[0] / max(time.perf_counter() - began, 1e-9), {}))
        if stop():
            raise Interrupted(0)

    return watch_episodes
