"""Behaviour cloning: a policy that does what the dataset did, for one agent.

    J = E[½ ‖tanh μ(s) - a‖²]

This is the likelihood of a Gaussian of constant variance around the action tanh μ(s), so the policy
learns the mean of the actions that the dataset has at s. The likelihood of SAC's squashed Gaussian,
tanh of a Gaussian, would not do: it asks for atanh(a), which is infinite for the actions ±1 of any
policy that uses the full range, and clipping such actions lets the choice of the clip decide what
is learned from them.

The actor is SAC's, so that all that acts with a SAC policy acts with this one. Its log σ is the
lowest there is and is never learned: sampled or not, its action is tanh μ(s).
"""

from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.acting.host_policy import LOG_STD_MIN
from element_rl.agents.contract import Agent, Batch, check_settings
from element_rl.agents.networks import Actor, adam_step, policy_parameters


@dataclass(frozen=True)
class CloningConfig:
    """The sizes of the other agents; learning rate of SAC's actor."""

    # Units of each hidden layer (ReLU) of the policy.
    hidden_sizes: tuple[int, ...] = (256, 256, 256)
    # Learning rate (Adam).
    learning_rate: float = 3e-4
    # Transitions in the batch of one update.
    batch_size: int = 256

    def __post_init__(self) -> None:
        checks = (
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("learning_rate", self.learning_rate > 0.0, "above 0"),
            ("batch_size", self.batch_size > 0, "at least 1"),
        )
        check_settings(self, checks)


class CloningState(eqx.Module):
    """All that learns; arrays only."""

    actor: Actor
    optimiser: PyTree[Array]


def agent(config: CloningConfig, observation_dim: int, action_dim: int) -> Agent:
    """Behaviour cloning behind the contract of agents."""
    return Agent(
        create=partial(
            create, observation_dim=observation_dim, action_dim=action_dim, config=config
        ),
        update=partial(update, config=config),
        policy=lambda state: policy_parameters(state.actor),
        batch_size=config.batch_size,
        metric_names=("actor_loss",),
    )


@partial(jax.jit, static_argnames=("observation_dim", "action_dim", "config"))
def create(
    key: PRNGKeyArray, observation_dim: int, action_dim: int, config: CloningConfig
) -> CloningState:
    """A fresh agent; the same key gives the same agent."""
    actor = Actor.create(key, observation_dim, action_dim, config.hidden_sizes)
    network = actor.network
    weight = network.weights[-1].at[:, action_dim:].set(0.0)
    bias = network.biases[-1].at[action_dim:].set(LOG_STD_MIN)
    actor = eqx.tree_at(
        lambda a: (a.network.weights[-1], a.network.biases[-1]), actor, (weight, bias)
    )
    return CloningState(actor, optax.adam(config.learning_rate).init(actor))


def update(
    state: CloningState, batch: Batch, key: PRNGKeyArray, config: CloningConfig
) -> tuple[CloningState, dict[str, Float[Array, ""]]]:
    """One gradient step; the key is not used, and is there because every agent's `update` takes
    one."""
    gradient, metrics = jax.grad(actor_loss, has_aux=True)(state.actor, batch)
    learned = adam_step(gradient, state.optimiser, state.actor, config.learning_rate)
    return CloningState(*learned), metrics


def actor_loss(actor: Actor, batch: Batch) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J = E[½ ‖tanh μ(s) - a‖²]; no gradient reaches log σ."""
    mean, _ = actor(batch.observation)
    loss = 0.5 * jnp.mean(jnp.sum((jnp.tanh(mean) - batch.action) ** 2, axis=-1))
    return loss, {"actor_loss": loss}
