"""Another reward, divided by its own recent standard deviation.

SAC weighs its reward against the entropy of its policy, so the size of a bonus matters. Most of the
published bonuses come from agents that normalise advantages (PPO, A3C), for which it does not; and
a bonus that a network learns away shrinks by orders of magnitude within a run. `RecentlyScaled`
keeps exponential averages of the reward's mean and mean square over the sampled batches and gives r
/ σ, with no mean subtracted: ratios between states stay as they are.

    m ← m + ρ (E[r] − m)        q ← q + ρ (E[r²] − q)        σ² = q − m²

both corrected for their start at 0 (as Adam's). A reward that remembers goes on remembering
(`RememberingScaled`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.memory import Memory
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import (
    Latent,
    Remembers,
    Reward,
    RewardSpec,
    latent_of,
    remembering,
)

SMALLEST_DEVIATION = 1e-12


class RecentScale(NamedTuple):
    """Recent moments of some values, from which their standard deviation follows."""

    mean: Float[Array, ""]
    mean_square: Float[Array, ""]
    weight: Float[Array, ""]  # how much of the averages is data, not their start at 0


def followed(scale: Any, mean: Any, mean_square: Any, rate: float) -> RecentScale:
    """The moments that have also seen a batch with this mean and mean square; on the device, or on
    the host."""
    return RecentScale(
        scale.mean + rate * (mean - scale.mean),
        scale.mean_square + rate * (mean_square - scale.mean_square),
        scale.weight + rate * (1.0 - scale.weight),
    )


class ScaledState(NamedTuple):
    """The state of the reward inside, and its recent moments."""

    inner: Any
    mean: Float[Array, ""]
    mean_square: Float[Array, ""]
    weight: Float[Array, ""]  # how much of the averages is data, not their start at 0


@dataclass(frozen=True)
class RecentlyScaled:
    """A reward over its recent standard deviation."""

    name: ClassVar[str] = "recently-scaled"
    inner: Reward
    rate: float = 1e-3  # ρ: the averages remember about 1/ρ updates

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(
                f"rate of the recent scale must be above 0 and at most 1, got {self.rate}."
            )

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*self.inner.metric_names, "reward_deviation")

    @property
    def latent(self) -> Latent | None:
        return latent_of(self.inner)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.inner.note_shapes()

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> ScaledState:
        zero = jnp.zeros(())
        return ScaledState(self.inner.init(key, spec), zero, zero, zero)

    def observe(self, state: ScaledState, episode: Episode) -> tuple[ScaledState, dict[str, Array]]:
        inner, notes = self.inner.observe(state.inner, episode)
        return state._replace(inner=inner), notes

    def update(
        self, state: ScaledState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[ScaledState, dict[str, Array]]:
        inner, metrics = self.inner.update(state.inner, batch, key)
        values = self.inner.reward(inner, batch)
        moments = followed(state, jnp.mean(values), jnp.mean(values**2), self.rate)
        state = ScaledState(inner, *moments)
        return state, {**metrics, "reward_deviation": deviation(state)}

    def reward(self, state: ScaledState, batch: Transitions) -> Float[Array, " B"]:
        return self.inner.reward(state.inner, batch) / deviation(state)

    def reward_terms(self, state: ScaledState, batch: Transitions) -> dict[str, Float[Array, " B"]]:
        return self.inner.reward_terms(state.inner, batch)


@dataclass(frozen=True)
class RememberingScaled(RecentlyScaled):
    """The same of a reward that remembers: the reward inside answers what that is asked for."""

    @property
    def num_neighbours(self) -> int:
        return self._remembers.num_neighbours

    @property
    def memory_on_host(self) -> bool:
        return self._remembers.memory_on_host

    def memory_size(self, state: ScaledState) -> Any:
        return self._remembers.memory_size(state.inner)

    def why_empty(self, steps: int) -> str:
        return self._remembers.why_empty(steps)

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        return self._remembers.enters(step)

    def empty_memory(self, kind: str, dim: int) -> Memory:
        return self._remembers.empty_memory(kind, dim)

    def with_room(self, state: ScaledState, number: int) -> ScaledState:
        return state._replace(inner=self._remembers.with_room(state.inner, number))

    def observe(
        self,
        state: ScaledState,
        episode: Episode,
        neighbour_distances: Float[Array, "T K"] | None = None,
    ) -> tuple[ScaledState, dict[str, Array]]:
        inner, notes = self._remembers.observe(state.inner, episode, neighbour_distances)
        return state._replace(inner=inner), notes

    def notes_change(self, before: ScaledState, after: ScaledState) -> Any:
        return self._remembers.notes_change(before.inner, after.inner)

    def refresh(
        self,
        before: ScaledState,
        after: ScaledState,
        episode: Episode,
        slots: Int[Array, " T"],
        notes: Mapping[str, Array],
        states: Float[Array, "N D"],
        num_rows: Int[Array, ""],
    ) -> dict[str, Array]:
        changed = (before.inner, after.inner)
        return self._remembers.refresh(*changed, episode, slots, notes, states, num_rows)

    @property
    def _remembers(self) -> Remembers:
        inner: Any = self.inner
        return inner


def recently_scaled(reward: Reward) -> RecentlyScaled:
    """The reward over its recent standard deviation, which still remembers if it did."""
    return RecentlyScaled(reward) if remembering(reward) is None else RememberingScaled(reward)


def deviation(state: ScaledState | RecentScale) -> Float[Array, ""]:
    """σ; 1 before the first update and where the reward has been constant."""
    weight = jnp.where(state.weight > 0, state.weight, 1.0)
    variance = state.mean_square / weight - (state.mean / weight) ** 2
    # A constant reward leaves rounding of its square; anything below that is no variance.
    varies = variance > 1e-6 * state.mean_square / weight + SMALLEST_DEVIATION**2
    return jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1.0)), 1.0)
