"""Stored policies in NumPy, for acting on the host while the accelerator learns; this module never
imports JAX.

A stored policy says by its arrays how to act with it:

    weight_i [in, out], bias_i [out]      layers with ReLU between them
    norm_scale_i, norm_offset_i [out]     where they are there, of each hidden layer: its layer
                                          normalisation, before the ReLU (`mlp`)
    exploration_noise [] or [A]           where it is there, σ of a policy μ = tanh(outputs) (TD3;
                                          TD3+BC, where it is 0; IQL, which learns it):
                                          clip(μ + σ·noise, -1, 1)
    exploration_rate []                   where it is there, outputs are values of a choice and ε is
                                          the share of random ones (DQN): a one-hot action
                                          where neither is, outputs are μ and log σ of a Gaussian
                                          (SAC): tanh(μ + σ·noise)
    place_centre [2], place_unit [2]      where they are there, the policy is told where on the map
                                          the agent is (`--tell-position both`): its input is the
                                          observation ⊕ (position − centre) / unit

The noise of a choice is two uniforms in [0, 1): whether to draw the action (below ε), and which.

This computes what `sac.act`, `td3.act` and `dqn.act` compute, in a few small matrix-vector products
(about 20 microseconds for 3×256 units). Set OPENBLAS_NUM_THREADS=1 in processes that run it side by
side: products this small gain nothing from threads.
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
NORM_EPSILON = np.float32(1e-5)  # as in `mlp`


def policy_action(
    parameters: Mapping[str, np.ndarray],
    observation: Float[np.ndarray, " O"],
    noise: Float[np.ndarray, " noise"],
) -> Float[np.ndarray, " A"]:
    """The action of one agent's stored policy in float32; noise ~ N(0, 1), or zeros for the
    deterministic action, and of a choice two uniforms. A policy that is told its place takes the
    observation `with_place`."""
    hidden = observation.astype(np.float32, copy=False)
    num_layers, normalised = count_layers(parameters), is_normalised(parameters)
    for i in range(num_layers):
        hidden = hidden @ parameters[f"weight_{i}"]
        hidden += parameters[f"bias_{i}"]
        if i < num_layers - 1:
            if normalised:
                hidden -= hidden.mean()
                hidden /= np.sqrt(hidden @ hidden / np.float32(len(hidden)) + NORM_EPSILON)
                hidden *= parameters[f"norm_scale_{i}"]
                hidden += parameters[f"norm_offset_{i}"]
            np.maximum(hidden, 0.0, out=hidden)
    rate = parameters.get("exploration_rate")
    if rate is not None:
        return random_choice(noise, hidden.shape[0]) if noise[0] < rate else best_choice(hidden)
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
    noise: Float[np.ndarray, " noise"],
) -> Float[np.ndarray, " A"]:
    """The policy's action without its noise."""
    still = np.ones_like(noise) if chooses(parameters) else np.zeros_like(noise)
    return policy_action(parameters, observation, still)


def chooses(parameters: Mapping[str, Any]) -> bool:
    """Whether a stored policy values actions and chooses one of them."""
    return "exploration_rate" in parameters


def random_choice(noise: Float[np.ndarray, " 2"], actions: int) -> Float[np.ndarray, " A"]:
    """A one-hot action that the second of two uniforms has drawn."""
    return one_hot(min(int(noise[1] * actions), actions - 1), actions)


def best_choice(values: Float[np.ndarray, " A"]) -> Float[np.ndarray, " A"]:
    """The one-hot action of the highest value."""
    best = int(np.argmax(values))  # of a value that is no number, where there is one
    if not np.isfinite(values[best]):
        raise ValueError(
            "The policy's values are no finite numbers: what it learned from has diverged; choose "
            "a smaller learning rate or a smaller scale of the reward"
        )
    return one_hot(best, len(values))


def one_hot(choice: int, actions: int) -> Float[np.ndarray, " A"]:
    action = np.zeros(actions, np.float32)
    action[choice] = 1.0
    return action


def count_layers(parameters: Mapping[str, Any]) -> int:
    """Layers of a stored policy."""
    return sum(name.startswith("weight_") for name in parameters)


def is_normalised(parameters: Mapping[str, Any]) -> bool:
    """Whether the hidden layers of a stored policy have layer normalisation."""
    return "norm_scale_0" in parameters


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
    one_each = "exploration_noise" in policy or chooses(policy)
    actions = widths[-1] if one_each else widths[-1] // 2
    place = policy["place_unit"].shape[1] if is_told(policy) else 0
    return (policy["weight_0"].shape[1] - place, *widths[:-1], actions)
