"""Deep Q-network, DQN (Mnih et al., 2015, doi:10.1038/nature14236), for actions that are a choice,
with double Q-learning (van Hasselt et al., 2016, arXiv:1509.06461) unless it is switched off, and
with dueling heads (Wang et al., 2016, arXiv:1511.06581) where they are asked for.

With Q the network, Q̄ its slow copy and d the terminated flag, one `update` descends

    y   = r + γ (1 - d) Q̄(s', argmax_a' Q(s', a'))      double: the network chooses, Q̄ values
    y   = r + γ (1 - d) max_a' Q̄(s', a')                without
    J_Q = E[h(Q(s, a) - y)]                             h: Huber's loss, ½ e² up to |e| = 1
    Q̄  ← Q̄ + τ (Q - Q̄)

It acts with the best action, and with probability ε with any. ε falls by the same amount at every
update, from 1 to `final_exploration` over `exploration_updates`. Its stored policy holds ε as
`exploration_rate`, and so says how to act with it (`host_policy`).

Dueling: Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a'), where V and A are the outputs of the last
layer. That is linear in them, so stored policies hold one last layer that gives Q itself.

An action of a batch is a one-hot vector, as replays keep it.

Departures from the paper:
1. The target network follows at every update by τ, as that of the other agents here. The paper
   replaces it every 10,000 updates. An intrinsic reward changes all the time: a copy that stands
   still values what is no longer paid, and one that jumps moves all targets at once.
2. Observations are vectors. Adam with 3e-4, batches of 256 and 256 units twice are the settings of
   the other agents here.
3. One update for each step of the agent (`--updates-per-step`), where the paper has one in four.
4. The two heads of dueling share all hidden layers, and their gradients are not scaled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from element_rl.agents.contract import Agent, Anchor, Batch, check_settings
from element_rl.agents.networks import adam_step, bootstrapped, flat_parameters, network_from
from element_rl.mlp import MLP

METRICS = ("critic_loss", "q_mean", "target_mean", "exploration_rate")
EXPLORATION_UPDATES = 10_000  # where nobody says how long the run is


@dataclass(frozen=True)
class DQNConfig:
    """The usual settings for vectors."""

    # Widths of the ReLU layers.
    hidden_sizes: tuple[int, ...] = (256, 256)
    # Step size of Adam.
    learning_rate: float = 3e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ by which the target network follows the network at each update.
    target_rate: float = 0.005
    # Let the network choose the action that its target network values (double Q-learning).
    double: bool = True
    # Learn the value of a state and the advantages of its actions apart (dueling heads).
    dueling: bool = False
    # Share ε of actions drawn at random, in the end; it falls from 1.
    final_exploration: float = 0.05
    # Updates in which ε falls. (default: a tenth of the run's)
    exploration_updates: int | None = None
    # Transitions per update.
    batch_size: int = 256
    # Random steps before the first update.
    learn_start: int = 1_000

    def __post_init__(self) -> None:
        updates = self.exploration_updates
        checks = (
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("discount", 0.0 <= self.discount <= 1.0, "between 0 and 1"),
            ("target_rate", 0.0 < self.target_rate <= 1.0, "above 0 and at most 1"),
            ("final_exploration", 0.0 <= self.final_exploration <= 1.0, "between 0 and 1"),
            ("exploration_updates", updates is None or updates >= 1, "at least 1"),
            ("batch_size", self.batch_size > 0, "at least 1"),
        )
        check_settings(self, checks)


class DQNState(eqx.Module):
    """All that learns: a pytree of arrays only."""

    values: MLP  # observation → Q of every action; with dueling heads → V, and A of every action
    target_values: MLP
    optimiser: PyTree[Array]
    first_rate: Float[Array, ""]  # ε before the first update
    updates: Int[Array, ""]


def agent(
    config: DQNConfig, observation_dim: int, action_dim: int, actor_dim: int | None = None
) -> Agent:
    """DQN behind the contract of agents. Its network both values and acts, so that it cannot be
    told what an actor is not: `actor_dim` must be None."""
    if actor_dim is not None:
        raise ValueError(
            "DQN acts with its critic, which cannot be told more than its actor is: take "
            "--tell-position both or none."
        )
    return Agent(
        create=partial(
            create, observation_dim=observation_dim, action_dim=action_dim, config=config
        ),
        update=partial(update, config=config),
        policy=partial(policy, config=config),
        batch_size=config.batch_size,
        metric_names=METRICS,
        with_policy=partial(with_policy, config=config),
    )


@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config"))
def create(key: PRNGKeyArray, observation_dim: int, action_dim: int, config: DQNConfig) -> DQNState:
    """A fresh agent; the same key gives the same agent."""
    outputs = action_dim + config.dueling
    values = MLP.create(key, (observation_dim, *config.hidden_sizes, outputs))
    return DQNState(
        values=values,
        target_values=jax.tree.map(jnp.copy, values),  # one buffer cannot be donated twice
        optimiser=optax.adam(config.learning_rate).init(values),
        first_rate=jnp.ones(()),
        updates=jnp.zeros((), jnp.int32),
    )


def update(
    state: DQNState,
    batch: Batch,
    key: PRNGKeyArray,
    config: DQNConfig,
    actor_learns: Bool[Array, ""] | None = None,
    anchor: Anchor | None = None,
) -> tuple[DQNState, dict[str, Float[Array, ""]]]:
    """One step of the network. It draws nothing: the key is there because every agent's `update`
    takes one. It has critics only, which learn whatever `actor_learns` says, and no actor that an
    `anchor` could hold."""
    del key, actor_learns
    if anchor is not None:
        raise ValueError(
            "DQN has no actor that could be held near a policy, for its values are its policy: "
            "leave --anchor out."
        )
    target = value_target(state, batch, config)
    gradient, metrics = jax.grad(value_loss, has_aux=True)(state.values, batch, target, config)
    values, optimiser = adam_step(gradient, state.optimiser, state.values, config.learning_rate)
    new_state = DQNState(
        values=values,
        target_values=optax.incremental_update(values, state.target_values, config.target_rate),
        optimiser=optimiser,
        first_rate=state.first_rate,
        updates=state.updates + 1,
    )
    return new_state, metrics | {"exploration_rate": exploration_rate(new_state, config)}


def policy(state: DQNState, config: DQNConfig) -> dict[str, Array]:
    """The stored policy: the layers of the network, the last one giving Q itself, and ε."""
    parameters = flat_parameters(state.values)
    if config.dueling:
        last = len(state.values.weights) - 1
        for name in (f"weight_{last}", f"bias_{last}"):
            parameters[name] = duelled(parameters[name])
    return parameters | {"exploration_rate": exploration_rate(state, config)}


def with_policy(state: DQNState, parameters: Mapping[str, Any], config: DQNConfig) -> DQNState:
    """The same agent, its network and target network those of a stored policy. It goes on with the
    ε of that policy, not with 1."""
    values = network_from(parameters)
    if config.dueling:
        split = lambda layers: (*layers[:-1], parted(layers[-1]))  # noqa: E731
        values = MLP(split(values.weights), split(values.biases))
    rate = jnp.array(parameters["exploration_rate"], jnp.float32)
    where = lambda s: (s.values, s.target_values, s.first_rate)  # noqa: E731
    return eqx.tree_at(where, state, (values, jax.tree.map(jnp.copy, values), rate))


def act(state: DQNState, observation: Float[Array, " O"], config: DQNConfig) -> Int[Array, ""]:
    """The best action. `host_policy` computes the same in NumPy."""
    return jnp.argmax(action_values(state.values, observation[None], config)[0])


def exploration_rate(state: DQNState, config: DQNConfig) -> Float[Array, "*P"]:
    """ε = max(ε_1, ε_0 - (1 - ε_1) n / N) after n updates."""
    length = config.exploration_updates or EXPLORATION_UPDATES
    fallen = (1.0 - config.final_exploration) * state.updates.astype(jnp.float32) / length
    return jnp.maximum(state.first_rate - fallen, config.final_exploration)


def action_values(
    values: MLP, observation: Float[Array, "B O"], config: DQNConfig
) -> Float[Array, "B A"]:
    """Q(s, ·)."""
    outputs = values(observation)
    return duelled(outputs) if config.dueling else outputs


def duelled(outputs: Float[Array, "*layer V"]) -> Float[Array, "*layer A"]:
    """V + A - mean A of heads side by side, V first: of their outputs, or of their weights, for it
    is linear."""
    value, advantages = outputs[..., :1], outputs[..., 1:]
    return value + advantages - jnp.mean(advantages, axis=-1, keepdims=True)


def parted(values: Float[Array, "*layer A"]) -> Float[Array, "*layer V"]:
    """Heads that `duelled` makes these values of: their mean, and what each is above it."""
    mean = jnp.mean(values, axis=-1, keepdims=True)
    return jnp.concatenate([mean, values - mean], axis=-1)


def value_target(state: DQNState, batch: Batch, config: DQNConfig) -> Float[Array, " B"]:
    """y of the head of this module."""
    next_values = action_values(state.target_values, batch.next_observation, config)
    chooses = next_values
    if config.double:
        chooses = action_values(state.values, batch.next_observation, config)
    choice = jnp.argmax(chooses, axis=-1)
    next_value = jnp.take_along_axis(next_values, choice[:, None], axis=-1)[:, 0]
    return bootstrapped(batch.reward, batch.terminated, next_value, config.discount)


def value_loss(
    values: MLP, batch: Batch, target: Float[Array, " B"], config: DQNConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J_Q; the target is a constant."""
    taken = jnp.sum(action_values(values, batch.observation, config) * batch.action, axis=-1)
    loss = jnp.mean(optax.huber_loss(taken, target))
    metrics = {"critic_loss": loss, "q_mean": jnp.mean(taken), "target_mean": jnp.mean(target)}
    return loss, metrics
