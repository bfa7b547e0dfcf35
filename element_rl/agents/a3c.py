"""A3C with a recurrent network on images (Mnih et al., 2016), for one agent: losses, their gradient
and its application.

    features_t  four convolutions 3×3, stride 2, padding 1, 32 channels, ReLU, of frame_t / 255
                (84×84 → 6×6×32)
    h_t, c_t    LSTM cell of 512 units
    π(·|o_≤t)   softmax(actor · h_t)        V(o_≤t) = critic · h_t

For a rollout of T steps of one episode, from the LSTM state it began with:

    δ_t = r_t + γ V_{t+1} − V_t             V_T = 0 if the episode terminated there, else the value
                                            of the last frame
    A_t = δ_t + γ λ A_{t+1}                 generalised advantages (Schulman et al., 2016); A_T = 0
    loss = Σ_t [ −log π(a_t) A_t + ½ (A_t + V_t − V(o_≤t))² − 0.01 H(π_t) ] / local_steps

The sum is divided by the longest possible T, not by T: a step counts as much in a short rollout as
in a long one. V and A inside the loss are constants. The gradient is that of the parameters the
worker acted with; Adam, whose statistics all workers share, applies it to the shared parameters,
which may have moved on by then. That is what makes A3C asynchronous.

Network and settings are the paper's (its appendix, table of A3C). It leaves open how parameters
begin and whether gradients are clipped. They begin as in uvipen/Super-mario-bros-A3C-pytorch, whose
network and names of settings the paper has: Xavier's uniform for convolutions and linear layers,
±1/√512 for the LSTM, biases zero. Gradients are clipped to a norm of 0.5, as usual for advantage
actor-critics: the rewards of an explorer change while it learns, and one surprising rollout should
not undo a policy.

Every array of a rollout is padded to `local_steps`, so that one compiled program serves rollouts of
all lengths.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

KERNEL = 3  # pixels along the edge of a convolution's window; stride 2, padding 1


@dataclass(frozen=True)
class A3CConfig:
    """The learner; defaults are the paper's."""

    # Channels of each convolution.
    channels: tuple[int, ...] = (32, 32, 32, 32)
    # Units of the LSTM.
    hidden_size: int = 512
    # Most steps that a worker acts before it delivers what it saw, which is one update.
    local_steps: int = 300
    # Discount γ of future rewards.
    discount: float = 0.9
    # Decay λ of generalised advantage estimation; 1 takes whole returns.
    gae_decay: float = 1.0
    # Learning rate (Adam).
    learning_rate: float = 1e-4
    # Weight of the policy's entropy in the loss.
    entropy_weight: float = 0.01
    # Weight of the value's squared error in the loss.
    value_weight: float = 0.5
    # Largest norm of a gradient; longer ones are shortened to it.
    max_gradient_norm: float = 0.5

    def __post_init__(self) -> None:
        for name, valid, wanted in (
            (
                "channels",
                bool(self.channels) and min(self.channels, default=0) > 0,
                "one or more numbers above 0",
            ),
            ("hidden_size", self.hidden_size > 0, "above 0"),
            ("local_steps", self.local_steps > 0, "above 0"),
            ("discount", 0.0 <= self.discount < 1.0, "at least 0 and below 1"),
            ("gae_decay", 0.0 <= self.gae_decay <= 1.0, "from 0 to 1"),
            ("learning_rate", self.learning_rate > 0.0, "above 0"),
            ("max_gradient_norm", self.max_gradient_norm > 0.0, "above 0"),
        ):
            if not valid:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)}.")


class PaddedRollout(NamedTuple):
    """A rollout of `length` steps, padded to T = local_steps; what the padding holds does not
    matter."""

    frames: UInt8[Array, "frames H W"]
    actions: Int[Array, " T"]
    rewards: Float[Array, " T"]  # what is learned from: intrinsic rewards are in it already
    length: Int[Array, ""]
    # the last step ended the episode for good; a time limit or a cut does not
    terminated: Bool[Array, ""]
    lstm: Float[Array, "2 hidden"]  # hidden and cell state before the first frame


class ActorCritic(eqx.Module):
    """The network; a pytree of arrays and nothing else. Convolutions are matrices [9·in, out], as
    `host_a3c` uses them too."""

    conv_weights: tuple[Float[Array, "..."], ...]
    conv_biases: tuple[Float[Array, "..."], ...]
    lstm_input: Float[Array, "F G"]  # features → the four gates: input, forget, candidate, output
    lstm_hidden: Float[Array, "hidden G"]
    lstm_bias: Float[Array, " G"]
    head_weight: Float[Array, "hidden heads"]  # one output per action, and the value
    head_bias: Float[Array, " heads"]

    @staticmethod
    def create(
        key: PRNGKeyArray, frame_shape: tuple[int, int], num_actions: int, config: A3CConfig
    ) -> "ActorCritic":
        keys = jax.random.split(key, len(config.channels) + 4)
        height, width, inputs, convolutions = *frame_shape, 1, []
        for conv_key, outputs in zip(keys, config.channels, strict=False):
            limit = (6 / (KERNEL**2 * (inputs + outputs))) ** 0.5
            convolutions.append(_uniform(conv_key, (KERNEL**2 * inputs, outputs), limit))
            height, width, inputs = (height + 1) // 2, (width + 1) // 2, outputs
        hidden, limit = config.hidden_size, config.hidden_size**-0.5
        actor = _uniform(keys[-2], (hidden, num_actions), (6 / (hidden + num_actions)) ** 0.5)
        critic = _uniform(keys[-1], (hidden, 1), (6 / (hidden + 1)) ** 0.5)
        return ActorCritic(
            tuple(convolutions),
            tuple(jnp.zeros(outputs) for outputs in config.channels),
            _uniform(keys[-4], (height * width * inputs, 4 * hidden), limit),
            _uniform(keys[-3], (hidden, 4 * hidden), limit),
            jnp.zeros(4 * hidden),
            jnp.concatenate([actor, critic], axis=1),
            jnp.zeros(num_actions + 1),
        )

    def __call__(
        self, frames: UInt8[Array, "T H W"], lstm: Float[Array, "2 hidden"]
    ) -> tuple[Float[Array, "T A"], Float[Array, " T"]]:
        """Logarithms of the actions' probabilities, and values, of consecutive frames of one
        episode."""
        projected = self.features(frames) @ self.lstm_input + self.lstm_bias[None]

        def step(
            carry: tuple[Float[Array, " hidden"], Float[Array, " hidden"]],
            inputs: Float[Array, " G"],
        ) -> tuple[
            tuple[Float[Array, " hidden"], Float[Array, " hidden"]], Float[Array, " hidden"]
        ]:
            hidden, cell = carry
            enter, forget, candidate, leave = jnp.split(inputs + hidden @ self.lstm_hidden, 4)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), hidden

        _, hidden = jax.lax.scan(step, (lstm[0], lstm[1]), projected)
        heads = hidden @ self.head_weight + self.head_bias[None]
        return jax.nn.log_softmax(heads[:, :-1]), heads[:, -1]

    def features(self, frames: UInt8[Array, "T H W"]) -> Float[Array, "T F"]:
        """What the LSTM sees of each frame."""
        images = frames[..., None].astype(jnp.float32) / 255.0
        for weight, bias in zip(self.conv_weights, self.conv_biases, strict=True):
            images = jax.nn.relu(convolved(images, weight) + bias[None, None, None])
        return images.reshape(images.shape[0], -1)


class A3CState(NamedTuple):
    """One agent's shared parameters and the statistics of its Adam."""

    network: ActorCritic
    optimiser: optax.OptState


def create(
    key: PRNGKeyArray, frame_shape: tuple[int, int], num_actions: int, config: A3CConfig
) -> A3CState:
    """A fresh agent."""
    network = ActorCritic.create(key, frame_shape, num_actions, config)
    return A3CState(network, _optimiser(config).init(network))


@partial(jax.jit, static_argnames="config")
def update(
    state: A3CState, acted: ActorCritic, rollout: PaddedRollout, config: A3CConfig
) -> tuple[A3CState, dict[str, Float[Array, ""]]]:
    """The shared parameters after the gradient of a rollout, taken at the parameters `acted` of the
    worker that made it."""
    gradient, metrics = jax.grad(rollout_loss, has_aux=True)(acted, rollout, config)
    changes, optimiser = _optimiser(config).update(gradient, state.optimiser)
    metrics["gradient_norm"] = optax.tree.norm(gradient)
    return A3CState(eqx.apply_updates(state.network, changes), optimiser), metrics


def rollout_loss(
    network: ActorCritic, rollout: PaddedRollout, config: A3CConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Policy gradient, error of the values and entropy bonus of one rollout; means over its steps
    as metrics."""
    log_policy, values = network(rollout.frames, rollout.lstm)
    steps = jnp.arange(config.local_steps)
    mask = steps < rollout.length
    fixed_values = jax.lax.stop_gradient(values)
    advantages = generalised_advantages(
        rollout.rewards,
        fixed_values,
        rollout.length,
        rollout.terminated,
        config.discount,
        config.gae_decay,
    )
    log_policy, values = log_policy[:-1], values[:-1]
    taken = jnp.take_along_axis(log_policy, rollout.actions[:, None], axis=1)[:, 0]
    per_step = {
        "actor_loss": -taken * advantages,
        "critic_loss": (advantages + fixed_values[:-1] - values) ** 2,
        "policy_entropy": -jnp.sum(jnp.exp(log_policy) * log_policy, axis=1),
    }
    sums = {name: jnp.sum(jnp.where(mask, terms, 0.0)) for name, terms in per_step.items()}
    weighted = (
        config.value_weight * sums["critic_loss"] - config.entropy_weight * sums["policy_entropy"]
    )
    count = jnp.maximum(rollout.length, 1)
    metrics = {name: total / count for name, total in sums.items()}
    metrics["value_mean"] = jnp.sum(jnp.where(mask, values, 0.0)) / count
    return (sums["actor_loss"] + weighted) / config.local_steps, metrics


def generalised_advantages(
    rewards: Float[Array, " T"],
    values: Float[Array, " frames"],
    length: Int[Array, ""],
    terminated: Bool[Array, ""],
    discount: float,
    decay: float,
) -> Float[Array, " T"]:
    """A_t of the first `length` steps, 0 in the padding after them."""
    steps = jnp.arange(rewards.shape[0])
    following = jnp.where((steps == length - 1) & terminated, 0.0, values[1:])
    errors = jnp.where(steps < length, rewards + discount * following - values[:-1], 0.0)

    def step(
        later: Float[Array, ""], error: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        advantage = error + discount * decay * later
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros(()), errors, reverse=True)[1]


def policy_parameters(network: ActorCritic) -> dict[str, Array]:
    """Flat names, for `host_a3c`, for worker processes and for files."""
    convolutions = {f"conv_weight_{i}": weight for i, weight in enumerate(network.conv_weights)}
    convolutions |= {f"conv_bias_{i}": bias for i, bias in enumerate(network.conv_biases)}
    names = ("lstm_input", "lstm_hidden", "lstm_bias", "head_weight", "head_bias")
    return convolutions | {name: getattr(network, name) for name in names}


def network_of(parameters: dict[str, Array]) -> ActorCritic:
    """The network that `policy_parameters` took apart."""
    layers = range(sum(name.startswith("conv_weight") for name in parameters))
    given = {name: jnp.array(array) for name, array in parameters.items()}
    return ActorCritic(
        tuple(given.pop(f"conv_weight_{i}") for i in layers),
        tuple(given.pop(f"conv_bias_{i}") for i in layers),
        **given,
    )


def convolved(
    images: Float[Array, "T H W C"], weight: Float[Array, "K Y"]
) -> Float[Array, "T h w Y"]:
    kernel = weight.reshape(KERNEL, KERNEL, images.shape[-1], -1)
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=layout
    )


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], limit: float) -> Float[Array, "..."]:
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def _optimiser(config: A3CConfig) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm), optax.adam(config.learning_rate)
    )
