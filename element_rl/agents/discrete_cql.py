"""Conservative Q-Learning for a finite number of actions (Kumar et al., 2020, arXiv:2006.04779),
for one agent.

Double Q-learning (van Hasselt et al., 2016, arXiv:1509.06461) plus the conservative gap. With d the
terminated flag, a the dataset's action and w = conservative_weight, one `update` descends

    y = r + γ (1 - d) Q̄(s', argmax_a' Q(s', a'))
    J = E[h(Q(s, a) - y)] + w E[log Σ_a' exp Q(s, a') - Q(s, a)]        then Q̄ ← Q̄ + τ (Q - Q̄)

with Huber's loss h(e) = ½ e² up to |e| = 1 and |e| - ½ beyond, as DQN has it, so that one large
error does not decide a step. The sum over actions is exact: nothing is sampled.

Vectors go through an MLP. Images [C, H, W], uint8, are divided by 255 and go through four
convolutions (32 filters of 3 × 3, stride 2: those of the paper's agent for Mario), then through the
MLP.

Departures from d3rlpy's discrete CQL: the target network follows slowly at every update and is not
replaced every 8,000; the learning rate is 3e-4 and the batch 256, as for the continuous one; there
it is 6.25e-5 and 32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from element_rl.acting.host_values import KERNEL, STRIDE
from element_rl.agents.contract import Agent, check_settings
from element_rl.agents.networks import adam_step, bootstrapped
from element_rl.mlp import MLP

METRICS = ("critic_loss", "q_mean", "target_mean", "conservative_gap")

FILTERS, CONVOLUTIONS = 32, 4


@dataclass(frozen=True)
class DiscreteCQLConfig:
    """d3rlpy's weight; the other settings as of the continuous agent."""

    # Weight w of the conservative term, which lowers the values of actions that are not in the
    # data; 0 is double Q-learning on the dataset.
    conservative_weight: float = 1.0
    # Units of each hidden layer (ReLU), after the convolutions where there are any.
    hidden_sizes: tuple[int, ...] = (256, 256)
    # Learning rate (Adam).
    learning_rate: float = 3e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ by which the target network follows the network at each update.
    target_rate: float = 0.005
    # Transitions in the batch of one update.
    batch_size: int = 256

    def __post_init__(self) -> None:
        checks = (
            ("conservative_weight", self.conservative_weight >= 0.0, "0 or above"),
            ("hidden_sizes", min(self.hidden_sizes, default=0) > 0, "one or more positive widths"),
            ("discount", 0.0 <= self.discount <= 1.0, "between 0 and 1"),
            ("target_rate", 0.0 < self.target_rate <= 1.0, "above 0 and at most 1"),
            ("batch_size", self.batch_size > 0, "at least 1"),
        )
        check_settings(self, checks)


Observations = Float[Array, "B O"] | UInt8[Array, "B C H W"]


class DiscreteBatch(NamedTuple):
    """Transitions to learn from; `terminated` where the task ended, not where time ran out."""

    observation: Observations
    action: Int[Array, " B"]
    reward: Float[Array, " B"]
    next_observation: Observations
    terminated: Float[Array, " B"] | Bool[Array, " B"]


class QNetwork(eqx.Module):
    """The value of every action; arrays only. `kernels[i]` is [out, in, 3, 3]; there are none for
    vectors."""

    kernels: tuple[Float[Array, "..."], ...]
    kernel_biases: tuple[Float[Array, "..."], ...]
    network: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray,
        observation_shape: Sequence[int],
        num_actions: int,
        hidden_sizes: Sequence[int],
    ) -> "QNetwork":
        convolution_key, network_key = jax.random.split(key)
        if len(observation_shape) == 1:
            return QNetwork(
                (), (), MLP.create(network_key, (observation_shape[0], *hidden_sizes, num_actions))
            )
        channels, height, width = observation_shape
        kernels, biases = [], []
        for layer_key in jax.random.split(convolution_key, CONVOLUTIONS):
            bound = (channels * KERNEL**2) ** -0.5  # PyTorch's default, as in `mlp`
            draws = jax.random.uniform(
                layer_key, (FILTERS, channels * KERNEL**2 + 1), minval=-bound, maxval=bound
            )
            kernels.append(draws[:, :-1].reshape(FILTERS, channels, KERNEL, KERNEL))
            biases.append(draws[:, -1])
            channels, height, width = FILTERS, -(-height // STRIDE), -(-width // STRIDE)
        sizes = (FILTERS * height * width, *hidden_sizes, num_actions)
        return QNetwork(tuple(kernels), tuple(biases), MLP.create(network_key, sizes))

    def __call__(self, observation: Observations) -> Float[Array, "B A"]:
        if not self.kernels:
            return self.network(observation)
        hidden = jnp.moveaxis(observation.astype(jnp.float32) / 255.0, 1, -1)  # [B, H, W, C]
        for kernel, bias in zip(self.kernels, self.kernel_biases, strict=True):
            hidden = jax.nn.relu(_convolved(hidden, kernel) + bias[None, None, None])
        return self.network(jnp.moveaxis(hidden, -1, 1).reshape(hidden.shape[0], -1))


def _convolved(
    images: Float[Array, "B H W C"], kernel: Float[Array, "F C k k"]
) -> Float[Array, "B H2 W2 F"]:
    """As one matrix product over the windows: XLA's convolution is slow on a CPU within a loop, and
    for populations everywhere.

    (On two busy cores an update of one agent on 16 images took 0.6 s in a loop with XLA's and 0.1 s
    outside of one; on 32 images 0.16 s with this, in a loop or not, and of three agents 0.8 s,
    against 1.5 s with XLA's outside of a loop.)
    """
    _, height, width, _ = images.shape
    rows, columns, margin = -(-height // STRIDE), -(-width // STRIDE), KERNEL // 2
    padded = jnp.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    windows = [
        padded[:, i : i + STRIDE * rows - 1 : STRIDE, j : j + STRIDE * columns - 1 : STRIDE]
        for i in range(KERNEL)
        for j in range(KERNEL)
    ]
    # in the order of the windows
    weight = jnp.transpose(kernel, (2, 3, 1, 0)).reshape(-1, kernel.shape[0])
    return jnp.concatenate(windows, axis=-1) @ weight


class DiscreteCQLState(eqx.Module):
    """All that learns; arrays only."""

    values: QNetwork
    target_values: QNetwork
    optimiser: PyTree[Array]


def agent(
    config: DiscreteCQLConfig,
    observation_shape: tuple[int, ...],
    num_actions: int,
    frame_stack: int = 1,
) -> Agent:
    """CQL of choices behind the contract of agents."""
    return Agent(
        create=partial(
            create, observation_shape=observation_shape, num_actions=num_actions, config=config
        ),
        update=partial(update, config=config),
        policy=lambda state: value_parameters(state.values),
        batch_size=config.batch_size,
        metric_names=METRICS,
        frame_stack=frame_stack,
    )


@partial(jax.jit, static_argnames=("observation_shape", "num_actions", "config"))
def create(
    key: PRNGKeyArray,
    observation_shape: tuple[int, ...],
    num_actions: int,
    config: DiscreteCQLConfig,
) -> DiscreteCQLState:
    """A fresh agent; the same key gives the same agent."""
    values = QNetwork.create(key, observation_shape, num_actions, config.hidden_sizes)
    # A copy: one buffer cannot be donated twice.
    return DiscreteCQLState(
        values, jax.tree.map(jnp.copy, values), optax.adam(config.learning_rate).init(values)
    )


def act(
    values: QNetwork, observation: Observations, key: PRNGKeyArray, softness: float = 0.0
) -> Int[Array, " B"]:
    """The action of the highest value; with a `softness` c above 0 one drawn in proportion to exp(Q
    / c)."""
    q = values(observation)
    return (
        jnp.argmax(q, axis=-1)
        if softness == 0.0
        else jax.random.categorical(key, q / softness, axis=-1)
    )


def update(
    state: DiscreteCQLState, batch: DiscreteBatch, key: PRNGKeyArray, config: DiscreteCQLConfig
) -> tuple[DiscreteCQLState, dict[str, Float[Array, ""]]]:
    """One gradient step; the key is not used, and is there because every agent's `update` takes
    one."""
    target = value_target(state, batch, config.discount)
    gradient, metrics = jax.grad(value_loss, has_aux=True)(
        state.values, batch, target, config.conservative_weight
    )
    values, optimiser = adam_step(gradient, state.optimiser, state.values, config.learning_rate)
    target_values = optax.incremental_update(values, state.target_values, config.target_rate)
    return DiscreteCQLState(values, target_values, optimiser), metrics


def value_parameters(values: QNetwork) -> dict[str, Array]:
    """Flat names for `host_values` and for files: weight_i, bias_i, kernel_i, kernel_bias_i; a
    population keeps its P."""
    named = {"weight": values.network.weights, "bias": values.network.biases}
    named |= {"kernel": values.kernels, "kernel_bias": values.kernel_biases}
    return {
        f"{name}_{i}": array for name, arrays in named.items() for i, array in enumerate(arrays)
    }


def value_target(
    state: DiscreteCQLState, batch: DiscreteBatch, discount: float
) -> Float[Array, " B"]:
    """y = r + γ (1 - d) Q̄(s', argmax_a' Q(s', a')): the network chooses, its slow copy values the
    choice."""
    choice = jnp.argmax(state.values(batch.next_observation), axis=-1)
    next_value = _of_action(state.target_values(batch.next_observation), choice)
    return bootstrapped(batch.reward, batch.terminated, next_value, discount)


def value_loss(
    values: QNetwork, batch: DiscreteBatch, target: Float[Array, " B"], conservative_weight: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """J; the metric `critic_loss` is the loss of Q-learning alone."""
    q = values(batch.observation)
    of_data = _of_action(q, batch.action)
    loss = jnp.mean(optax.huber_loss(of_data, target))
    gap = jnp.mean(jax.nn.logsumexp(q, axis=-1) - of_data)
    metrics = {"critic_loss": loss, "q_mean": jnp.mean(of_data), "target_mean": jnp.mean(target)}
    return loss + conservative_weight * gap, metrics | {"conservative_gap": gap}


def _of_action(q: Float[Array, "B A"], action: Int[Array, " B"]) -> Float[Array, " B"]:
    return jnp.take_along_axis(q, action[:, None], axis=-1)[:, 0]
