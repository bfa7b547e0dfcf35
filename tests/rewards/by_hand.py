"""Batches and episodes for tests of rewards, and two properties that all rewards which learn from batches have."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from element_rl.replay import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.trees import arrays_to_tree, tree_to_arrays

KEY = jax.random.key(0)


def batch_of_states(states: Any, next_observations: np.ndarray | None = None) -> Transitions:
    """Transitions that lead to the given states [B, 2]; observations are 3-D, actions 2-D and 0."""
    states = np.asarray(states, np.float32)
    size = len(states)
    next_observations = np.zeros((size, 3)) if next_observations is None else next_observations
    return Transitions(
        observation=jnp.zeros((size, 3)),
        action=jnp.zeros((size, 2)),
        next_observation=jnp.asarray(next_observations, jnp.float32),
        extrinsic_reward=jnp.zeros(size),
        terminated=jnp.zeros(size, bool),
        state=jnp.asarray(states),
        notes={},
    )


def random_batches_of_states(number: int, size: int = 8, seed: int = 0) -> list[Transitions]:
    rng = np.random.default_rng(seed)
    return [batch_of_states(rng.normal(size=(size, 2)), rng.normal(size=(size, 3))) for _ in range(number)]


def episode_of(observations: np.ndarray, rows: int = 40, garbage: float = 7.0) -> Episode:
    """The episode that visits the given observations, [T + 1, O]; padding holds garbage."""
    length = len(observations) - 1

    def padded(values: np.ndarray) -> jax.Array:
        filling = np.full((rows - length, *values.shape[1:]), garbage)
        return jnp.asarray(np.concatenate([values, filling]).astype(np.float32))

    return Episode(
        observation=padded(observations[:-1]),
        action=padded(np.zeros((length, 2))),
        next_observation=padded(observations[1:]),
        extrinsic_reward=padded(np.zeros(length)),
        terminated=jnp.arange(rows) == length - 1,
        state=padded(np.zeros((length, 4))),
        mask=jnp.arange(rows) < length,
        step=jnp.arange(rows),
    )


def assert_population_equals_agents_alone(
    reward: Any, spec: RewardSpec, batches_of: Callable[[int], Sequence[Transitions]], tolerance: float = 1e-5
) -> None:
    """Three agents, each with its own batches: their rewards and metrics are those of each one alone."""
    keys = jax.random.split(KEY, 3)
    batches = [batches_of(agent) for agent in range(3)]
    stacked = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *turn) for turn in zip(*batches, strict=True)]
    population = jax.vmap(lambda key: reward.init(key, spec))(keys)
    update_all, update = jax.jit(jax.vmap(reward.update)), jax.jit(reward.update)
    for batch in stacked:
        population, metrics = update_all(population, batch, keys)
    together = jax.jit(jax.vmap(reward.reward))(population, stacked[-1])
    for agent in range(3):
        state = reward.init(keys[agent], spec)
        for batch in batches[agent]:
            state, alone = update(state, batch, KEY)
        mine = jax.jit(reward.reward)(state, batches[agent][-1])
        np.testing.assert_allclose(together[agent], mine, rtol=tolerance, atol=tolerance)
        for name, value in alone.items():
            np.testing.assert_allclose(metrics[name][agent], value, rtol=tolerance)


def assert_a_checkpoint_gives_the_same_rewards(reward: Any, spec: RewardSpec, batches: Sequence[Transitions]) -> None:
    """Written and read before the last batch, the state goes on as if nothing had happened."""
    init, update = jax.jit(lambda key: reward.init(key, spec)), jax.jit(reward.update)
    state = init(KEY)
    for batch in batches[:-1]:
        state, _ = update(state, batch, KEY)
    restored = arrays_to_tree(init(jax.random.key(9)), tree_to_arrays(state, "reward"), "reward")
    after = [jax.jit(reward.reward)(update(known, batches[-1], KEY)[0], batches[-1]) for known in (state, restored)]
    np.testing.assert_array_equal(*after)
