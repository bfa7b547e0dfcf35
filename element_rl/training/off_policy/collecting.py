"""Who acts for the agents of a population: what the loop asks of a collector, and the usual one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Integer

from element_rl.acting.collector import Chunk, Collector
from element_rl.acting.host_policy import policy_action
from element_rl.envs.robots import EnvSpec
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.settings import agent_seeds

Shapes = Mapping[str, tuple[int, ...]]


@runtime_checkable
class ChunkCollector(Protocol):
    """What steps the environments of P agents, E of each, a chunk at a time; see `Collector`."""

    @property
    def spec(self) -> EnvSpec: ...

    def start(
        self, chunk_index: int, parameters: Mapping[str, np.ndarray] | Literal["as set"] | None
    ) -> None:
        """Begin a chunk with these policies, with those set last, or (None) at random; return at
        once."""
        ...

    def set_parameters(self, parameters: Mapping[str, np.ndarray]) -> None:
        """The policies of the next chunk; allowed while one is under way."""
        ...

    def wait(self) -> Chunk:
        """The chunk under way, once it is complete."""
        ...

    def resume(
        self,
        episode_indices: Sequence[int] | Integer[np.ndarray, " L"],
        actions: Sequence[Float[np.ndarray, "_ A"]],
    ) -> Float32[np.ndarray, "L O"]:
        """Re-enact the episode that runs in each environment; the observations there."""
        ...

    def close(self) -> None: ...


# of a run, for policies with parameters of these shapes; None: for random actions
MakeCollector = Callable[[ExploreConfig, EnvSpec, Shapes | None], ChunkCollector]


def process_collector(config: ExploreConfig, spec: EnvSpec, shapes: Shapes | None) -> Collector:
    """Environments in worker processes (or, with `workers` 0, in this one)."""
    return Collector(
        spec,
        agent_seeds(config),
        config.chunk_steps,
        None if shapes is None else policy_action,
        shapes or {},
        env_options=parsed_options(config),
        num_workers=config.workers,
        num_envs=config.envs_per_agent,
    )
