"""Soft Actor-Critic with a learned temperature (Haarnoja et al., 2018, arXiv:1812.05905), for one
agent.

The backbone of the paper's Algorithm 3 on the robots, with its table of SAC hyper-parameters as
defaults. `jax.vmap` makes a population, `jax.lax.scan` many updates in one call. With α the
temperature, d the terminated flag, and actions ã ~ π(·|s) drawn by the reparametrisation of
`networks.squashed_gaussian`, one `update` descends, in this order,

    y    = r + γ (1 - d) (min_i Q̄_i(s', ã') - α log π(ã'|s'))
    J_Q  = E[½ Σ_i (Q_i(s, a) - y)²],        then Q̄ ← Q̄ + τ (Q - Q̄)
    J_π  = E[α log π(ã|s) - min_i Q_i(s, ã)]    with the critics just updated
    J_α  = α (H[π] - H̄)                         with H[π] = -E[log π(ã|s)], H̄ = target_entropy

Departures from the code the paper names for its SAC (github.com/seolhokim/Mujoco-Pytorch):

1. A time limit is not an end: only `terminated` stops the bootstrap, truncation does not. There
   both stop it.
2. The standard deviation depends on the observation, as in the SAC papers. There it is one free
   vector.
3. log α is learned, so that α stays positive. There α itself is.
4. The squared error of J_Q, as in the SAC papers. There the smooth L1 loss.
5. log π is exact. There an ε of 1e-3 inside the logarithm bounds it.
6. Layers start as PyTorch's `Linear` does by default. There orthogonal with zero biases.
7. Three hidden layers. There `layer_num = 3`, the paper's value too, counts the output layer: two
   hidden layers; `SACConfig(hidden_sizes=(256, 256))` gives those.
8. Rewards are taken as given. There they are multiplied by 0.1 on the way in.

Beyond both, for learners with few updates per step (docs/worlds.md), and off unless asked for:
`layer_norm`, between each hidden layer and its ReLU, as in RLPD (Ball et al., 2023,
arXiv:2302.02948); and `policy_delay` N, TD3's: actor and temperature descend at every N-th update
only, the targets follow the critics at every one. The loop counts the updates (`Agent`).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from element_rl.agents.contract import Agent, Anchor, Batch, LayerNorm, check_settings
from element_rl.agents.networks import (
    Actor,
    TwinCritics,
    adam_step,
    bootstrapped,
    chosen,
    critic_loss,
    divergence,
    lower_value,
    network_from,
    policy_parameters,
    squashed_gaussian,
)

TEMPERATURE_RATE = 3e-4  # where none is given
CRITIC_METRICS = ("critic_loss", "q_mean", "target_mean")
METRICS = (
    *CRITIC_METRICS,
    *("actor_loss", "policy_entropy", "temperature_loss", "temperature"),
)


@dataclass(frozen=True)
class SACConfig:
    """The paper's Table of SAC hyper-parameters."""

    # Units of each hidden layer (ReLU) of the actor and of both critics.
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    # Learning rate of the actor (Adam).
    actor_learning_rate: float = 3e-4
    # Learning rate of the critics (Adam).
    critic_learning_rate: float = 3e-4
    # Learning rate of the temperature (Adam); 0 holds it at its initial value. (default: 3e-4; with
    # --physics warp or jax that over --updates-per-step, times --sac.policy-delay, 0.0096 at most)
    temperature_learning_rate: float | None = None
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ by which the target critics follow the critics at each update.
    target_rate: float = 0.005
    # Temperature α at the first update, the weight of the policy's entropy; learned from there.
    initial_temperature: float = 0.2
    # Entropy H̄ of the policy, in nats, that the temperature is learned to hold.
    # (default: minus the number of action dimensions)
    target_entropy: float | None = None
    # Transitions in the batch of one update.
    batch_size: int = 128
    # Share of the batch's mean reward that is subtracted from rewards, 0 to 1: with 1 nothing is
    # paid for staying alive.
    reward_centring: float = 0.0
    # Steps taken at random before the first update.
    learn_start: int = 1_000
    # Networks whose hidden layers are normalised before their ReLU: none, the critics, or both
    # critics and actor.
    layer_norm: LayerNorm = "none"
    # Updates of the critics for each update of actor and temperature.
    policy_delay: int = 1

    def __post_init__(self) -> None:
        checks = (
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("discount", 0.0 <= self.discount <= 1.0, "between 0 and 1"),
            ("target_rate", 0.0 < self.target_rate <= 1.0, "above 0 and at most 1"),
            (
                "initial_temperature",
                self.initial_temperature > 0.0,
                "above 0 (its logarithm is learned)",
            ),
            ("batch_size", self.batch_size > 0, "at least 1"),
            ("policy_delay", self.policy_delay >= 1, "at least 1"),
            ("reward_centring", 0.0 <= self.reward_centring <= 1.0, "between 0 and 1"),
        )
        check_settings(self, checks)


def temperature_rate(config: SACConfig) -> float:
    """The learning rate of the temperature."""
    given = config.temperature_learning_rate
    return TEMPERATURE_RATE if given is None else given


class SACState(eqx.Module):
    """All that learns: a pytree of arrays only, so that vmap, buffer donation and flat files need
    no special care."""

    actor: Actor
    critics: TwinCritics
    target_critics: TwinCritics
    log_temperature: Float[Array, ""]
    actor_optimiser: PyTree[Array]
    critic_optimiser: PyTree[Array]
    temperature_optimiser: PyTree[Array]


def agent(
    config: SACConfig, observation_dim: int, action_dim: int, actor_dim: int | None = None
) -> Agent:
    """SAC behind the contract of agents. The actor sees the first `actor_dim` columns of the
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
        policy=lambda state: policy_parameters(state.actor),
        batch_size=config.batch_size,
        metric_names=METRICS,
        with_policy=with_policy,
        parts={
            "critics": ("critics", "target_critics", "critic_optimiser"),
            "temperature": ("log_temperature", "temperature_optimiser"),
        },
        policy_delay=config.policy_delay,
    )


def with_policy(state: SACState, parameters: Mapping[str, Any]) -> SACState:
    """The same agent with the actor of a stored policy."""
    return eqx.tree_at(lambda s: s.actor, state, Actor(network_from(parameters)))


# one compilation, not one per array
@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config", "actor_dim"))
def create(
    key: PRNGKeyArray,
    observation_dim: int,
    action_dim: int,
    config: SACConfig,
    actor_dim: int | None = None,
) -> SACState:
    """A fresh agent; the same key gives the same agent."""
    actor_key, critic_key = jax.random.split(key)
    seen = observation_dim if actor_dim is None else actor_dim
    norms = config.layer_norm
    actor = Actor.create(actor_key, seen, action_dim, config.hidden_sizes, norms == "both")
    critics = TwinCritics.create(
        critic_key, observation_dim, action_dim, config.hidden_sizes, norms != "none"
    )
    log_temperature = jnp.log(jnp.asarray(config.initial_temperature, jnp.float32))
    return SACState(
        actor=actor,
        critics=critics,
        # a copy: one buffer cannot be donated twice
        target_critics=jax.tree.map(jnp.copy, critics),
        log_temperature=log_temperature,
        actor_optimiser=optax.adam(config.actor_learning_rate).init(actor),
        critic_optimiser=optax.adam(config.critic_learning_rate).init(critics),
        temperature_optimiser=optax.adam(temperature_rate(config)).init(log_temperature),
    )


def act(
    state: SACState, observation: Float[Array, " O"], key: PRNGKeyArray, deterministic: bool = False
) -> Float[Array, " A"]:
    """One action in (-1, 1): drawn from the policy, or tanh of its mean. `host_policy` computes the
    same in NumPy."""
    mean, log_std = state.actor(observation[None])
    noise = jnp.zeros_like(mean) if deterministic else jax.random.normal(key, mean.shape)
    action, _ = squashed_gaussian(mean, log_std, noise)
    return action[0]


def update(
    state: SACState,
    batch: Batch,
    key: PRNGKeyArray,
    config: SACConfig,
    actor_learns: Bool[Array, ""] | None = None,
    anchor: Anchor | None = None,
) -> tuple[SACState, dict[str, Float[Array, ""]]]:
    """One gradient step of critics, target critics, actor and temperature; metrics are those of the
    losses below.

    Where `actor_learns` is false, actor and temperature stay as they are, their optimisers too;
    with a `policy_delay` they are then not computed either. An `anchor` holds the actor near a
    policy.
    """
    target_noise, policy_noise = jax.random.normal(key, (2, *batch.action.shape))

    if config.reward_centring:
        batch = batch._replace(
            reward=batch.reward - config.reward_centring * jnp.mean(batch.reward)
        )
    target = critic_target(state, batch, target_noise, config.discount)
    critic_gradient, critic_metrics = jax.grad(critic_loss, has_aux=True)(
        state.critics, batch, target
    )
    delayed = actor_learns if config.policy_delay > 1 else None
    new_state, other_metrics = descend(
        state, critic_gradient, batch, policy_noise, config, anchor, delayed
    )
    if actor_learns is not None and delayed is None:
        new_state = _holding_the_actor(new_state, state, actor_learns)
    return new_state, critic_metrics | other_metrics


def descend(
    state: SACState,
    critic_gradient: TwinCritics,
    batch: Batch,
    policy_noise: Float[Array, "B A"],
    config: SACConfig,
    anchor: Anchor | None = None,
    actor_learns: Bool[Array, ""] | None = None,  # None: it does
) -> tuple[SACState, dict[str, Float[Array, ""]]]:
    """One step of the critics along a gradient of their loss, whatever that is, then of all that
    follows them."""
    critics, critic_optimiser = adam_step(
        critic_gradient, state.critic_optimiser, state.critics, config.critic_learning_rate
    )
    target_critics = optax.incremental_update(critics, state.target_critics, config.target_rate)
    state = dataclasses.replace(
        state, critics=critics, target_critics=target_critics, critic_optimiser=critic_optimiser
    )
    if actor_learns is None:
        return _actor_follows(state, batch, policy_noise, config, anchor)

    def follows() -> tuple[SACState, dict[str, Float[Array, ""]]]:
        return _actor_follows(state, batch, policy_noise, config, anchor)

    def waits() -> tuple[SACState, dict[str, Float[Array, ""]]]:
        return state, dict.fromkeys(METRICS[len(CRITIC_METRICS) :], jnp.asarray(jnp.nan))

    return jax.lax.cond(actor_learns, follows, waits)


def _actor_follows(
    state: SACState,
    batch: Batch,
    policy_noise: Float[Array, "B A"],
    config: SACConfig,
    anchor: Anchor | None,
) -> tuple[SACState, dict[str, Float[Array, ""]]]:
    """One step of the actor with the critics as they are, and of the temperature."""
    temperature = jnp.exp(state.log_temperature)
    actor_gradient, actor_metrics = jax.grad(actor_loss, has_aux=True)(
        state.actor, state.critics, temperature, batch.observation, policy_noise, anchor
    )
    actor, actor_optimiser = adam_step(
        actor_gradient, state.actor_optimiser, state.actor, config.actor_learning_rate
    )

    target_entropy = (
        -float(batch.action.shape[-1]) if config.target_entropy is None else config.target_entropy
    )
    temperature_gradient, temperature_metrics = jax.grad(temperature_loss, has_aux=True)(
        state.log_temperature, actor_metrics["policy_entropy"], target_entropy
    )
    log_temperature, temperature_optimiser = adam_step(
        temperature_gradient,
        state.temperature_optimiser,
        state.log_temperature,
        temperature_rate(config),
    )

    new_state = dataclasses.replace(
        state,
        actor=actor,
        actor_optimiser=actor_optimiser,
        log_temperature=log_temperature,
        temperature_optimiser=temperature_optimiser,
    )
    return new_state, actor_metrics | temperature_metrics


def _holding_the_actor(new: SACState, old: SACState, actor_learns: Bool[Array, ""]) -> SACState:
    """The new critics, and the old actor and temperature unless the actor learns."""
    fields = ("actor", "actor_optimiser", "log_temperature", "temperature_optimiser")
    held = {name: chosen(actor_learns, getattr(new, name), getattr(old, name)) for name in fields}
    return dataclasses.replace(new, **held)


def critic_target(
    state: SACState, batch: Batch, noise: Float[Array, "B A"], discount: float, soft: bool = True
) -> Float[Array, " B"]:
    """y = r + γ (1 - d) (min_i Q̄_i(s', ã') - α log π(ã'|s')).

    Not `soft`: without the term of the policy's entropy, α log π.
    """
    next_action, next_log_probability = squashed_gaussian(
        *state.actor(batch.next_observation), noise
    )
    next_q = jnp.min(state.target_critics(batch.next_observation, next_action), axis=0)
    next_value = next_q - jnp.exp(state.log_temperature) * next_log_probability if soft else next_q
    return bootstrapped(batch.reward, batch.terminated, next_value, discount)


def actor_loss(
    actor: Actor,
    critics: TwinCritics,
    temperature: Float[Array, ""],
    observation: Float[Array, "B O"],
    noise: Float[Array, "B A"],
    anchor: Anchor | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J_π = E[α log π(ã|s) - min_i Q_i(s, ã)], through the sampled action; differentiate with
    respect to the actor only.

    With an anchor π_0 of weight w there is w E|Q| E[KL(π ‖ π_0)] more to pay. The factor E|Q|, a
    constant here, gives the divergence the unit of the values: a weight means the same for rewards
    of any size.
    """
    action, log_probability = squashed_gaussian(*actor(observation), noise)
    q = lower_value(critics(observation, action))
    loss = jnp.mean(temperature * log_probability - q)
    if anchor is not None:
        unit = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
        loss += anchor.weight * unit * jnp.mean(divergence(actor, anchor.actor, observation))
    return loss, {"actor_loss": loss, "policy_entropy": -jnp.mean(log_probability)}


def temperature_loss(
    log_temperature: Float[Array, ""], policy_entropy: Float[Array, ""], target_entropy: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J_α = α (H[π] - H̄): a policy more random than the target lowers α, a less random one raises
    it."""
    temperature = jnp.exp(log_temperature)
    loss = temperature * (policy_entropy - target_entropy)
    return loss, {"temperature_loss": loss, "temperature": temperature}
