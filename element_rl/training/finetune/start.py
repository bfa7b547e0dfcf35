"""What fine-tuning starts from: which checkpoint of a run, how well it does the task, and the
agents made of it.

    chosen_start    acts with the checkpoints in the task's environment and takes, for every agent, its own best
    transplanted    fresh agents of SAC with the policies of these checkpoints

Actions are drawn from the policy unless told otherwise: so act the agents that train on from it,
and the returns of the choice, of the zero-shot policy and of the learning curve are then of one
kind. The zero-shot return comes from episodes of its own, because the best of ten noisy means is,
in the mean, too good. All checkpoints start from the same states.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float

from element_rl.acting.evaluator import Evaluator, default_workers
from element_rl.agents.contract import Agent
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Interrupted, Progress
from element_rl.storage.trees import arrays_to_tree
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.on_policy.config import OnPolicyConfig, env_options

CHOICE, ZERO_SHOT = 0, 1  # in the seeds of episodes: what they are for
POLL_SECONDS = 0.1
AGENTS = "learner/agents"  # where a checkpoint's resume arrays have them


def chosen_start(
    config: FinetuneConfig,
    source: RunFolder,
    task: ExploreConfig | OnPolicyConfig,
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """The contents of transfer.json: the step that each agent's policy is taken from, and all
    returns."""
    steps = _candidate_steps(config, source)
    seeds = [task.seed + index for index in range(task.seeds)]
    policies = [source.load_policy(step) for step in steps]
    choosing = config.checkpoint == "best"
    episodes = len(seeds) * config.episodes
    watch_episodes = _episode_watcher((choosing * len(steps) + 1) * episodes, watch, stop)
    with _evaluator(task, episodes) as evaluator:

        def returns(policy: dict[str, np.ndarray], purpose: int) -> Float[np.ndarray, "P E"]:
            return _returns(evaluator, policy, seeds, config, purpose, watch_episodes)

        tried = [returns(policy, CHOICE) for policy in policies] if choosing else []
        means = np.array(
            [np.mean(of_seeds, axis=1) for of_seeds in tried] or np.zeros((1, len(seeds)))
        )
        best = np.argmax(means, axis=0)  # the earliest of equals
        chosen = [steps[index] for index in best]
        if isinstance(task, ExploreConfig):
            _refuse_what_was_not_kept(config, source, chosen)
        zero_shot = returns(gathered(policies, best), ZERO_SHOT)
    return {
        "transferred_from": {
            "run": str(config.run),
            "reward": source.config.get("reward"),
            "steps": source.latest_checkpoint(),
        },
        "env": task.env,
        "env_options": task.env_options,
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


def transplanted(
    agent: Agent,
    agents: Any,
    source: RunFolder,
    transfer: dict[str, Any],
    critics: Literal["fresh", "kept"] = "fresh",
    temperature: Literal["fresh", "kept"] = "fresh",
) -> Any:
    """Fresh agents [P, ...] with the policies of their checkpoints and, where kept, the critics and
    the temperature.

    The optimiser of the actor is always fresh: its moments are those of another objective.
    """
    assert agent.with_policy is not None  # every agent that explores has one
    steps = transfer["transferred_step"]
    agents = agent.with_policy(agents, chosen_policies(source, transfer))
    fields: list[str] = []
    for part in (
        name
        for name, kept in (("critics", critics), ("temperature", temperature))
        if kept == "kept"
    ):
        if part not in agent.parts:
            raise ValueError(
                f"--{part} kept means nothing here: the agent of {source.path} has no {part}."
            )
        fields += agent.parts[part]
    if not fields:
        return agents
    stored = {
        name: array[: len(steps)]
        for name, array in source.load_resume()[0].items()
        if name.startswith(AGENTS)
    }
    kept = {
        name: arrays_to_tree(
            getattr(agents, name),
            {n: a for n, a in stored.items() if _is_in(n, f"{AGENTS}/{name}")},
            f"{AGENTS}/{name}",
        )
        for name in fields
    }
    return _with(agents, **kept)


def chosen_policies(source: RunFolder, transfer: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters [P, ...] of every agent, each of its own checkpoint."""
    steps = transfer["transferred_step"]
    distinct = sorted(set(steps))
    return gathered(
        [source.load_policy(step) for step in distinct], [distinct.index(step) for step in steps]
    )


def _with(agents: Any, **fields: Any) -> Any:
    """The agents with other fields; `dataclasses.replace` would take the population for one agent."""
    return eqx.tree_at(
        lambda tree: [getattr(tree, name) for name in fields], agents, list(fields.values())
    )


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


def _refuse_what_was_not_kept(
    config: FinetuneConfig, source: RunFolder, chosen: Sequence[int]
) -> None:
    latest = source.latest_checkpoint()
    for name, kept in (
        ("critics", config.critics == "kept"),
        ("temperature", config.temperature == "kept"),
    ):
        if kept and (others := sorted({step for step in chosen if step != latest})):
            raise RunError(
                f"--{name} kept needs the newest checkpoint of {source.path}, step {latest}, which "
                "alone has them, but step "
                f"{others[0]} is transferred: add --checkpoint last, or take --{name} fresh."
            )


def _evaluator(task: ExploreConfig | OnPolicyConfig, episodes: int) -> Evaluator:
    # its workers are per agent, more than cores: they wait for one another in turns
    if isinstance(task, OnPolicyConfig):
        workers = default_workers(episodes) if task.workers else 0
        return Evaluator(task.env, env_options(task), workers)
    workers = default_workers(episodes) if task.workers is None else min(task.workers, episodes)
    return Evaluator(task.env, parsed_options(task), workers)


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


def gathered(policies: Sequence[dict[str, np.ndarray]], which: Any) -> dict[str, np.ndarray]:
    """One population of which agent p is that of policies[which[p]]."""
    return {
        name: np.stack([policies[index][name][agent] for agent, index in enumerate(which)])
        for name in policies[0]
    }


def _episode_watcher(
    total: int, watch: Callable[[Progress], None], stop: Callable[[], bool]
) -> Callable[[int], None]:
    done, began = [0], time.perf_counter()

    def watch_episodes(more: int) -> None:
        done[0] += more
        watch(Progress(done[0], total, done[0] / max(time.perf_counter() - began, 1e-9), {}))
        if stop():
            raise Interrupted(0)

    return watch_episodes


def _is_in(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}/")
