"""The SAC policy in NumPy, for acting on the host while the accelerator learns; this module never imports JAX.

It computes what `sac.act` computes, from the flat arrays of `networks.policy_parameters`, in a few small matrix-vector
products (about 20 microseconds for 3×256 units). Set OPENBLAS_NUM_THREADS=1 in processes that run it side by side:
products this small gain nothing from threads.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

# Bounds of log σ, as in the SAC papers. Clipped, not squashed: between the bounds the policy is then exactly the
# Gaussian the network says, and an untrained network starts near σ = 1, in the middle of what is useful. (A tanh rescaled
# to these bounds would start at log σ = -9, a policy that does not explore.)
LOG_STD_MIN = -20.0
LOG_STD_MAX = 2.0


def squashed_gaussian_action(
    parameters: Mapping[str, np.ndarray], observation: Float[np.ndarray, " O"], noise: Float[np.ndarray, " A"]
) -> Float[np.ndarray, " A"]:
    """tanh(μ + σ·noise) in float32, for the policy of one agent; noise ~ N(0, 1), or zeros for the deterministic action.

    `parameters` holds `weight_i [in, out]` and `bias_i [out]`, layer by layer.
    """
    hidden = observation.astype(np.float32, copy=False)
    num_layers = len(parameters) // 2
    for i in range(num_layers):
        hidden = hidden @ parameters[f"weight_{i}"]
        hidden += parameters[f"bias_{i}"]
        if i < num_layers - 1:
            np.maximum(hidden, 0.0, out=hidden)
    # Slices and minimum/maximum: np.split and np.clip would take longer than a whole layer.
    action_dim = hidden.shape[0] // 2
    std = np.exp(np.minimum(np.maximum(hidden[action_dim:], LOG_STD_MIN), LOG_STD_MAX))
    return np.tanh(hidden[:action_dim] + std * noise.astype(np.float32, copy=False))
