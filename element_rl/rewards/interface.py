"""What every intrinsic reward offers: four functions for one agent, which populations `vmap`.

    init(key, spec) -> state
    observe(state, episode) -> (state, notes)       an episode ended; what to write down about each of its transitions
    update(state, batch, key) -> (state, metrics)   one learning step, for methods that learn
    reward(state, batch) -> [B]                     pure; what the learner gets

These are names, not code to inherit. A reward that keeps nothing says so with an empty `note_shapes`. `reward_terms` splits
the reward into its named parts for the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.replay import Episode, Transitions


@dataclass(frozen=True)
class RewardSpec:
    """What a reward must know of the environment and the run."""

    observation_dim: int
    action_dim: int
    state_dim: int
    max_episode_steps: int
    total_steps: int  # environment steps per agent of the whole run, to size memories


@runtime_checkable
class Reward(Protocol):
    """One intrinsic reward. Its state is a pytree of arrays."""

    name: ClassVar[str]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `update` reports beside the agent's own metrics: columns of metrics.csv."""
        ...

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each note kept per transition."""
        ...

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> Any: ...

    def observe(self, state: Any, episode: Episode) -> tuple[Any, dict[str, Array]]: ...

    def update(self, state: Any, batch: Transitions, key: PRNGKeyArray) -> tuple[Any, dict[str, Array]]: ...

    def reward(self, state: Any, batch: Transitions) -> Float[Array, " B"]: ...

    def reward_terms(self, state: Any, batch: Transitions) -> dict[str, Float[Array, " B"]]: ...
