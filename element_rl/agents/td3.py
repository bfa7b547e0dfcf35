"""Twin delayed deep deterministic policy gradient, TD3 (Fujimoto et al., 2018, arXiv:1802.09477).

With μ the actor, Q_1, Q_2 the critics, bars for targets, d the terminated flag and ε ~ N(0, 1), one
`update` descends (Algorithm 1 of the paper)

    ã    = clip(μ̄(s') + clip(σ̃ ε, -c, c), -1, 1)                          target policy smoothing
    y    = r + γ (1 - d) min_i Q̄_i(s', ã)                                  clipped double Q-learning
    J_Q  = E[½ Σ_i (Q_i(s, a) - y)²]
    J_π  = -E[Q_1(s, μ(s))]            every `policy_delay` updates, and then all targets move by τ

It acts with clip(μ(s) + σ ε, -1, 1). Its stored policy holds σ as `exploration_noise`, and so says
how to act with it (`host_policy`).

Departures from the authors' code (github.com/sfujim/TD3): time limits do not end the bootstrap (as
theirs), the random steps at the start are 1,000, as for the other agents here (theirs 25,000), and
layers start as in `networks`, as PyTorch's do by default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from element_rl.agents.contract import Agent, Anchor, Batch, LayerNorm, check_settings
from element_rl.agents.networks import (
    TwinCritics,
    adam_step,
    bootstrapped,
    chosen,
    critic_loss,
    flat_parameters,
    network_from,
    own_columns,
)
from element_rl.mlp import MLP

METRICS = ("critic_loss", "q_mean", "target_mean", "actor_loss")
Metrics = dict[str, Float[Array, ""]]


@dataclass(frozen=True)
class TD3Config:
    """The settings of the authors' code."""

    # Widths of the ReLU layers of the actor and of each critic.
    hidden_sizes: tuple[int, ...] = (256, 256)
    # Step size of Adam for the actor.
    actor_learning_rate: float = 3e-4
    # Step size of Adam for the critics.
    critic_learning_rate: float = 3e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ of the networks in the target networks, each time these move.
    target_rate: float = 0.005
    # Deviation σ of the noise added to actions while training.
    exploration_noise: float = 0.1
    # Deviation σ̃ of the noise added to the target's action.
    smoothing_noise: float = 0.2
    # Largest noise c of the target's action.
    smoothing_clip: float = 0.5
    # Updates of the critics for each update of the actor.
    policy_delay: int = 2
    # Transitions per update.
    batch_size: int = 256
    # Random steps before the first update.
    learn_start: int = 1_000
    # Networks whose hidden layers are normalised before their ReLU: none, the critics, or both
    # critics and actor.
    layer_norm: LayerNorm = "none"

    def __post_init__(self) -> None:
        checks = (
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("discount", 0.0 <= self.discount <= 1.0, "between 0 and 1"),
            ("target_rate", 0.0 < self.target_rate <= 1.0, "above 0 and at most 1"),
            ("exploration_noise", self.exploration_noise >= 0.0, "at least 0"),
            ("smoothing_noise", self.smoothing_noise >= 0.0, "at least 0"),
            ("smoothing_clip", self.smoothing_clip >= 0.0, "at least 0"),
            ("policy_delay", self.policy_delay >= 1, "at least 1"),
            ("batch_size", self.batch_size > 0, "at least 1"),
        )
        check_settings(self, checks)


class TD3State(eqx.Module):
    """All that learns: a pytree of arrays only."""

    actor: MLP  # observation, or its first columns (`own_columns`) → action before its tanh
    critics: TwinCritics
    target_actor: MLP
    target_critics: TwinCritics
    actor_optimiser: PyTree[Array]
    critic_optimiser: PyTree[Array]
    updates: Int[Array, ""]


def agent(
    config: TD3Config, observation_dim: int, action_dim: int, actor_dim: int | None = None
) -> Agent:
    """TD3 behind the contract of agents. The actor sees the first `actor_dim` columns of the
    observation; None: all."""
    return Agent(
        create=partial(
            create,
            observation_dim=observation_dim,
            action_dim=action_dim,
            config=config,
            actor_dim=actor_dim,
        ),
        update=partial(update, config=config),
        policy=partial(policy, config=config),
        batch_size=config.batch_size,
        metric_names=METRICS,
        with_policy=with_policy,
        parts={"critics": ("critics", "target_critics", "critic_optimiser")},
    )


@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config", "actor_dim"))
def create(
    key: PRNGKeyArray,
    observation_dim: int,
    action_dim: int,
    config: TD3Config,
    actor_dim: int | None = None,
) -> TD3State:
    """A fresh agent; the same key gives the same agent."""
    actor_key, critic_key = jax.random.split(key)
    seen = observation_dim if actor_dim is None else actor_dim
    sizes, norms = (seen, *config.hidden_sizes, action_dim), config.layer_norm
    actor = MLP.create(actor_key, sizes, norms == "both")
    critics = TwinCritics.create(
        critic_key, observation_dim, action_dim, config.hidden_sizes, norms != "none"
    )
    return TD3State(
        actor=actor,
        critics=critics,
        target_actor=jax.tree.map(jnp.copy, actor),  # copies: one buffer cannot be donated twice
        target_critics=jax.tree.map(jnp.copy, critics),
        actor_optimiser=optax.adam(config.actor_learning_rate).init(actor),
        critic_optimiser=optax.adam(config.critic_learning_rate).init(critics),
        updates=jnp.zeros((), jnp.int32),
    )


def update(
    state: TD3State,
    batch: Batch,
    key: PRNGKeyArray,
    config: TD3Config,
    actor_learns: Bool[Array, ""] | None = None,
    anchor: Anchor | None = None,
) -> tuple[TD3State, Metrics]:
    """One step of the critics; every `policy_delay` updates also one of the actor and all targets.

    Where `actor_learns` is false the actor stays as it is. An `anchor` holds it near a policy.
    """

    def loss(actor: MLP, critics: TwinCritics) -> tuple[Float[Array, ""], Metrics]:
        return actor_loss(actor, critics, batch.observation, config, anchor)

    return descend(state, batch, key, config, loss, actor_learns)


def descend(
    state: TD3State,
    batch: Batch,
    key: PRNGKeyArray,
    config: TD3Config,
    loss_of_actor: Callable[[MLP, TwinCritics], tuple[Float[Array, ""], Metrics]],
    actor_learns: Bool[Array, ""] | None = None,
) -> tuple[TD3State, Metrics]:
    """`update`, whatever the actor's loss is; it is given the critics just updated."""
    noise = jax.random.normal(key, batch.action.shape)
    target = critic_target(state, batch, noise, config)
    gradient, critic_metrics = jax.grad(critic_loss, has_aux=True)(state.critics, batch, target)
    critics, critic_optimiser = adam_step(
        gradient, state.critic_optimiser, state.critics, config.critic_learning_rate
    )

    updates = state.updates + 1
    due = updates % config.policy_delay == 0
    learns = due if actor_learns is None else due & actor_learns
    actor_gradient, actor_metrics = jax.grad(loss_of_actor, has_aux=True)(state.actor, critics)
    new_actor, actor_optimiser = adam_step(
        actor_gradient, state.actor_optimiser, state.actor, config.actor_learning_rate
    )
    actor = chosen(learns, new_actor, state.actor)
    new_state = TD3State(
        actor=actor,
        critics=critics,
        target_actor=_moved(due, actor, state.target_actor, config.target_rate),
        target_critics=_moved(due, critics, state.target_critics, config.target_rate),
        actor_optimiser=chosen(learns, actor_optimiser, state.actor_optimiser),
        critic_optimiser=critic_optimiser,
        updates=updates,
    )
    return new_state, critic_metrics | actor_metrics


def policy(state: TD3State, config: TD3Config) -> dict[str, Array]:
    """The stored policy: the actor's layers, and the noise it explores with."""
    noise = jnp.full_like(state.updates, config.exploration_noise, dtype=jnp.float32)
    return flat_parameters(state.actor) | {"exploration_noise": noise}


def with_policy(state: TD3State, parameters: Mapping[str, Any]) -> TD3State:
    """The same agent, its actor and target actor those of a stored policy."""
    actor = network_from(parameters)
    where = lambda s: (s.actor, s.target_actor)  # noqa: E731
    return eqx.tree_at(where, state, (actor, jax.tree.map(jnp.copy, actor)))


def act(
    state: TD3State,
    observation: Float[Array, " O"],
    key: PRNGKeyArray,
    config: TD3Config,
    deterministic: bool = False,
) -> Float[Array, " A"]:
    """One action in [-1, 1]. `host_policy` computes the same in NumPy."""
    action = mean_action(state.actor, observation[None])[0]
    noise = (
        0.0 if deterministic else config.exploration_noise * jax.random.normal(key, action.shape)
    )
    return jnp.clip(action + noise, -1.0, 1.0)


def critic_target(
    state: TD3State, batch: Batch, noise: Float[Array, "B A"], config: TD3Config
) -> Float[Array, " B"]:
    """y = r + γ (1 - d) min_i Q̄_i(s', ã), ã = clip(μ̄(s') + clip(σ̃ ε, -c, c), -1, 1)."""
    limit = config.smoothing_clip
    smoothing = jnp.clip(config.smoothing_noise * noise, -limit, limit)
    next_action = mean_action(state.target_actor, batch.next_observation) + smoothing
    next_q = state.target_critics(batch.next_observation, jnp.clip(next_action, -1.0, 1.0))
    next_value = jnp.min(next_q, axis=0)
    return bootstrapped(batch.reward, batch.terminated, next_value, config.discount)


def actor_loss(
    actor: MLP,
    critics: TwinCritics,
    observation: Float[Array, "B O"],
    config: TD3Config,
    anchor: Anchor | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J_π = -E[Q_1(s, μ(s))].

    With an anchor π_0 of weight w there is w E|Q| E[KL(π ‖ π_0)] more to pay, where both policies
    are Gaussians of the exploration's deviation σ: KL = ‖μ - μ_0‖² / (2 σ²). (0.1 where σ is 0.)
    """
    action = mean_action(actor, observation)
    q = critics(observation, action)[0]
    loss = -jnp.mean(q)
    if anchor is not None:
        unit = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
        apart = jnp.sum((action - mean_action(anchor.actor, observation)) ** 2, axis=-1)
        deviation = config.exploration_noise or TD3Config.exploration_noise
        loss += anchor.weight * unit * jnp.mean(apart) / (2.0 * deviation**2)
    return loss, {"actor_loss": loss}


def mean_action(actor: MLP, observation: Float[Array, "B O"]) -> Float[Array, "B A"]:
    """μ(s)."""
    return jnp.tanh(actor(own_columns(actor, observation)))


def _moved(due: Bool[Array, ""], network: Any, target: Any, rate: float) -> Any:
    return chosen(due, optax.incremental_update(network, target, rate), target)
