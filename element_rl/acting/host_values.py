"""The values of a finite number of actions in NumPy, for acting on the host; this module never
imports JAX.

It computes what `discrete_cql.QNetwork` computes, from the flat arrays of
`discrete_cql.value_parameters`.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Shaped

KERNEL, STRIDE = 3, 2  # of the convolutions


def action_values(
    parameters: Mapping[str, np.ndarray], observation: Shaped[np.ndarray, "..."]
) -> Float[np.ndarray, " A"]:
    """Q(s, ·) of one agent at one observation: a vector, or an image [C, H, W] or [H, W] of uint8.

    `parameters` holds `weight_i [in, out]` and `bias_i [out]`, and for images `kernel_i [out, in,
    3, 3]`, `kernel_bias_i`.
    """
    hidden = observation.astype(np.float32)
    convolutions = sum(name.startswith("kernel_bias_") for name in parameters)
    if convolutions:
        hidden = (hidden if hidden.ndim == 3 else hidden[None]) / 255.0
    for i in range(convolutions):
        hidden = (
            _convolved(hidden, parameters[f"kernel_{i}"])
            + parameters[f"kernel_bias_{i}"][:, None, None]
        )
        hidden = np.maximum(hidden, 0.0)
    hidden = hidden.ravel()
    layers = sum(name.startswith("weight_") for name in parameters)
    for i in range(layers):
        hidden = hidden @ parameters[f"weight_{i}"] + parameters[f"bias_{i}"]
        if i < layers - 1:
            hidden = np.maximum(hidden, 0.0)
    return hidden


def _convolved(
    image: Float[np.ndarray, "C H W"], kernel: Float[np.ndarray, "F C k k"]
) -> Float[np.ndarray, "F H2 W2"]:
    """A convolution as one matrix product over the windows of the image."""
    margin = KERNEL // 2
    padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (KERNEL, KERNEL), axis=(1, 2))[
        :, ::STRIDE, ::STRIDE
    ]
    return np.tensordot(kernel, windows, axes=((1, 2, 3), (0, 3, 4)))
