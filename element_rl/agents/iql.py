"""Implicit Q-Learning, IQL (Kostrikov, Nair & Levine, 2021, arXiv:2110.06169), for one agent that
learns from a fixed dataset.

No action that is not in the data is ever valued. V is an upper expectile of the values of the
data's actions, critics bootstrap from it, and the policy is a regression on the data's actions,
weighted by their advantages. With bars for target critics and d the terminated flag, one `update`
descends, in this order, each with what was just updated (the paper's equations 5 to 7, its
Algorithm 1):

    J_V  = E[|τ - 1[u < 0]| u²],                u = min_i Q̄_i(s, a) - V(s)
    J_π  = -E[w log N(a; tanh μ(s), σ²)],       w = min(exp(β u), c)
    J_Q  = E[½ Σ_i (Q_i(s, a) - y)²],           y = r + γ (1 - d) V(s'),     then Q̄ ← Q̄ + ρ (Q - Q̄)

τ is `expectile` (½: the mean; towards 1: the best action of the data), β `inverse_temperature`
(0: behaviour cloning), c `weight_clip`, ρ `target_rate`. The deviation σ is one number per
dimension of the action, the same everywhere; the learning rate of μ and σ falls to 0 along half a
cosine. The stored policy is such as TD3's, with σ as its noise: clip(tanh μ(s) + σ ε, -1, 1), and
tanh μ(s) where it acts deterministically.

Departures from the authors' code (github.com/ikostrikov/implicit_q_learning), whose settings for
robots are the defaults:

1. Layers start as in `networks`, as PyTorch's do by default; there orthogonal.
2. The squared errors of the critics have the factor ½ (`networks.critic_loss`), theirs have none.
   Adam's steps do not depend on such a factor, but for its ε.
3. Their code multiplies rewards by 1,000 / (best - worst return of the data) before it learns, and
   β means something at that scale only. Here the loop does it (`return_range`).
4. Observations are standardised by the loop (`--no-standardise` as theirs).
"""

from dataclasses import dataclass
from functools import partial
from math import log, pi

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from element_rl.agents.contract import Agent, Batch, check_settings
from element_rl.agents.networks import (
    TwinCritics,
    adam_step,
    bootstrapped,
    critic_loss,
    flat_parameters,
)
from element_rl.mlp import MLP

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0  # the authors'
METRICS = (
    *("value_loss", "value_mean", "critic_loss", "q_mean", "target_mean"),
    *("actor_loss", "advantage_weight", "policy_deviation"),
)
Metrics = dict[str, Float[Array, ""]]


@dataclass(frozen=True)
class IQLConfig:
    """The settings of the authors' code for Gymnasium's robots."""

    # Expectile τ of the data's values that V is: 0.5 their mean, towards 1 their best.
    expectile: float = 0.7
    # Inverse temperature β of the advantages that weigh the data's actions; 0 clones them all
    # alike.
    inverse_temperature: float = 3.0
    # Largest weight c of an action.
    weight_clip: float = 100.0
    # Rewards are scaled so that the best and the worst return in the data are so far apart; 0
    # leaves them as --reward-scale has them.
    return_range: float = 1_000.0
    # Units of each hidden layer (ReLU) of the actor, the critics and V.
    hidden_sizes: tuple[int, ...] = (256, 256)
    # Learning rate of the actor at the first update (Adam).
    actor_learning_rate: float = 3e-4
    # Updates in which the actor's learning rate falls to 0 along a cosine; 0 keeps it.
    # (default: --steps)
    actor_decay_steps: int | None = None
    # Learning rate of the critics (Adam).
    critic_learning_rate: float = 3e-4
    # Learning rate of V (Adam).
    value_learning_rate: float = 3e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share ρ by which the target critics follow the critics at each update.
    target_rate: float = 0.005
    # Transitions in the batch of one update.
    batch_size: int = 256

    def __post_init__(self) -> None:
        checks = (
            ("expectile", 0.0 < self.expectile < 1.0, "between 0 and 1"),
            ("inverse_temperature", self.inverse_temperature >= 0.0, "0 or above"),
            ("weight_clip", self.weight_clip > 0.0, "above 0"),
            ("return_range", self.return_range >= 0.0, "0 or above"),
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("actor_learning_rate", self.actor_learning_rate > 0.0, "above 0"),
            ("actor_decay_steps", (self.actor_decay_steps or 0) >= 0, "0 or above"),
            ("critic_learning_rate", self.critic_learning_rate > 0.0, "above 0"),
            ("value_learning_rate", self.value_learning_rate > 0.0, "above 0"),
            ("discount", 0.0 <= self.discount <= 1.0, "between 0 and 1"),
            ("target_rate", 0.0 < self.target_rate <= 1.0, "above 0 and at most 1"),
            ("batch_size", self.batch_size > 0, "at least 1"),
        )
        check_settings(self, checks)


class GaussianActor(eqx.Module):
    """A Gaussian around tanh μ(s), its deviation the same at every s."""

    network: MLP  # observation → μ
    log_std: Float[Array, " A"]

    def mean(self, observation: Float[Array, "B O"]) -> Float[Array, "B A"]:
        return jnp.tanh(self.network(observation))

    @property
    def bounded_log_std(self) -> Float[Array, "*P A"]:
        return jnp.clip(self.log_std, LOG_STD_MIN, LOG_STD_MAX)


class IQLState(eqx.Module):
    """All that learns: a pytree of arrays only."""

    actor: GaussianActor
    critics: TwinCritics
    target_critics: TwinCritics
    value: MLP  # observation → V
    actor_optimiser: PyTree[Array]
    critic_optimiser: PyTree[Array]
    value_optimiser: PyTree[Array]
    updates: Int[Array, ""]


def agent(config: IQLConfig, observation_dim: int, action_dim: int) -> Agent:
    """IQL behind the contract of agents."""
    return Agent(
        create=partial(
            create, observation_dim=observation_dim, action_dim=action_dim, config=config
        ),
        update=partial(update, config=config),
        policy=policy,
        batch_size=config.batch_size,
        metric_names=METRICS,
    )


@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config"))
def create(key: PRNGKeyArray, observation_dim: int, action_dim: int, config: IQLConfig) -> IQLState:
    """A fresh agent, its deviation 1; the same key gives the same agent."""
    actor_key, critic_key, value_key = jax.random.split(key, 3)
    network = MLP.create(actor_key, (observation_dim, *config.hidden_sizes, action_dim))
    actor = GaussianActor(network, jnp.zeros(action_dim))
    critics = TwinCritics.create(critic_key, observation_dim, action_dim, config.hidden_sizes)
    value = MLP.create(value_key, (observation_dim, *config.hidden_sizes, 1))
    return IQLState(
        actor=actor,
        critics=critics,
        # a copy: one buffer cannot be donated twice
        target_critics=jax.tree.map(jnp.copy, critics),
        value=value,
        actor_optimiser=optax.adam(config.actor_learning_rate).init(actor),
        critic_optimiser=optax.adam(config.critic_learning_rate).init(critics),
        value_optimiser=optax.adam(config.value_learning_rate).init(value),
        updates=jnp.zeros((), jnp.int32),
    )


def update(
    state: IQLState, batch: Batch, key: PRNGKeyArray, config: IQLConfig
) -> tuple[IQLState, Metrics]:
    """One gradient step of V, the actor, the critics and their targets; the key is not used, and is
    there because every agent's `update` takes one."""
    of_data = jnp.min(state.target_critics(batch.observation, batch.action), axis=0)
    gradient, value_metrics = jax.grad(value_loss, has_aux=True)(
        state.value, batch.observation, of_data, config.expectile
    )
    value, value_optimiser = adam_step(
        gradient, state.value_optimiser, state.value, config.value_learning_rate
    )

    advantage = of_data - value_of(value, batch.observation)
    weight = advantage_weight(advantage, config.inverse_temperature, config.weight_clip)
    actor_gradient, actor_metrics = jax.grad(actor_loss, has_aux=True)(state.actor, batch, weight)
    actor, actor_optimiser = adam_step(
        actor_gradient, state.actor_optimiser, state.actor, actor_rate(state.updates, config)
    )

    following = value_of(value, batch.next_observation)
    target = bootstrapped(batch.reward, batch.terminated, following, config.discount)
    critic_gradient, critic_metrics = jax.grad(critic_loss, has_aux=True)(
        state.critics, batch, target
    )
    critics, critic_optimiser = adam_step(
        critic_gradient, state.critic_optimiser, state.critics, config.critic_learning_rate
    )
    new_state = IQLState(
        actor=actor,
        critics=critics,
        target_critics=optax.incremental_update(critics, state.target_critics, config.target_rate),
        value=value,
        actor_optimiser=actor_optimiser,
        critic_optimiser=critic_optimiser,
        value_optimiser=value_optimiser,
        updates=state.updates + 1,
    )
    return new_state, value_metrics | actor_metrics | critic_metrics


def value_loss(
    value: MLP, observation: Float[Array, "B O"], of_data: Float[Array, " B"], expectile: float
) -> tuple[Float[Array, ""], Metrics]:
    """J_V = E[|τ - 1[u < 0]| u²], u = Q - V: what lies above V weighs τ, what lies below 1 - τ."""
    values = value_of(value, observation)
    error = of_data - values
    loss = jnp.mean(jnp.where(error < 0.0, 1.0 - expectile, expectile) * error**2)
    return loss, {"value_loss": loss, "value_mean": jnp.mean(values)}


def advantage_weight(
    advantage: Float[Array, " B"], inverse_temperature: float, weight_clip: float
) -> Float[Array, " B"]:
    """w = min(exp(β u), c)."""
    return jnp.minimum(jnp.exp(inverse_temperature * advantage), weight_clip)


def actor_loss(
    actor: GaussianActor, batch: Batch, weight: Float[Array, " B"]
) -> tuple[Float[Array, ""], Metrics]:
    """J_π = -E[w log N(a; tanh μ(s), σ²)], the logarithms summed over the dimensions of the
    action."""
    log_std = actor.bounded_log_std[None]
    standardised = (batch.action - actor.mean(batch.observation)) * jnp.exp(-log_std)
    log_density = jnp.sum(-0.5 * standardised**2 - log_std - 0.5 * log(2 * pi), axis=-1)
    loss = -jnp.mean(weight * log_density)
    return loss, {
        "actor_loss": loss,
        "advantage_weight": jnp.mean(weight),
        "policy_deviation": jnp.mean(jnp.exp(log_std)),
    }


def actor_rate(updates: Int[Array, ""], config: IQLConfig) -> Float[Array, ""]:
    """The actor's learning rate after so many updates: half a cosine from its first value to 0."""
    if not config.actor_decay_steps:
        return jnp.asarray(config.actor_learning_rate)
    done = jnp.minimum(updates / config.actor_decay_steps, 1.0)
    return config.actor_learning_rate * 0.5 * (1.0 + jnp.cos(pi * done))


def value_of(value: MLP, observation: Float[Array, "B O"]) -> Float[Array, " B"]:
    """V(s)."""
    return value(observation)[:, 0]


def policy(state: IQLState) -> dict[str, Array]:
    """The stored policy: the layers of μ, and σ as the noise it acts with."""
    return flat_parameters(state.actor.network) | {
        "exploration_noise": jnp.exp(state.actor.bounded_log_std)
    }
