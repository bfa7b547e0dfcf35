"""ST-DIM, Spatiotemporal Deep InfoMax: an encoder of frames that learns from the order of frames
alone.

Anand, Racah, Ozair, Bengio, Côté & Hjelm, 2019, https://arxiv.org/abs/1906.08226, section 3; the
paper of ELEMENT trains its encoder of Mario with it (appendix, table "Hyper-parameters of
Spatiotemporal Deep Infomax").

A convolutional network gives a frame o a map of local features φ_p(o), one for each place p of M,
and a global feature φ(o). Consecutive frames have to find each other among B others of the batch,
at every place, by bilinear scores:

    global–local   g_p(t, t') = φ(o_t)ᵀ W_g φ_p(o_t')
    local–local    f_p(t, t') = φ_p(o_t)ᵀ W_l φ_p(o_t')
    loss           −mean over t, p of log( exp s_p(t, t+1) / Σ_t' exp s_p(t, t') )
                   for s = g and s = f, the mean of both

where t' runs over the second frames of all pairs of the batch. Features that say nothing have a
loss of log B.

Departures: the published code has the global feature of the later frame find the earlier one; here
the earlier frame's finds the later one, as both papers print it. Weights start normal with variance
2 / fan-in instead of orthogonal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8


@dataclass(frozen=True)
class NetworkConfig:
    """The network from a frame to its features."""

    # Width of the global feature, the state in which entropy is measured.
    state_dim: int = 32
    # Channels of each convolution; the last is the width of a local feature.
    channels: tuple[int, ...] = (16, 32, 64)
    # Window of each convolution, in pixels along an edge.
    kernels: tuple[int, ...] = (8, 4, 3)
    # Stride of each convolution, in pixels.
    strides: tuple[int, ...] = (4, 2, 1)
    # Width of the layer between the last convolution and the state.
    hidden: int = 256

    def __post_init__(self) -> None:
        if not len(self.channels) == len(self.kernels) == len(self.strides) > 0:
            raise ValueError(
                f"Every convolution has channels, a kernel and a stride, but {len(self.channels)}, "
                f"{len(self.kernels)} and "
                f"{len(self.strides)} of them are given: give as many of each."
            )
        if min(self.state_dim, self.hidden, *self.channels, *self.kernels, *self.strides) < 1:
            raise ValueError(
                "All sizes of the encoder must be at least 1: raise the one that is not."
            )


class ConvEncoder(eqx.Module):
    """Frames [B, H, W] to local features [B, M, C] and states [B, D]; weights of convolutions are
    [k, k, in, out]."""

    kernels: tuple[Float[Array, "_ _ _ _"], ...]
    kernel_biases: tuple[Float[Array, " _"], ...]
    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    strides: tuple[int, ...] = eqx.field(static=True)

    def __call__(
        self, frames: UInt8[Array, "B H W"]
    ) -> tuple[Float[Array, "B M C"], Float[Array, "B D"]]:
        """Local features after the last convolution; the state two linear layers later, without an
        activation."""
        hidden = frames[..., None].astype(jnp.float32) / 255
        for kernel, bias, stride in zip(
            self.kernels, self.kernel_biases, self.strides, strict=True
        ):
            hidden = jax.lax.conv_general_dilated(
                hidden,
                kernel,
                (stride, stride),
                "VALID",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            hidden = jax.nn.relu(hidden + bias[None, None, None])
        count, channels = hidden.shape[0], hidden.shape[-1]
        local = hidden.reshape(count, -1, channels)
        inner = jax.nn.relu(hidden.reshape(count, -1) @ self.weights[0] + self.biases[0][None])
        return local, inner @ self.weights[1] + self.biases[1][None]


class STDIM(eqx.Module):
    """What is trained: the encoder, and the matrices of the scores, not needed afterwards."""

    encoder: ConvEncoder
    global_local: Float[Array, "D C"]  # W_g
    local_local: Float[Array, "C C"]  # W_l


def make_encoder(
    key: PRNGKeyArray, frame_shape: tuple[int, int], config: NetworkConfig
) -> ConvEncoder:
    """An untrained encoder for frames of a shape; biases begin at zero."""
    rows, columns = (map_side(side, config) for side in frame_shape)
    shapes = [
        (kernel, kernel, width, wider)
        for kernel, (width, wider) in zip(
            config.kernels, pairwise((1, *config.channels)), strict=True
        )
    ]
    kernels = _normal(jax.random.fold_in(key, 0), shapes)
    sizes = (rows * columns * config.channels[-1], config.hidden, config.state_dim)
    weights = _normal(jax.random.fold_in(key, 1), list(pairwise(sizes)))
    zeros = [jnp.zeros(array.shape[-1]) for array in (*kernels, *weights)]
    count = len(kernels)
    return ConvEncoder(
        tuple(kernels), tuple(zeros[:count]), tuple(weights), tuple(zeros[count:]), config.strides
    )


def make_stdim(key: PRNGKeyArray, frame_shape: tuple[int, int], config: NetworkConfig) -> STDIM:
    """An untrained encoder with its scores."""
    encoder_key, scores_key = jax.random.split(key)
    width, state_dim = config.channels[-1], config.state_dim
    global_local, local_local = _normal(scores_key, [(state_dim, width), (width, width)])
    return STDIM(make_encoder(encoder_key, frame_shape, config), global_local, local_local)


def stdim_loss(
    model: STDIM, first: UInt8[Array, "B H W"], second: UInt8[Array, "B H W"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss of B pairs of consecutive frames, and the share of frames that found theirs."""
    local, states = model.encoder(jnp.concatenate([first, second]))
    local_first, local_second = jnp.split(local, 2)
    global_local, global_accuracy = info_nce(
        global_local_scores(model, states[: len(first)], local_second)
    )
    local_local, local_accuracy = info_nce(local_local_scores(model, local_first, local_second))
    loss = (global_local + local_local) / 2
    metrics = {
        "global_local_loss": global_local,
        "local_local_loss": local_local,
        "global_local_accuracy": global_accuracy,
        "local_local_accuracy": local_accuracy,
    }
    return loss, metrics


def global_local_scores(
    model: STDIM, states: Float[Array, "B D"], local: Float[Array, "B M C"]
) -> Float[Array, "M B B"]:
    """g_p(t, t'): place p, pair t that searches, pair t' whose second frame is looked at."""
    return jnp.einsum("bc,nmc->mbn", states @ model.global_local, local)


def local_local_scores(
    model: STDIM, first: Float[Array, "B M C"], second: Float[Array, "B M C"]
) -> Float[Array, "M B B"]:
    """f_p(t, t')."""
    return jnp.einsum("bmc,nmc->mbn", first @ model.local_local, second)


def info_nce(scores: Float[Array, "M B B"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean loss of finding column b in row b, and how often it has the highest score."""
    found = jnp.diagonal(jax.nn.log_softmax(scores, axis=-1), axis1=1, axis2=2)
    right = jnp.argmax(scores, axis=-1) == jnp.arange(scores.shape[-1])[None]
    return -jnp.mean(found), jnp.mean(right.astype(jnp.float32))


def map_side(side: int, config: NetworkConfig) -> int:
    """Places of local features along a side of a frame."""
    left = side
    for kernel, stride in zip(config.kernels, config.strides, strict=True):
        left = (left - kernel) // stride + 1
    if left < 1:
        raise ValueError(
            f"A frame of {side} pixels is too small for these kernels and strides: choose smaller "
            "ones."
        )
    return left


def _normal(key: PRNGKeyArray, shapes: Sequence[tuple[int, ...]]) -> list[Float[Array, "..."]]:
    """Arrays of variance 2 / fan-in, which keeps the size of signals through ReLU; one draw for all
    of them."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    parts = jnp.split(jax.random.normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1].tolist())
    return [
        (2 / np.prod(shape[:-1])) ** 0.5 * part.reshape(shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]
