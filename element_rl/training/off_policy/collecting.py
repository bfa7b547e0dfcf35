"""Who acts for the agents of a run: functions that make a collector."""

from collections.abc import Callable, Mapping

from element_rl.acting.collector import Collector, ProcessCollector
from element_rl.acting.host_policy import policy_action
from element_rl.envs.spec import EnvSpec
from element_rl.population import Devices
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.settings import agent_seeds
from element_rl.worlds.collector import DeviceCollector
from element_rl.worlds.making import make_worlds
from element_rl.worlds.shared_out import SharedOutCollector

Shapes = Mapping[str, tuple[int, ...]]
# of a run, for policies with parameters of these shapes; None: for random actions
MakeCollector = Callable[[ExploreConfig, EnvSpec, Shapes | None], Collector]


def usual_collector(config: ExploreConfig, spec: EnvSpec, shapes: Shapes | None) -> Collector:
    """Where the settings say that environments are stepped: on the host or on the device."""
    made = process_collector if config.physics == "host" else device_collector
    return made(config, spec, shapes)


def device_collector(
    config: ExploreConfig, spec: EnvSpec, shapes: Shapes | None
) -> DeviceCollector | SharedOutCollector:
    """Worlds on the device, or on those that share the agents."""
    del shapes  # of any policy
    worlds = make_worlds(config.physics, spec, parsed_options(config))
    devices = Devices.of(config.seeds, config.devices)
    sizes = agent_seeds(config), config.chunk_steps, config.num_envs
    if devices.several:
        return SharedOutCollector(worlds, *sizes, devices)
    return DeviceCollector(worlds, *sizes)


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
        num_envs=config.num_envs,
        seconds=config.env_timeout,
    )
