"""PPO's network in NumPy, for acting in processes without JAX; this module never imports it.

It computes what `ppo_network.PPONetwork` computes, from the flat arrays of
`ppo_network.policy_parameters`, one step of B environments at a time: a layer is one matrix product
for all of them. A stored policy says by its arrays what it is:

    conv_weight_i [9·in, out], …      convolutions of frames, ReLU
    trunk_weight_i, …                 layers that policy and values share; ReLU after convolutions,
                                      tanh on vectors
    lstm_input, lstm_hidden, …        an LSTM; without it the memory has no units
    policy_weight_i, …                the policy's own layers, tanh between them
    value_weight_i, …                 the values'
    log_std [A]                       where it is there, outputs are the mean of a Gaussian; where
                                      not, the logits of a choice
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from element_rl.acting.host_a3c import features

Parameters = Mapping[str, np.ndarray]
Array = np.ndarray


class Said(NamedTuple):
    """What the network says at one step of B environments."""

    policy: Float[Array, "B A"]
    values: Float[Array, "B S"]
    memory: Float[Array, "B 2 H"]  # after the step


def is_ppo(parameters: Parameters) -> bool:
    """Whether a stored policy is PPO's."""
    return "policy_weight_0" in parameters


def chooses(parameters: Parameters) -> bool:
    """Whether a stored policy of PPO is one of choices."""
    return "log_std" not in parameters


def policy_shapes(population: Parameters) -> tuple[int | None, int]:
    """Of stored policies [P, ...]: how wide observations are, None of frames, and actions."""
    heads = [name for name in population if name.startswith("policy_bias_")]
    seen = None
    if "conv_weight_0" not in population:
        first = "trunk_weight_0" if "trunk_weight_0" in population else "policy_weight_0"
        seen = population[first].shape[1]
    return seen, population[max(heads)].shape[1]


def memory_units(parameters: Parameters) -> int:
    """Units of its LSTM; 0 without one."""
    return len(parameters["lstm_hidden"]) if "lstm_hidden" in parameters else 0


def said(
    parameters: Parameters,
    observations: Shaped[Array, "B ..."],
    begins: Bool[Array, " B"],
    memory: Float[Array, "B 2 H"],
) -> Said:
    """One step; the memory is forgotten where an episode begins."""
    hidden = _seen(parameters, observations)
    if memory_units(parameters):
        memory = _remembered(parameters, hidden, begins, memory)
        hidden = memory[:, 0]
    policy, values = (_through(parameters, part, hidden, np.tanh) for part in ("policy", "value"))
    return Said(policy, values, memory)


def drawn(
    parameters: Parameters, policy: Float[Array, "B A"], noise: Float[Array, "B N"]
) -> Int[Array, " B"] | Float[Array, "B A"]:
    """Actions drawn from the policy: choices by one number each that is uniform in [0, 1), those of
    a Box by standard normal ones, unclipped."""
    if not chooses(parameters):
        return policy + np.exp(parameters["log_std"]) * noise.astype(np.float32, copy=False)
    weights = np.exp((policy - policy.max(axis=1, keepdims=True)).astype(np.float64))
    sums = np.cumsum(weights, axis=1)
    # never beyond the last action: rounding may leave the sum below 1
    reached = np.sum(sums <= noise[:, :1] * sums[:, -1:], axis=1)
    return np.minimum(reached, policy.shape[1] - 1).astype(np.int32)


def likeliest(
    parameters: Parameters, policy: Float[Array, "B A"]
) -> Int[Array, " B"] | Float[Array, "B A"]:
    """The likeliest choices, or the means."""
    return np.argmax(policy, axis=1).astype(np.int32) if chooses(parameters) else policy


def in_bounds(action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """What the environment is stepped with, on the scale of its bounds; choices are as they are."""
    if np.issubdtype(action.dtype, np.integer):
        return action
    if not np.isfinite(action).all():
        raise ValueError(
            "the policy's action is no finite number: what it learned from has diverged; choose a "
            "smaller learning rate or a smaller scale of the reward"
        )
    return np.minimum(np.maximum(action, -1.0), 1.0)


def _seen(parameters: Parameters, observations: Shaped[Array, "B ..."]) -> Float[Array, "B F"]:
    """What policy and values share."""
    if "conv_weight_0" not in parameters:
        return _through(parameters, "trunk", observations.astype(np.float32), np.tanh, last=True)
    read = np.stack([features(parameters, frame) for frame in observations])
    return _through(parameters, "trunk", read, _relu, last=True)


def _remembered(
    parameters: Parameters,
    features: Float[Array, "B F"],
    begins: Bool[Array, " B"],
    memory: Float[Array, "B 2 H"],
) -> Float[Array, "B 2 H"]:
    before = np.where(begins[:, None, None], np.float32(0.0), memory)
    gates = features @ parameters["lstm_input"] + before[:, 0] @ parameters["lstm_hidden"]
    enter, forget, candidate, leave = np.split(gates + parameters["lstm_bias"], 4, axis=1)
    cell = _sigmoid(forget) * before[:, 1] + _sigmoid(enter) * np.tanh(candidate)
    return np.stack([_sigmoid(leave) * np.tanh(cell), cell], axis=1)


def _through(
    parameters: Parameters,
    part: str,
    inputs: Float[Array, "B I"],
    activation: Callable[[Array], Array],
    last: bool = False,
) -> Float[Array, "B Y"]:
    """The layers of one part, with the activation between them, and after the last where that is
    said."""
    hidden, layer = inputs, 0
    while f"{part}_weight_{layer}" in parameters:
        hidden = hidden @ parameters[f"{part}_weight_{layer}"] + parameters[f"{part}_bias_{layer}"]
        layer += 1
        if last or f"{part}_weight_{layer}" in parameters:
            hidden = activation(hidden)
    return hidden


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0.0))


def _sigmoid(x: Array) -> Array:
    return np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0))  # overflows nowhere
