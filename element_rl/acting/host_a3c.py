"""The A3C network in NumPy, for acting in processes without JAX; this module never imports it.

It computes what `a3c.ActorCritic` computes, from the flat arrays of `a3c.policy_parameters`, frame
by frame. A convolution is one matrix product, with its windows laid out as rows. A step of the
paper's network takes half a millisecond on one core.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, UInt8
from numpy.lib.stride_tricks import as_strided

KERNEL = 3  # pixels along the edge of a convolution's window; stride 2, padding 1


def act(
    parameters: Mapping[str, np.ndarray],
    frame: UInt8[np.ndarray, "H W"],
    lstm: Float[np.ndarray, "2 hidden"],
    uniform: float,
) -> tuple[int, Float[np.ndarray, "2 hidden"]]:
    """An action drawn from the policy by a number that is uniform in [0, 1), and the LSTM's state
    after the frame."""
    probabilities, _, lstm = forward(parameters, frame, lstm)
    # In float64, and never beyond the last action: rounding may leave the sum below 1.
    chosen = int(np.searchsorted(np.cumsum(probabilities, dtype=np.float64), uniform, side="right"))
    return min(chosen, probabilities.size - 1), lstm


def forward(
    parameters: Mapping[str, np.ndarray],
    frame: UInt8[np.ndarray, "H W"],
    lstm: Float[np.ndarray, "2 hidden"],
) -> tuple[Float[np.ndarray, " A"], float, Float[np.ndarray, "2 hidden"]]:
    """Probabilities of the actions, the value, and the LSTM's state after the frame."""
    hidden, cell = lstm
    gates = features(parameters, frame) @ parameters["lstm_input"]
    gates += hidden @ parameters["lstm_hidden"]
    gates += parameters["lstm_bias"]
    enter, forget, candidate, leave = gates.reshape(4, -1)
    cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(candidate)
    hidden = _sigmoid(leave) * np.tanh(cell)
    heads = hidden @ parameters["head_weight"] + parameters["head_bias"]
    weights = np.exp(heads[:-1] - heads[:-1].max())
    return weights / weights.sum(), float(heads[-1]), np.stack([hidden, cell])


def features(
    parameters: Mapping[str, np.ndarray], frame: UInt8[np.ndarray, "H W"]
) -> Float[np.ndarray, " F"]:
    """What the LSTM sees of a frame."""
    image = (frame.astype(np.float32) / np.float32(255.0))[..., None]
    layer = 0
    while f"conv_weight_{layer}" in parameters:
        height, width, channels = image.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        padded = np.zeros((height + 2, width + 2, channels), np.float32)
        padded[1:-1, 1:-1] = image
        down, right, deep = padded.strides
        # The three pixels of a window's row, with their channels, lie side by side in memory: one
        # axis for both.
        windows = as_strided(
            padded, (rows, columns, KERNEL, KERNEL * channels), (2 * down, 2 * right, down, deep)
        )
        image = windows.reshape(rows * columns, -1) @ parameters[f"conv_weight_{layer}"]
        image += parameters[f"conv_bias_{layer}"]
        image = np.maximum(image, 0.0, out=image).reshape(rows, columns, -1)
        layer += 1
    return image.ravel()


def _sigmoid(x: Float[np.ndarray, " hidden"]) -> Float[np.ndarray, " hidden"]:
    return np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0))  # overflows nowhere
