"""The network of PPO: a policy and values, of vectors or frames, with a memory or without.

    vectors       policy 64 × 64 tanh → A        values 64 × 64 tanh → S       nothing is shared
    with memory   64 × 64 tanh → LSTM → policy and values
    frames        A3C's four convolutions → 512 ReLU (with memory: → LSTM) → policy and values

The policy is softmax(outputs) of a choice, or a Gaussian whose mean is the outputs and whose log σ
is one number per action, the same everywhere (it is there, or not: that says which). Values are S
numbers, one for each stream of rewards (`ppo.Stream`).

The frames of this library are single ones of 84 × 84 grey pixels. For them the convolutions of
`a3c` are taken, not those of Mnih et al. (2015), which were made for stacks of four: both agents
then see the same, one host program serves both, and 512 units read 1,152 features instead of 3,136,
a third of the weights, in as many multiplications.

Weights start orthogonal, with gain √2, of the policy's last layer 0.01 and of the values' 1, as in
Huang et al. (2022); biases and log σ at 0.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from element_rl.agents.a3c import KERNEL, convolved

HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = 2**0.5, 0.01, 1.0


class Layers(eqx.Module):
    """Weights [in, out] and biases [out] of linear layers, one after the other; of none, nothing is
    computed."""

    weights: tuple[Float[Array, "..."], ...] = ()
    biases: tuple[Float[Array, "..."], ...] = ()

    @staticmethod
    def create(key: PRNGKeyArray, sizes: Sequence[int], gains: Sequence[float]) -> "Layers":
        layers = list(zip(jax.random.split(key, len(gains)), pairwise(sizes), gains, strict=True))
        return Layers(
            tuple(_orthogonal(layer_key, shape, gain) for layer_key, shape, gain in layers),
            tuple(jnp.zeros(outputs) for _, (_, outputs), _ in layers),
        )


class Outputs(NamedTuple):
    """What the network says of T steps of B environments."""

    policy: Float[Array, "T B A"]  # logits of a choice, or means
    values: Float[Array, "T B S"]
    memories: Float[Array, "T B 2 H"]  # after each step; H = 0 without one


class PPONetwork(eqx.Module):
    """A pytree of arrays and nothing else; what is not there is empty."""

    convolutions: Layers  # matrices [9·in, out], as `host_a3c` uses them too
    trunk: Layers  # what policy and values share
    lstm: Layers  # weights of inputs and hidden state, and one bias; or nothing
    policy: Layers
    value: Layers
    log_std: Float[Array, " A"] | None  # None: a choice

    @property
    def memory_size(self) -> int:
        """Units of the LSTM; 0 without one."""
        return self.lstm.weights[1].shape[0] if self.lstm.weights else 0

    def __call__(
        self,
        observation: Shaped[Array, "T B *O"],
        begins: Bool[Array, "T B"],
        memory: Float[Array, "B 2 H"],
    ) -> Outputs:
        """Consecutive steps; the memory is forgotten where an episode begins."""
        features = self._features(observation)
        memories = jnp.zeros((*features.shape[:2], 2, 0))
        if self.memory_size:
            features, memories = self._remembered(features, begins, memory)
        policy, values = (
            _through(layers, features, jnp.tanh) for layers in (self.policy, self.value)
        )
        return Outputs(policy, values, memories)

    def _features(self, observation: Shaped[Array, "T B *O"]) -> Float[Array, "T B F"]:
        steps, environments, *shape = observation.shape
        if not self.convolutions.weights:
            seen = observation.astype(jnp.float32)
            return _through(self.trunk, seen, jnp.tanh, last=True)
        images = observation.reshape(-1, *shape)[..., None].astype(jnp.float32) / 255.0
        for weight, bias in zip(*_pairs(self.convolutions), strict=True):
            images = jax.nn.relu(convolved(images, weight) + bias[None, None, None])
        return _through(self.trunk, images.reshape(steps, environments, -1), jax.nn.relu, last=True)

    def _remembered(
        self,
        features: Float[Array, "T B F"],
        begins: Bool[Array, "T B"],
        memory: Float[Array, "B 2 H"],
    ) -> tuple[Float[Array, "T B H"], Float[Array, "T B 2 H"]]:
        """The LSTM's hidden states, and its whole state after each step."""
        inputs, hidden_weight = self.lstm.weights
        projected = features @ inputs + self.lstm.biases[0][None, None]

        def step(
            before: Float[Array, "B 2 H"], now: tuple[Float[Array, "B G"], Bool[Array, " B"]]
        ) -> tuple[Float[Array, "B 2 H"], Float[Array, "B 2 H"]]:
            gates, begins = now
            before = jnp.where(begins[:, None, None], 0.0, before)
            enter, forget, candidate, leave = jnp.split(
                gates + before[:, 0] @ hidden_weight, 4, axis=-1
            )
            cell = jax.nn.sigmoid(forget) * before[:, 1]
            cell += jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            after = jnp.stack([jax.nn.sigmoid(leave) * jnp.tanh(cell), cell], axis=1)
            return after, after

        _, memories = jax.lax.scan(step, memory, (projected, begins))
        return memories[:, :, 0], memories


class NetworkShape(NamedTuple):
    """What decides the arrays of a network."""

    observation_shape: tuple[int, ...]  # (O,) of vectors, (height, width) of frames
    actions: int  # coordinates of a Box, or how many choices
    chooses: bool
    streams: int  # of rewards, each with a value
    hidden_sizes: tuple[int, ...]  # of vectors
    channels: tuple[int, ...]  # of frames' convolutions
    frame_units: int  # of the layer after them
    memory_size: int  # units of the LSTM; 0: none


def create(key: PRNGKeyArray, shape: NetworkShape) -> PPONetwork:
    """A network as it begins."""
    conv_key, trunk_key, lstm_key, policy_key, value_key = jax.random.split(key, 5)
    frames = len(shape.observation_shape) > 1
    convolutions, trunk, own = Layers(), Layers(), shape.hidden_sizes
    inputs = shape.observation_shape[0]
    if frames:
        convolutions, inputs = _convolutions(conv_key, shape)
    shared = (shape.frame_units,) if frames else shape.hidden_sizes
    if frames and shape.memory_size:
        shared = ()  # the LSTM reads the convolutions, as A3C's does
    if frames or shape.memory_size:
        trunk = Layers.create(trunk_key, (inputs, *shared), [HIDDEN_GAIN] * len(shared))
        inputs, own = (inputs, *shared)[-1], ()
    lstm = Layers()
    if shape.memory_size:
        units, keys = shape.memory_size, jax.random.split(lstm_key)
        weights = (
            _orthogonal(keys[0], (inputs, 4 * units), 1.0),
            _orthogonal(keys[1], (units, 4 * units), 1.0),
        )
        lstm, inputs = Layers(weights, (jnp.zeros(4 * units),)), units
    heads = (
        Layers.create(head_key, (inputs, *own, outputs), [HIDDEN_GAIN] * len(own) + [gain])
        for head_key, outputs, gain in (
            (policy_key, shape.actions, POLICY_GAIN),
            (value_key, shape.streams, VALUE_GAIN),
        )
    )
    log_std = None if shape.chooses else jnp.zeros(shape.actions)
    return PPONetwork(convolutions, trunk, lstm, *heads, log_std)


PARTS = ("trunk", "policy", "value")


def policy_parameters(network: PPONetwork) -> dict[str, Array]:
    """Flat names, for `host_ppo`, for worker processes and for files."""
    parameters = _flat("conv", network.convolutions)
    for part in PARTS:
        parameters |= _flat(part, getattr(network, part))
    if network.memory_size:
        names = ("lstm_input", "lstm_hidden", "lstm_bias")
        parameters |= dict(zip(names, network.lstm.weights + network.lstm.biases, strict=True))
    return parameters | ({} if network.log_std is None else {"log_std": network.log_std})


def network_of(parameters: Mapping[str, Any]) -> PPONetwork:
    """The network that `policy_parameters` took apart."""
    given = {name: jnp.array(array) for name, array in parameters.items()}
    lstm = Layers()
    if "lstm_hidden" in given:
        lstm = Layers((given["lstm_input"], given["lstm_hidden"]), (given["lstm_bias"],))
    trunk, policy, value = (_layers(part, given) for part in PARTS)
    return PPONetwork(_layers("conv", given), trunk, lstm, policy, value, given.get("log_std"))


def _flat(name: str, layers: Layers) -> dict[str, Array]:
    parameters = {f"{name}_weight_{i}": weight for i, weight in enumerate(layers.weights)}
    return parameters | {f"{name}_bias_{i}": bias for i, bias in enumerate(layers.biases)}


def _layers(name: str, parameters: Mapping[str, Array]) -> Layers:
    count = range(sum(each.startswith(f"{name}_weight_") for each in parameters))
    return Layers(
        tuple(parameters[f"{name}_weight_{i}"] for i in count),
        tuple(parameters[f"{name}_bias_{i}"] for i in count),
    )


def _through(
    layers: Layers, inputs: Float[Array, "T B I"], activation: Any, last: bool = False
) -> Float[Array, "T B Y"]:
    """Linear layers with the activation between them, and after the last where that is said."""
    hidden, count = inputs, len(layers.weights)
    for i, (weight, bias) in enumerate(zip(*_pairs(layers), strict=True)):
        hidden = hidden @ weight + bias[None, None]
        hidden = activation(hidden) if last or i < count - 1 else hidden
    return hidden


def _convolutions(key: PRNGKeyArray, shape: NetworkShape) -> tuple[Layers, int]:
    """And how many features they leave of a frame."""
    (height, width), inputs, weights = shape.observation_shape, 1, []
    for layer_key, outputs in zip(
        jax.random.split(key, len(shape.channels)), shape.channels, strict=True
    ):
        weights.append(_orthogonal(layer_key, (KERNEL**2 * inputs, outputs), HIDDEN_GAIN))
        height, width, inputs = (height + 1) // 2, (width + 1) // 2, outputs
    biases = tuple(jnp.zeros(outputs) for outputs in shape.channels)
    return Layers(tuple(weights), biases), height * width * inputs


def _orthogonal(key: PRNGKeyArray, shape: tuple[int, int], gain: float) -> Float[Array, "I Y"]:
    return jax.nn.initializers.orthogonal(gain)(key, shape)


def _pairs(layers: Layers) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    return layers.weights, layers.biases
