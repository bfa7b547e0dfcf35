"""Batches and episodes for tests of rewards."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from element_rl.replay.ring import Episode, Transitions

KEY = jax.random.key(0)

# Compiled once for every setting and shape: operation by operation the tests would take minutes.
init = jax.jit(lambda reward, key, spec: reward.init(key, spec), static_argnums=(0, 2))
observe = jax.jit(lambda reward, state, episode: reward.observe(state, episode), static_argnums=0)
update = jax.jit(
    lambda reward, state, batch, key: reward.update(state, batch, key), static_argnums=0
)
reward_of = jax.jit(lambda reward, state, batch: reward.reward(state, batch), static_argnums=0)


def transitions(size: int, notes: dict[str, Any] | None = None, **fields: Any) -> Transitions:
    """So many transitions with 3-D observations, 2-D actions and states; what is not given is 0."""
    zeros = {
        "observation": (3,),
        "action": (2,),
        "next_observation": (3,),
        "extrinsic_reward": (),
        "state": (2,),
    }
    arrays = {name: np.zeros((size, *shape)) for name, shape in zeros.items()} | fields
    terminated = jnp.asarray(np.asarray(arrays.pop("terminated", np.zeros(size)), bool))
    return Transitions(**on_device(arrays), terminated=terminated, notes=on_device(notes or {}))


def padded_episode(rows: int, length: int, **fields: Any) -> Episode:
    """An episode of the given length in so many rows; fields that are not given are 0, as in
    `transitions`."""
    record = transitions(rows, **fields)
    steps = np.arange(rows, dtype=np.int32)
    return Episode(*record[:6], mask=jnp.asarray(steps < length), step=jnp.asarray(steps))


def on_device(arrays: dict[str, Any]) -> dict[str, jax.Array]:
    """Numbers of NumPy as JAX's; unlike `jnp.zeros` and the like, this compiles no program for
    every shape."""
    return {name: jnp.asarray(np.asarray(array, np.float32)) for name, array in arrays.items()}


def batch_of_states(states: Any, next_observations: np.ndarray | None = None) -> Transitions:
    """Transitions that lead to the given states [B, 2]."""
    next_observations = (
        np.zeros((len(states), 3)) if next_observations is None else next_observations
    )
    return transitions(len(states), state=states, next_observation=next_observations)


def random_batches_of_states(number: int, size: int = 8, seed: int = 0) -> list[Transitions]:
    rng = np.random.default_rng(seed)
    return [
        batch_of_states(rng.normal(size=(size, 2)), rng.normal(size=(size, 3)))
        for _ in range(number)
    ]


def episode_of(observations: np.ndarray, rows: int = 40, garbage: float = 7.0) -> Episode:
    """The episode that visits the given observations, [T + 1, O]; padding holds garbage."""
    length = len(observations) - 1

    def padded(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.full((rows - length, *values.shape[1:]), garbage)])

    return padded_episode(
        rows,
        length,
        observation=padded(observations[:-1]),
        action=padded(np.zeros((length, 2))),
        next_observation=padded(observations[1:]),
        extrinsic_reward=padded(np.zeros(length)),
        terminated=np.arange(rows) == length - 1,
        state=padded(np.zeros((length, 4))),
    )
