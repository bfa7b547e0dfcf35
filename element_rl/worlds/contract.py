"""What worlds on the device offer: L copies of an environment, stepped together by one program.

    worlds = point_maze.worlds()
    state, seen = worlds.reset(keys)                 keys [L]: every world begins an episode
    state, outcome = worlds.step(state, actions)     actions [L, A] in the environment's own bounds

Both are pure functions of arrays, to be traced by JAX. A state is a pytree whose leaves have the
axis L first, and everything that a world is: whoever has it can go on from there. Worlds know no
time limit and never reset themselves; `collector` does both, so that the last observation of an
episode is never lost.

A world whose physics has failed (a number that is not finite, more contacts than there is room
for) says so in `faulty`. Its observation is then not used.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Key

from element_rl.envs.spec import EnvSpec


class Seen(NamedTuple):
    """Where the worlds are."""

    observation: Float[Array, "L O"]
    position: Float[Array, "L C"]  # as `envs.spec.position_of` tells it; C may be 0


class Outcome(NamedTuple):
    """What a step came to."""

    seen: Seen
    reward: Float[Array, " L"]  # the task's
    terminated: Bool[Array, " L"]
    faulty: Bool[Array, " L"]


@runtime_checkable
class Worlds(Protocol):
    """Copies of one environment; how many is told by the arrays."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, keys: Key[Array, " L"]) -> tuple[Any, Seen]: ...

    def step(self, state: Any, action: Float[Array, "L A"]) -> tuple[Any, Outcome]: ...
