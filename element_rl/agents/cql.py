"""Conservative Q-Learning, CQL(H) (Kumar et al., 2020, arXiv:2006.04779), for one agent that learns
from a fixed dataset.

Soft actor-critic whose critics pay for high values of actions that the data do not have. To the
loss of `sac` each critic i adds its conservative gap, with a the action of the dataset:

    J     = J_Q + ½ w Σ_i G_i,      G_i = E_s[log ∫ exp Q_i(s, a') da' - Q_i(s, a)]

with w = conservative_weight.

The integral is estimated for every observation and every critic by importance sampling, with n =
sampled_actions actions of each of three kinds: uniform in [-1, 1]^A, of density (1/2)^A; of the
policy at s; and of the policy at the next observation s'. All 3 n are valued at s, with constant
densities q(a') of their own kind:

    ∫ exp Q_i(s, a') da'  ≈  1 / (3 n)  Σ_a' exp Q_i(s, a') / q(a')

With a `lagrange_threshold` τ the weight is learned too, from w (G_i - τ): it rises while the gaps
are above τ. All else (targets, actor, temperature) is `sac`, whose functions are used.

Departures:

1. The logarithm is taken of each critic's own sum. Well-known code takes it over the critics as
   well.
2. The 1 / (3 n) is kept. It changes no gradient and makes the logged gap an estimate of G_i.
3. The target has no entropy term (`soft_backup`), as in d3rlpy, whose settings are the defaults
   here: the policy's entropy is then no reward, and values keep the units of the task's returns.
4. Both terms have the factor ½. The CQL paper has it before J_Q only; its authors' code and d3rlpy
   have it nowhere, and their weights, 5 among them, are quoted everywhere. With it before both, a
   weight here does what it does there.
"""

from dataclasses import dataclass
from functools import partial
from math import log, sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.agents import sac
from element_rl.agents.contract import Agent, Batch, check_settings
from element_rl.agents.networks import (
    Actor,
    TwinCritics,
    adam_step,
    policy_parameters,
    squashed_gaussian,
)
from element_rl.agents.sac import SACConfig, SACState
from element_rl.mlp import MLP

METRICS = (
    *("critic_loss", "q_mean", "target_mean", "conservative_gap", "conservative_weight"),
    *("actor_loss", "policy_entropy", "temperature", "temperature_loss"),
)


@dataclass(frozen=True)
class CQLConfig:
    """d3rlpy's defaults, with its weight of the conservative term held constant as in its own
    reproductions."""

    # Weight w of the conservative term, which lowers the values of actions that are not in the
    # data; 0 is plain SAC on the dataset.
    conservative_weight: float = 5.0
    # Actions n, of each of the three kinds, that the conservative term samples per observation.
    sampled_actions: int = 10
    # Gap τ that the conservative weight is learned to keep. (default: the weight stays constant)
    lagrange_threshold: float | None = None
    # Learning rate of the conservative weight's logarithm, where it is learned (Adam).
    conservative_learning_rate: float = 1e-4
    # Subtract α log π in the critics' target, as SAC does.
    soft_backup: bool = False
    # Units of each hidden layer (ReLU) of the actor and of both critics.
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    # Learning rate of the actor (Adam).
    actor_learning_rate: float = 1e-4
    # Learning rate of the critics (Adam).
    critic_learning_rate: float = 3e-4
    # Learning rate of the temperature (Adam).
    temperature_learning_rate: float = 1e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ by which the target critics follow the critics at each update.
    target_rate: float = 0.005
    # Temperature α at the first update, the weight of the policy's entropy; learned from there.
    initial_temperature: float = 1.0
    # Entropy of the policy, in nats, that the temperature is learned to hold.
    # (default: minus the number of action dimensions)
    target_entropy: float | None = None
    # Transitions in the batch of one update.
    batch_size: int = 256

    def __post_init__(self) -> None:
        checks = (
            ("conservative_weight", self.conservative_weight >= 0.0, "0 or above"),
            ("sampled_actions", self.sampled_actions > 0, "at least 1"),
        )
        check_settings(self, checks)
        if self.lagrange_threshold is not None and self.conservative_weight == 0.0:
            raise ValueError(
                "A learned conservative_weight cannot start at 0 (its logarithm is learned): "
                "choose another."
            )
        _ = self.sac  # refuses what SAC refuses

    @property
    def sac(self) -> SACConfig:
        """The settings of all that CQL leaves to SAC."""
        return SACConfig(
            hidden_sizes=self.hidden_sizes,
            actor_learning_rate=self.actor_learning_rate,
            critic_learning_rate=self.critic_learning_rate,
            temperature_learning_rate=self.temperature_learning_rate,
            discount=self.discount,
            target_rate=self.target_rate,
            initial_temperature=self.initial_temperature,
            target_entropy=self.target_entropy,
            batch_size=self.batch_size,
        )


class CQLState(eqx.Module):
    """All that learns; arrays only. The weight stays where it is unless there is a
    `lagrange_threshold`."""

    agent: SACState
    log_conservative_weight: Float[Array, ""]
    conservative_optimiser: PyTree[Array]


def agent(config: CQLConfig, observation_dim: int, action_dim: int) -> Agent:
    """CQL behind the contract of agents."""
    return Agent(
        create=partial(
            create, observation_dim=observation_dim, action_dim=action_dim, config=config
        ),
        update=partial(update, config=config),
        policy=lambda state: policy_parameters(state.agent.actor),
        batch_size=config.batch_size,
        metric_names=METRICS,
    )


@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config"))
def create(key: PRNGKeyArray, observation_dim: int, action_dim: int, config: CQLConfig) -> CQLState:
    """A fresh agent; the same key gives the same agent, and the one `sac.create` gives."""
    log_weight = jnp.log(jnp.asarray(config.conservative_weight, jnp.float32))
    return CQLState(
        agent=sac.create(key, observation_dim, action_dim, config.sac),
        log_conservative_weight=log_weight,
        conservative_optimiser=optax.adam(config.conservative_learning_rate).init(log_weight),
    )


def update(
    state: CQLState, batch: Batch, key: PRNGKeyArray, config: CQLConfig
) -> tuple[CQLState, dict[str, Float[Array, ""]]]:
    """One gradient step of everything. With weight 0 and `soft_backup` it is `sac.update` with the
    same key."""
    agent = state.agent
    # One draw: several would compile, and on a GPU run, for longer. Its first two are those that
    # SAC makes of the key.
    noise = jax.random.normal(key, (2 + 3 * config.sampled_actions, *batch.action.shape))
    target_noise, policy_noise = noise[:2]
    actions, log_density = proposed_actions(agent.actor, batch, noise[2:])

    target = sac.critic_target(agent, batch, target_noise, config.discount, config.soft_backup)
    weight = jnp.exp(state.log_conservative_weight)
    gradient, metrics = jax.grad(critic_loss, has_aux=True)(
        agent.critics, batch, target, actions, log_density, weight
    )
    agent, other_metrics = sac.descend(agent, gradient, batch, policy_noise, config.sac)

    log_weight, optimiser = state.log_conservative_weight, state.conservative_optimiser
    if config.lagrange_threshold is not None:
        slope = jax.grad(weight_loss)(
            log_weight, metrics["conservative_gap"], config.lagrange_threshold
        )
        log_weight, optimiser = adam_step(
            slope, optimiser, log_weight, config.conservative_learning_rate
        )
    return CQLState(agent, log_weight, optimiser), metrics | other_metrics | {
        "conservative_weight": weight
    }


def critic_loss(
    critics: TwinCritics,
    batch: Batch,
    target: Float[Array, " B"],
    actions: Float[Array, "S B A"],
    log_density: Float[Array, "S B"],
    weight: Float[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J = J_Q + ½ w Σ_i G_i; the metric `critic_loss` is J_Q alone, `conservative_gap` the mean of
    the G_i."""
    loss, metrics = sac.critic_loss(critics, batch, target)
    gap = conservative_gap(critics, batch, actions, log_density)
    return loss + 0.5 * weight * jnp.sum(gap), metrics | {"conservative_gap": jnp.mean(gap)}


def conservative_gap(
    critics: TwinCritics,
    batch: Batch,
    actions: Float[Array, "S B A"],
    log_density: Float[Array, "S B"],
) -> Float[Array, "2"]:
    """G_i of each critic: how far the log-integral of exp Q_i lies above the value of the dataset's
    action."""
    with_data = jnp.concatenate([actions, batch.action[None]])
    values = action_values(critics, batch.observation, with_data)
    sampled, of_data = values[:, :-1], values[:, -1]
    weighted = sampled - log_density[None]
    # over the actions, not over the critics
    log_integral = jax.nn.logsumexp(weighted, axis=1) - log(actions.shape[0])
    return jnp.mean(log_integral - of_data, axis=-1)


def weight_loss(
    log_weight: Float[Array, ""], gap: Float[Array, ""], lagrange_threshold: float
) -> Float[Array, ""]:
    """-w (G - τ): a gap above the threshold raises the weight, one below lowers it."""
    return -jnp.exp(log_weight) * (gap - lagrange_threshold)


def proposed_actions(
    actor: Actor, batch: Batch, noise: Float[Array, "S B A"]
) -> tuple[Float[Array, "S B A"], Float[Array, "S B"]]:
    """Uniform actions, actions of the policy at s and of the policy at s', a third each, with the
    logarithms of their densities.

    `noise` is standard normal.
    """
    for_uniform, for_here, for_there = jnp.split(noise, 3)
    uniform = jax.scipy.special.erf(for_uniform / sqrt(2.0))  # 2 Φ(x) - 1 of a normal x
    log_uniform = jnp.full(uniform.shape[:-1], -noise.shape[-1] * log(2.0))
    draw = jax.vmap(squashed_gaussian, in_axes=(None, None, 0))
    here, log_here = draw(*actor(batch.observation), for_here)
    there, log_there = draw(*actor(batch.next_observation), for_there)
    return jnp.concatenate([uniform, here, there]), jnp.concatenate(
        [log_uniform, log_here, log_there]
    )


def action_values(
    critics: TwinCritics, observation: Float[Array, "B O"], actions: Float[Array, "S B A"]
) -> Float[Array, "2 S B"]:
    """Both values of S actions at each observation.

    The first layer is split: what it makes of an observation is computed once and not S times. All
    other layers are one product over the S B rows.
    """
    number, batch_size, action_dim = actions.shape

    def values(network: MLP) -> Float[Array, "S B"]:
        of_observation, of_action = jnp.split(network.weights[0], [observation.shape[-1]])
        shared = observation @ of_observation + network.biases[0][None]
        own = (actions.reshape(-1, action_dim) @ of_action).reshape(number, batch_size, -1)
        hidden = jax.nn.relu(shared[None] + own).reshape(number * batch_size, -1)
        return MLP(network.weights[1:], network.biases[1:])(hidden).reshape(number, batch_size)

    return jax.vmap(values)(critics.networks)
