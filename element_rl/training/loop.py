"""How every run that explores begins, goes on and ends, whatever its loop does in between."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from element_rl.envs.spec import EnvSpec
from element_rl.rewards.entropy_range import SHORTEST, entropy_range, seen_episodes
from element_rl.rewards.interface import SeesEntropy, entropy_kernel
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE, final_averages
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.runs.watching import TRANSFER, Progress, Watcher, random_policy_watcher
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays


@runtime_checkable
class Loop(Protocol):
    """Agents in training: `Explorer` and `OnPolicy`."""

    seeds: list[int]
    spec: EnvSpec

    @property
    def reward(self) -> Any:
        """What the agents learn from, on transitions or on rollouts; None: nothing."""
        ...

    @property
    def step(self) -> int:
        """Environment steps done, per agent."""
        ...

    def train(self, watch: Watcher, stop: Callable[[], bool]) -> None: ...

    def latest_episodes(self, shortest: int) -> list[Float[np.ndarray, "_ D"]] | None:
        """States of the latest episode of every agent; None while one has less than `shortest`."""
        ...

    def restore(self) -> None:
        """Go back to the newest checkpoint of the run's folder."""
        ...

    def final_metrics(self, share: float = FINAL_SHARE) -> dict[str, list[Any]]: ...


Training = TypeVar("Training", bound=Loop)


def run_loop(
    loop: Training,
    run: RunFolder,
    watch: Watcher,
    stop: Callable[[], bool],
    resume: bool,
    begin: Callable[[Training], None] | None,
    settings_begin: Callable[[Training], None] | None = None,
) -> None:
    """Train to the end, from the newest checkpoint where the run is resumed and has one.

    `begin` is called with agents that start afresh, not with those that go on; without it
    `settings_begin`, what the run's own settings say of how they start.
    """
    if resume and run.latest_checkpoint() is not None:
        loop.restore()
    else:
        if resume:
            run.truncate_metrics(-1)  # killed before its first checkpoint: from the beginning
        if begin is not None:
            begin(loop)
        elif (run.path / TRANSFER).exists():
            raise RunError(
                f"The run {run.path} was stopped before its policies were transferred to it: "
                "continue it with element finetune."
            )
        elif settings_begin is not None:
            settings_begin(loop)
    loop.train(_with_entropy_note(loop, watch), stop)


def _with_entropy_note(loop: Loop, watch: Watcher) -> Watcher:
    """Also tells the watcher, once every agent has an episode, where the entropy that the reward
    sees cannot tell episodes apart."""
    note = None if isinstance(loop.reward, SeesEntropy) else ""

    def tell(progress: Progress) -> None:
        nonlocal note
        if note is None and (episodes := loop.latest_episodes(SHORTEST)):
            note = loop.reward.entropy_note(episodes)
        watch(progress._replace(note=note or ""))

    return tell


def random_measures(loop: Loop, watch: Watcher) -> dict[str, Any]:
    """What agents that act at random reach: the same measures, for comparison."""
    loop.train(random_policy_watcher(watch), lambda: False)
    return {"steps": loop.step, "seeds": loop.seeds, **loop.final_metrics(share=1.0)}


def summary_of(
    loop: Loop, env: str, reward: str, seconds: float, rate: float, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What a run came to, per seed; `facts` are those of its kind alone."""
    metrics = loop.final_metrics()
    counted = loop.spec.coverage_of  # cells of a map, unless it is said
    return {
        "env": env,
        "reward": reward,
        "steps": loop.step,
        "seeds": loop.seeds,
        "wall_seconds": seconds,
        "env_steps_per_second": rate,
        **metrics,
        **_reward_entropy(loop, metrics["entropy_saturation"]),
        **({} if counted in (None, "positions") else {"coverage_of": counted}),
        **facts,
        "versions": versions(),
        "commit": commit(),
        "hardware": hardware(),
    }


def _reward_entropy(loop: Loop, logged: list[float | None]) -> dict[str, str]:
    """Where the logged entropy, of bandwidth 1, cannot tell episodes apart: whether the one that
    the reward is paid for can."""
    shares = [share for share in logged if share is not None]
    if not shares or entropy_range(float(np.mean(shares))) == "informative":
        return {}
    seen = seen_episodes(loop.latest_episodes(SHORTEST) or [], entropy_kernel(loop.reward))
    return {} if seen is None else {"reward_entropy": seen.verdict}


def final_metrics_of(
    totals: Mapping[str, list[Any]], logged: Mapping[str, np.ndarray], loop: Loop, share: float
) -> dict[str, list[Any]]:
    """Totals as they are at the end; entropy, return and length of episodes averaged over the last
    `share` of the run."""
    return {**totals, **final_averages(logged, loop.step, loop.seeds, share)}


def part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, under the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def tree_of(template: Any, arrays: Mapping[str, np.ndarray], prefix: str) -> Any:
    """The tree in a checkpoint. What has grown, such as a memory, or was stored only as far as it
    was filled, is padded to the size of the template."""
    wanted = {name: array.shape for name, array in tree_to_arrays(template, prefix).items()}
    padded = {}
    for name, array in arrays.items():
        if name.startswith(f"{prefix}/"):
            shape = wanted.get(name, array.shape)
            missing = [
                (0, max(want - have, 0)) for want, have in zip(shape, array.shape, strict=False)
            ]
            padded[name] = np.pad(array, missing) if any(more for _, more in missing) else array
    return arrays_to_tree(template, padded, prefix) if wanted else template
