"""Who acts for the agents of a run: a function that makes a collector, and the usual one."""

from collections.abc import Callable, Mapping

from element_rl.acting.collector import Collector, ProcessCollector
from element_rl.acting.host_policy import policy_action
from element_rl.envs.spec import EnvSpec
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.settings import agent_seeds

Shapes = Mapping[str, tuple[int, ...]]
# of a run, for policies with parameters of these shapes; None: for random actions
MakeCollector = Callable[[ExploreConfig, EnvSpec, Shapes | None], Collector]


def process_collector(
    config: ExploreConfig, spec: EnvSpec, shapes: Shapes | None
) -> ProcessCollector:
    """Environments in worker processes (or, with `workers` 0, in this one)."""
    return ProcessCollector(
        spec,
        agent_seeds(config),
        config.chunk_steps,
        None if shapes is None else policy_action,
        shapes or {},
        env_options=parsed_options(config),
        num_workers=config.workers,
        num_envs=config.envs_per_agent,
    )
