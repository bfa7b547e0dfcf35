"""A reward of your own: the fewer visits a place has had, the more a visit pays.

    element explore PointMaze --reward examples/own_reward.py:make \
        --reward-options cells=25 --steps 20000

A reward is any object with the parts named in `element_rl.rewards.interface`. Its functions are for
one agent: the library maps them over a population, compiles them, and stores the state in the
checkpoints. The state must be a pytree of arrays.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp


class Visits(NamedTuple):
    count: Any  # [cells, cells], how often each place was visited


@dataclass(frozen=True)
class RarePlaces:
    """1 / √(visits of the place the step led to)."""

    name: ClassVar[str] = "rare-places"
    metric_names: ClassVar[tuple[str, ...]] = ()
    cells: int = 20  # along each axis
    size: float = 10.0  # of the world

    def note_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}  # nothing is noted beside a transition; the reward is computed when it is sampled

    def init(self, key: Any, spec: Any) -> Visits:
        return Visits(jnp.zeros((self.cells, self.cells)))

    def observe(self, state: Visits, episode: Any) -> tuple[Visits, dict[str, Any]]:
        """An episode ended: count its states; rows where the mask is False are padding."""
        x, y = self._cell(episode.state)
        return Visits(state.count.at[x, y].add(episode.mask.astype(jnp.float32))), {}

    def update(self, state: Visits, batch: Any, key: Any) -> tuple[Visits, dict[str, Any]]:
        return state, {}  # nothing to learn

    def reward(self, state: Visits, batch: Any) -> Any:
        x, y = self._cell(batch.state)
        return 1.0 / jnp.sqrt(jnp.maximum(state.count[x, y], 1.0))

    def reward_terms(self, state: Visits, batch: Any) -> dict[str, Any]:
        return {"reward_lifelong": self.reward(state, batch)}

    def _cell(self, state: Any) -> tuple[Any, Any]:
        # a state is the encoder's five numbers, then the position, then the orientation
        position = state[:, 5:7]
        cell = jnp.clip(position / self.size * self.cells, 0, self.cells - 1).astype(jnp.int32)
        return cell[:, 0], cell[:, 1]


def make(cells: int = 20) -> RarePlaces:
    return RarePlaces(cells=cells)
