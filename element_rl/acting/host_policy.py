"""Stored policies in NumPy, for acting on the host while the accelerator learns; this module never
imports JAX.

A stored policy says by its arrays how to act with it:

    weight_i [in, out], bias_i [out]      layers with ReLU between them
    exploration_noise []                  where it is there, σ of a policy μ = tanh(outputs) (TD3):
                                          clip(μ + σ·noise, -1, 1)
                                          where not, outputs are μ and log σ of a Gaussian (SAC):
                                          tanh(μ + σ·noise)
    place_centre [2], place_unit [2]      where they are there, the policy is told where on the map
                                          the agent is (`--tell-position both`): its input is the
                                          observation ⊕ (position − centre) / unit

This computes what `sac.act` and `td3.act` compute, in a few small matrix-vector products (about 20
microseconds for 3×256 units). Set OPENBLAS_NUM_THREADS=1 in processes that run it side by side:
products this small gain nothing from threads.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

# Bounds of log σ, as in the SAC papers. Clipped, not squashed: between the bounds the policy is
# then exactly the Gaussian the network says, and an untrained network starts near σ = 1, in the
# middle of what is useful. (A tanh rescaled to these bounds would start at log σ = -9, a policy
# that does not explore.)
LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0


def policy_action(
    parameters: Mapping[str, np.ndarray],
    observation: Float[np.ndarray, " O"],
    noise: Float[np.ndarray, " A"],
) -> Float[np.ndarray, " A"]:
    """The action of one agent's stored policy in float32; noise ~ N(0, 1), or zeros for the
    deterministic action. A policy that is told its place takes the observation `with_place`."""
    hidden = observation.astype(np.float32, copy=False)
    num_layers = count_layers(parameters)
    for i in range(num_layers):
        hidden = hidden @ parameters[f"weight_{i}"]
        hidden += parameters[f"bias_{i}"]
        if i < num_layers - 1:
            np.maximum(hidden, 0.0, out=hidden)
    noise = noise.astype(np.float32, copy=False)
    deviation = parameters.get("exploration_noise")
    if deviation is not None:
        return np.minimum(np.maximum(np.tanh(hidden) + deviation * noise, -1.0), 1.0)
    # Slices and minimum/maximum: np.split and np.clip would take longer than a whole layer.
    action_dim = hidden.shape[0] // 2
    std = np.exp(np.minimum(np.maximum(hidden[action_dim:], LOG_STD_MIN), LOG_STD_MAX))
    return np.tanh(hidden[:action_dim] + std * noise)


def mean_action(
    parameters: Mapping[str, np.ndarray],
    observation: Float[np.ndarray, " O"],
    noise: Float[np.ndarray, " A"],
) -> Float[np.ndarray, " A"]:
    """The policy's action without its noise."""
    return policy_action(parameters, observation, np.zeros_like(noise))


def count_layers(parameters: Mapping[str, Any]) -> int:
    """Layers of a stored policy."""
    return (len(parameters) - ("exploration_noise" in parameters)) // 2 - is_told(parameters)


def is_told(parameters: Mapping[str, Any]) -> bool:
    """Whether a stored policy is told where the agent is, beside what it observes."""
    return "place_centre" in parameters


def with_place(
    parameters: Mapping[str, np.ndarray],
    observation: Float[np.ndarray, " O"],
    position: Float[np.ndarray, " C"],
) -> Float[np.ndarray, " I"]:
    """The input of a policy that is told its place, in float32."""
    place = (position[:2] - parameters["place_centre"]) / parameters["place_unit"]
    return np.concatenate([observation, place], dtype=np.float32)


def policy_widths(policy: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Of stored policies [P, ...]: how wide observations, hidden layers and actions are."""
    widths = [policy[f"bias_{i}"].shape[1] for i in range(count_layers(policy))]
    actions = widths[-1] if "exploration_noise" in policy else widths[-1] // 2
    place = policy["place_unit"].shape[1] if is_told(policy) else 0
    return (policy["weight_0"].shape[1] - place, *widths[:-1], actions)
