"""Worlds that count their steps: everything about them can be told by hand."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Outcome, Seen

LIMIT = 12


class Count(NamedTuple):
    start: Float[Array, " L"]  # drawn at the reset
    steps: Int[Array, " L"]


@dataclass(frozen=True)
class CountingWorlds:
    """Observes where it began and how many steps it has made; the action pays itself.

    A world terminates at `ends` steps, and its physics fails at the step to `fails`. Both are of
    episodes that began below `share` in [0, 1): of all with 1, of none with 0.
    """

    ends: int = 10**6
    fails: int = 10**6
    share: float = 1.0
    spec: EnvSpec = field(
        default=EnvSpec("Counting-v0", (2,), LIMIT, (-2.0,), (4.0,), position_dim=1)
    )

    def reset(self, keys: Key[Array, " L"]) -> tuple[Count, Seen]:
        start = jax.vmap(jax.random.uniform)(keys)
        state = Count(start, jnp.zeros(len(start), jnp.int32))
        return state, _seen(state)

    def step(self, state: Count, action: Float[Array, "L 1"]) -> tuple[Count, Outcome]:
        state = Count(state.start, state.steps + 1)
        chosen = state.start < self.share
        faulty = chosen & (state.steps == self.fails)
        seen = jax.tree.map(lambda leaf: jnp.where(faulty[:, None], jnp.nan, leaf), _seen(state))
        reward = jnp.where(faulty, jnp.nan, action[:, 0])
        return state, Outcome(seen, reward, chosen & (state.steps == self.ends), faulty)


def _seen(state: Count) -> Seen:
    steps = state.steps.astype(jnp.float32)
    return Seen(jnp.stack([state.start, steps], axis=1), steps[:, None])
