"""The environment's own reward, through the interface of the intrinsic ones: plain SAC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec


@dataclass(frozen=True)
class ExtrinsicConfig:
    """How much of the environment's reward the learner gets."""

    scale: float = 1.0  # the reference SAC of the paper uses 0.1


@dataclass(frozen=True)
class ExtrinsicReward:
    """What the environment says, times a scale."""

    name: ClassVar[str] = "extrinsic"
    keeps_scale: ClassVar[bool] = True  # the task's own unit
    config: ExtrinsicConfig = field(default_factory=ExtrinsicConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ()

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> Any:
        return ()

    def observe(self, state: Any, episode: Episode) -> tuple[Any, dict[str, Array]]:
        return state, {}

    def update(
        self, state: Any, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]:
        return state, {}

    def reward(self, state: Any, batch: Transitions) -> Float[Array, " B"]:
        return self.config.scale * batch.extrinsic_reward

    def reward_terms(self, state: Any, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return {}
