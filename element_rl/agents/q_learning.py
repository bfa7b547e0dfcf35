"""Tabular Q-learning (Watkins, 1989), for worlds with few states: one agent, pure functions; `vmap`
makes a population.

    Q(s, a) ← Q(s, a) + α (r + γ max_a' Q(s', a') − Q(s, a))

`update` does this for one transition, `update_known` for one transition of every pair that has been
tried, all from the same table: what a large batch from a replay does on average, in a world where a
pair always leads to the same state. No state is an end: a time limit does not stop the bootstrap.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


@dataclass(frozen=True)
class QLearningConfig:
    """The paper says "classic Q-learning" and no values; these are the usual ones."""

    learning_rate: float = 0.1  # α
    discount: float = 0.99  # γ, as everywhere in the paper
    epsilon: float = 0.1  # share of actions drawn at random
    # of every pair; 1 / (1 − γ), the largest return of rewards up to 1, makes untried ones
    # attractive
    initial_value: float = 100.0

    def __post_init__(self) -> None:
        for name, valid, range_ in (
            ("learning_rate", 0.0 < self.learning_rate <= 1.0, "above 0 and at most 1"),
            ("discount", 0.0 <= self.discount < 1.0, "at least 0 and below 1"),
            ("epsilon", 0.0 <= self.epsilon <= 1.0, "between 0 and 1"),
        ):
            if not valid:
                raise ValueError(f"{name} must be {range_}, got {getattr(self, name)}.")


def create(num_states: int, num_actions: int, config: QLearningConfig) -> Float[Array, "S A"]:
    """The table of values before the first update."""
    return jnp.full((num_states, num_actions), config.initial_value, jnp.float32)


def act(
    values: Float[Array, "S A"], state: Int[Array, ""], key: PRNGKeyArray, epsilon: Float[Array, ""]
) -> Int[Array, ""]:
    """One of the best actions, each as likely as the others; with probability ε any action."""
    explore_key, action_key = jax.random.split(key)
    best = values[state] == jnp.max(values[state])
    allowed = best | (jax.random.uniform(explore_key) < epsilon)
    return jax.random.categorical(action_key, jnp.where(allowed, 0.0, -jnp.inf))


def update(
    values: Float[Array, "S A"],
    state: Int[Array, ""],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    next_state: Int[Array, ""],
    config: QLearningConfig,
) -> Float[Array, "S A"]:
    """The table after learning from one transition."""
    target = reward + config.discount * jnp.max(values[next_state])
    return values.at[state, action].add(config.learning_rate * (target - values[state, action]))


def update_known(
    values: Float[Array, "S A"],
    known: Bool[Array, "S A"],
    rewards: Float[Array, "S A"],
    next_states: Int[Array, "S A"],
    config: QLearningConfig,
) -> Float[Array, "S A"]:
    """The table after learning from one transition of every known pair; what was never tried stays
    as it is."""
    targets = rewards + config.discount * jnp.max(values, axis=1)[next_states]
    return jnp.where(known, values + config.learning_rate * (targets - values), values)
