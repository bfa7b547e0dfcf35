"""Networks of the actor and the twin critics, the distribution the actor describes, and the steps
by which agents learn.

Networks take a batch [B, ...] of one agent; populations come from `jax.vmap` over the modules.
Every module is a pytree of arrays and of nothing else. The two critics are one network whose arrays
have a leading axis of 2: their layers run as batched products, half as many operations on an
accelerator and as fast as two networks on a CPU.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log, pi
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from element_rl.acting.host_policy import LOG_STD_MAX, LOG_STD_MIN, count_layers
from element_rl.agents.contract import Batch
from element_rl.mlp import MLP


class Actor(eqx.Module):
    """Observation → mean and log standard deviation of a Gaussian, before the tanh that bounds the
    action. Of an observation that is wider, which critics see, it takes the first columns."""

    network: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray,
        observation_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        normalised: bool = False,
    ) -> "Actor":
        sizes = (observation_dim, *hidden_sizes, 2 * action_dim)
        return Actor(MLP.create(key, sizes, normalised))

    def __call__(
        self, observation: Float[Array, "B O"]
    ) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        outputs = self.network(own_columns(self.network, observation))
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)


def own_columns(network: MLP, observation: Float[Array, "B O"]) -> Float[Array, "B I"]:
    """The columns of an observation that a network takes: all, or the first where critics are told
    more than actors."""
    return observation[:, : network.weights[0].shape[0]]


class TwinCritics(eqx.Module):
    """Two action values, of independent initialisation: arrays of `networks` have a leading axis of
    2."""

    networks: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray,
        observation_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        normalised: bool = False,
    ) -> "TwinCritics":
        sizes = (observation_dim + action_dim, *hidden_sizes, 1)
        twins = jax.vmap(lambda twin_key: MLP.create(twin_key, sizes, normalised))
        return TwinCritics(twins(jax.random.split(key)))

    def __call__(
        self, observation: Float[Array, "B O"], action: Float[Array, "B A"]
    ) -> Float[Array, "2 B"]:
        inputs = jnp.concatenate([observation, action], axis=-1)
        return jax.vmap(lambda network: network(inputs))(self.networks)[..., 0]


def squashed_gaussian(
    mean: Float[Array, "B A"], log_std: Float[Array, "B A"], noise: Float[Array, "B A"]
) -> tuple[Float[Array, "B A"], Float[Array, " B"]]:
    """Actions a = tanh(u), u = μ + σ·noise, with log π(a) = Σ_A log N(u; μ, σ) - log(1 - tanh²(u)).

    The last term is written 2·(log 2 - u - softplus(-2u)), which neither underflows nor needs an ε
    for large |u|.
    """
    pre_tanh = mean + jnp.exp(log_std) * noise
    log_gaussian = -0.5 * noise**2 - log_std - 0.5 * log(2 * pi)
    log_derivative = 2.0 * (log(2.0) - pre_tanh - jax.nn.softplus(-2.0 * pre_tanh))
    return jnp.tanh(pre_tanh), jnp.sum(log_gaussian - log_derivative, axis=-1)


def divergence(actor: Actor, other: Actor, observation: Float[Array, "B O"]) -> Float[Array, " B"]:
    """KL(π ‖ π_0) of two policies at each observation, in nats, summed over the actions.

    Of the Gaussians: both are squashed by the same tanh, which changes no divergence.
    """
    (mean, log_std), (other_mean, other_log_std) = actor(observation), other(observation)
    apart = jnp.exp(2 * log_std) + (mean - other_mean) ** 2
    return jnp.sum(
        other_log_std - log_std + 0.5 * apart * jnp.exp(-2 * other_log_std) - 0.5, axis=-1
    )


def over_population(function: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap` over the first axis; a population of one is computed without it, which is faster on a
    CPU."""

    def mapped(*arguments: Any) -> Any:
        if jax.tree.leaves(arguments)[0].shape[0] > 1:
            return jax.vmap(function)(*arguments)
        # a view; leaf[0] might copy
        single = jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), arguments)
        return jax.tree.map(lambda leaf: leaf[None], function(*single))

    return mapped


def bootstrapped(
    reward: Float[Array, " B"],
    terminated: Float[Array, " B"] | Bool[Array, " B"],
    next_value: Float[Array, " B"],
    discount: float,
) -> Float[Array, " B"]:
    """y = r + γ (1 - d) V(s'): what follows counts, unless nothing follows."""
    continues = 1.0 - terminated.astype(next_value.dtype)
    return reward + discount * continues * next_value


def critic_loss(
    critics: TwinCritics, batch: Batch, target: Float[Array, " B"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J_Q = E[½ Σ_i (Q_i(s, a) - y)²]; the target is a constant."""
    q = critics(batch.observation, batch.action)
    loss = 0.5 * jnp.mean(jnp.sum((q - target[None]) ** 2, axis=0))
    return loss, {"critic_loss": loss, "q_mean": jnp.mean(q), "target_mean": jnp.mean(target)}


def lower_value(values: Float[Array, "2 B"]) -> Float[Array, " B"]:
    """min_i Q_i, to be differentiated.

    The gradient of `jnp.min` divides by the number of entries that equal the minimum. Inside a
    larger program the compiler may compute the entries twice, with other rounding; then none
    equals it, and 0 / 0 makes the whole agent NaN. A choice has no such division.
    """
    return jnp.where(values[0] < values[1], values[0], values[1])


def adam_step(
    gradient: Any,
    optimiser_state: Any,
    parameters: Any,
    learning_rate: float | Float[Array, ""],
) -> tuple[Any, Any]:
    """The parameters one step of Adam further, and the optimiser's new state."""
    updates, optimiser_state = optax.adam(learning_rate).update(
        gradient, optimiser_state, parameters
    )
    return optax.apply_updates(parameters, updates), optimiser_state


def chosen(choice: Bool[Array, ""], new: Any, old: Any) -> Any:
    """The new tree where the choice is true, else the old one."""
    return jax.tree.map(lambda n, o: jnp.where(choice, n, o), new, old)


def policy_parameters(actor: Actor) -> dict[str, Array]:
    """The stored policy of an actor that draws its actions: the layers of its network."""
    return flat_parameters(actor.network)


def flat_parameters(network: MLP) -> dict[str, Array]:
    """Flat names for `host_policy` (and for files): weight_i [in, out], bias_i [out], and
    norm_scale_i and norm_offset_i where layers are normalised; a population keeps its leading P.

    The host multiplies observation @ weight, which reads a row-major [in, out] matrix straight
    through, so the layout the networks train in is handed over as it is.
    """
    parameters = {f"weight_{i}": weight for i, weight in enumerate(network.weights)}
    parameters |= {f"bias_{i}": bias for i, bias in enumerate(network.biases)}
    parameters |= {f"norm_scale_{i}": scale for i, scale in enumerate(network.scales)}
    return parameters | {f"norm_offset_{i}": offset for i, offset in enumerate(network.offsets)}


def network_from(parameters: Mapping[str, Any]) -> MLP:
    """The network, or the population of networks, that `flat_parameters` came from."""
    layers = range(count_layers(parameters))

    def arrays(kind: str) -> tuple[Array, ...]:
        names = (f"{kind}_{i}" for i in layers)
        return tuple(jnp.array(parameters[name]) for name in names if name in parameters)

    return MLP(*map(arrays, ("weight", "bias", "norm_scale", "norm_offset")))
