"""Encoders of frames that no longer change: what entropy and novelty are measured with.

    encoder = load_encoder("runs/rooms-encoder")
    states = encoder(frames)                       # uint8 [B, H, W] -> float32 [B, D]

A frozen encoder centres the states of its network and divides all of them by one number, so that
frames like those it was trained on lie at a root-mean-square distance of `spread` from their mean.
It is one number, not one per column: distances keep the proportions that were learned. A kernel of
bandwidth 1 then means the same for every encoder; docs/encoder.md has the numbers. Both are part of
the stored encoder and never change.

An encoder is one safetensors file, with its settings as JSON in the metadata: it is there whole or
not at all.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from element_rl.encoders.stdim import ConvEncoder, NetworkConfig, make_encoder
from element_rl.storage.files import FileError, json_text, read_arrays, write_arrays
from element_rl.storage.settings import settings_from_json
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

FILE = "encoder.safetensors"
ADVICE = "make one with element pretrain-encoder"
SPREAD = 2.0  # root-mean-square distance of the states of training frames from their mean
BLOCK = 256  # frames encoded at once, where there are many


class FrozenEncoder(eqx.Module):
    """Frames to states. Call it with a batch, under `jax.jit` or not."""

    network: ConvEncoder
    centre: Float[Array, " D"]
    scale: Float[Array, ""]
    frame_shape: tuple[int, int] = eqx.field(static=True)
    config: NetworkConfig = eqx.field(static=True)

    def __call__(
        self, frames: UInt8[Array, "B H W"] | UInt8[np.ndarray, "B H W"]
    ) -> Float[Array, "B D"]:
        """States; in full precision, so that a frame has the same one on every device."""
        if frames.shape[1:] != self.frame_shape:
            raise ValueError(
                f"The encoder takes frames of {self.frame_shape} pixels, got {frames.shape[1:]}."
            )
        with jax.default_matmul_precision("highest"):
            _, states = self.network(jnp.asarray(frames))
        return (states - self.centre[None]) * self.scale

    @property
    def state_dim(self) -> int:
        return self.config.state_dim


def load_encoder(folder: str | Path) -> FrozenEncoder:
    """The encoder that `element pretrain-encoder` left in a folder; the file itself may be named
    too."""
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise FileError(
            f"There is no encoder in {folder} (no {FILE}): {ADVICE}, or name the folder of another."
        )
    arrays, metadata = read_arrays(path)
    try:
        config = settings_from_json(NetworkConfig, json.loads(metadata["network"]))
        height, width = json.loads(metadata["frame_shape"])
        blank = random_encoder(jax.random.key(0), (height, width), config.state_dim, config=config)
        return arrays_to_tree(blank, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} holds no encoder of this version ({error}): {ADVICE}.") from error


def save_encoder(
    folder: Path, encoder: FrozenEncoder, origin: Mapping[str, Any] | None = None
) -> Path:
    """Writes the encoder; `origin` is kept with it for people to read."""
    settings = {
        "network": dataclasses.asdict(encoder.config),
        "frame_shape": encoder.frame_shape,
        "origin": dict(origin or {}),
    }
    path = folder / FILE
    write_arrays(
        path, tree_to_arrays(encoder), {name: json_text(value) for name, value in settings.items()}
    )
    return path


def random_encoder(
    key: PRNGKeyArray,
    frame_shape: tuple[int, int],
    state_dim: int = 32,
    frames: UInt8[np.ndarray, "B H W"] | None = None,
    config: NetworkConfig | None = None,
) -> FrozenEncoder:
    """An untrained encoder; standardised on `frames`, as a trained one is, where some are given."""
    config = dataclasses.replace(config or NetworkConfig(), state_dim=state_dim)
    network = make_encoder(key, frame_shape, config)
    return freeze(network, frame_shape, config, frames)


def freeze(
    network: ConvEncoder,
    frame_shape: tuple[int, int],
    config: NetworkConfig,
    frames: UInt8[np.ndarray, "B H W"] | None,
    spread: float = SPREAD,
) -> FrozenEncoder:
    """A network as a frozen encoder, standardised on `frames`; as it is, where there are none."""
    plain = FrozenEncoder(network, jnp.zeros(config.state_dim), jnp.ones(()), frame_shape, config)
    if frames is None:
        return plain
    states = encode_all(plain, frames).astype(np.float64)
    deviation = float(np.sqrt(states.var(axis=0).sum()))
    if not np.isfinite(deviation) or deviation == 0:
        raise ValueError(
            f"All {len(frames)} frames have the same state: they show nothing to tell apart. "
            "Collect other frames."
        )
    centre = jnp.asarray(states.mean(axis=0), jnp.float32)
    return dataclasses.replace(
        plain, centre=centre, scale=jnp.asarray(spread / deviation, jnp.float32)
    )


def encode_all(
    encoder: FrozenEncoder, frames: UInt8[np.ndarray, "N H W"]
) -> Float[np.ndarray, "N D"]:
    """States of any number of frames, block by block, also of an array that is on disk."""
    states = np.empty((len(frames), encoder.state_dim), np.float32)
    for start in range(0, len(frames), BLOCK):
        block = np.asarray(frames[start : start + BLOCK])
        padded = np.zeros((BLOCK, *encoder.frame_shape), np.uint8)  # one shape: compiled once
        padded[: len(block)] = block
        states[start : start + len(block)] = np.asarray(_encode(encoder, jnp.asarray(padded)))[
            : len(block)
        ]
    return states


@eqx.filter_jit
def _encode(encoder: FrozenEncoder, frames: UInt8[Array, "B H W"]) -> Float[Array, "B D"]:
    return encoder(frames)
