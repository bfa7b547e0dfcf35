"""The off-policy loop: Algorithm 3 for a population, resumable.

A chunk is K environment steps of every agent. While the environments step with the policies as they
were, the previous chunk is stored, its finished episodes are observed, and the device makes K
updates from all that (`Explorer.train_chunk`). So a policy acts K steps behind its learner, and
neither side waits for the other.

A checkpoint may fall anywhere. It holds the learner, the replay and the counters, but no
environment: episodes depend on their seed and their actions only, so the running ones are
re-enacted on resuming, and the resumed run equals the undisturbed one bit for bit on a CPU.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from element_rl.encoders.state import WarmUp
from element_rl.rewards import Reward
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import METRIC_COLUMNS
from element_rl.runs.visits import Stored
from element_rl.runs.watching import Watcher
from element_rl.training.loop import random_measures, run_loop
from element_rl.training.off_policy.collecting import MakeCollector, usual_collector
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explorer import FAULTS, Explorer
from element_rl.training.off_policy.programs import REWARD_COLUMNS
from element_rl.training.off_policy.resolving import Resolved, resolved
from element_rl.worlds.making import Physics

OWN_COLUMNS = {"dqn": ("target_mean", "exploration_rate")}  # of an agent's metrics


def explore(
    config: ExploreConfig | Resolved,
    run: RunFolder,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
    begin: Callable[[Explorer], None] | None = None,
    facts: Mapping[str, Any] | None = None,
    make_collector: MakeCollector = usual_collector,
) -> dict[str, Any]:
    """Train, leaving metrics, checkpoints and a summary in the run folder; the summary.

    `wait_seconds`: how long to wait for another process that is still training in the folder.
    `begin` is called with a population that starts afresh, not with one that goes on from a
    checkpoint. `facts` are added to the summary. `make_collector` says who acts.
    """
    settings = resolved(config, run if resume else None)
    with run.exclusively(wait_seconds):
        with Explorer(*settings, run, make_collector) as explorer:
            run_loop(explorer, run, watch, stop, resume, begin)
            summary, warm_up = explorer.summary(), explorer.warm_up
        summary["random_policy"], visits = random_policy(settings, watch, make_collector, warm_up)
        if visits is not None:
            run.write_random_visits(visits)
        summary |= facts or {}
        run.write_summary(summary)
    return summary


def random_policy(
    settings: ExploreConfig | Resolved,
    watch: Watcher = lambda progress: None,
    make_collector: MakeCollector = usual_collector,
    warm_up: WarmUp | None = None,
) -> tuple[dict[str, Any] | None, Stored | None]:
    """What uniformly random actions reach in as many steps: the same measures and map, for
    comparison.

    None where nobody asked for it or the run itself acts at random; no visits where coverage is not
    counted.
    """
    config, spec, _ = resolved(settings)
    if config.random_seeds == 0 or config.reward == "random":
        return None, None
    config = dataclasses.replace(
        config,
        reward="random",
        reward_options=(),
        inputs="own",
        pool=None,
        recent_scale=False,
        extrinsic_weight=0.0,
        seeds=config.random_seeds,
        devices=None,  # that number may not share them
    )
    with Explorer(config, spec, None, None, make_collector, warm_up) as explorer:
        measures, counts = random_measures(explorer, watch), explorer.measures.counts
        return measures, counts.visits if counts.mapped else None


def metric_columns(
    reward: Reward | None,
    extrinsic_weight: float = 0.0,
    physics: Physics = "host",
    agent: str | None = None,
) -> tuple[str, ...]:
    """The header of metrics.csv for a run with this reward, with so much of the environment's
    beside it, with environments that are stepped there, and with this agent."""
    own = reward.metric_names if reward is not None else ()
    both = REWARD_COLUMNS if extrinsic_weight else ()
    faults = () if physics == "host" else (FAULTS,)
    agents_own = OWN_COLUMNS.get(agent or "", ("target_mean", "temperature_loss"))
    return (*METRIC_COLUMNS, *agents_own, *both, *own, *faults)
