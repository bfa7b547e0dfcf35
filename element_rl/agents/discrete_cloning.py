"""Behaviour cloning where actions are choices: a policy that does what the dataset did, for one
agent.

    J = E[-log π(a | s)]        π(· | s) = softmax of the network's outputs

The network is that of `discrete_cql`, for vectors or images, so that all that acts with its values
acts with this: the action of the highest output is the one that the dataset has most often at s.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.contract import Agent
from element_rl.agents.discrete_cql import DiscreteBatch, QNetwork, value_parameters
from element_rl.agents.networks import adam_step


class DiscreteCloningState(eqx.Module):
    """All that learns; arrays only."""

    policy: QNetwork
    optimiser: PyTree[Array]


def agent(
    config: CloningConfig,
    observation_shape: tuple[int, ...],
    num_actions: int,
    frame_stack: int = 1,
) -> Agent:
    """Cloning of choices behind the contract of agents."""
    return Agent(
        create=partial(
            create, observation_shape=observation_shape, num_actions=num_actions, config=config
        ),
        update=partial(update, config=config),
        policy=lambda state: value_parameters(state.policy),
        batch_size=config.batch_size,
        metric_names=("actor_loss",),
        frame_stack=frame_stack,
    )


@partial(jax.jit, static_argnames=("observation_shape", "num_actions", "config"))
def create(
    key: PRNGKeyArray, observation_shape: tuple[int, ...], num_actions: int, config: CloningConfig
) -> DiscreteCloningState:
    """A fresh agent; the same key gives the same agent."""
    policy = QNetwork.create(key, observation_shape, num_actions, config.hidden_sizes)
    return DiscreteCloningState(policy, optax.adam(config.learning_rate).init(policy))


def update(
    state: DiscreteCloningState, batch: DiscreteBatch, key: PRNGKeyArray, config: CloningConfig
) -> tuple[DiscreteCloningState, dict[str, Float[Array, ""]]]:
    """One gradient step; the key is not used, and is there because every agent's `update` takes
    one."""
    gradient, metrics = jax.grad(policy_loss, has_aux=True)(state.policy, batch)
    learned = adam_step(gradient, state.optimiser, state.policy, config.learning_rate)
    return DiscreteCloningState(*learned), metrics


def policy_loss(
    policy: QNetwork, batch: DiscreteBatch
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J = E[-log π(a | s)]."""
    outputs = policy(batch.observation)
    loss = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, batch.action))
    return loss, {"actor_loss": loss}
