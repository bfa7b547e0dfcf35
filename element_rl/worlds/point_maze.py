"""The point maze as worlds on the device: the same `step` as in `envs.point_maze`, compiled.

Its Gymnasium twin computes in float64, this in float32.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from element_rl.envs import point_maze
from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Outcome, Seen


@dataclass(frozen=True)
class PointMazeWorlds:
    """L points in the maze; a world is the position of its point."""

    spec: EnvSpec

    def reset(self, keys: Key[Array, " L"]) -> tuple[Float[Array, "L 2"], Seen]:
        def start(key: PRNGKeyArray) -> Float[Array, "2"]:
            spread = point_maze.START_SPREAD
            offset = jax.random.uniform(key, (2,), minval=-spread, maxval=spread)
            return jnp.asarray(point_maze.START) + offset

        position = jax.vmap(start)(keys)
        return position, _seen(position)

    def step(
        self, state: Float[Array, "L 2"], action: Float[Array, "L 2"]
    ) -> tuple[Float[Array, "L 2"], Outcome]:
        position = point_maze.step(state, action, jnp)
        never = jnp.zeros(len(position), bool)
        reward = point_maze.task_reward(position, jnp)
        return position, Outcome(_seen(position), reward, never, never)


def _seen(position: Float[Array, "L 2"]) -> Seen:
    return Seen(2.0 * position / point_maze.SIZE - 1.0, position)
