"""What a state knows of where the agent is: a linear map from states to positions, judged on
episodes that nobody has seen.

Ridge regression with an intercept, from standardised states to the two coordinates; its penalty is
the one of a fixed list that predicts the validation episodes best. R² = 1 − Σ (position −
prediction)² / Σ (position − mean)², for each coordinate, over the frames of the held-out episodes:
1 is perfect, 0 no better than always guessing their mean.

Beside the trained encoder stand the same network before its training, and the first principal
components of the pixels, as many of them as a state has columns.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse.linalg
from jaxtyping import Float, Float32, UInt8

# as a share of the variance of a state's column
PENALTIES = tuple(10.0**power for power in range(-7, 1))
PCA_FRAMES = 4_000  # that the components are computed from


@dataclass(frozen=True)
class Probe:
    """R² of each coordinate on held-out frames (NaN where it never changes), and what was predicted
    there."""

    scores: Float[np.ndarray, " C"]
    predictions: Float[np.ndarray, "N C"]
    penalty: float


@dataclass(frozen=True)
class Labelled:
    """States with their positions, of one part of the episodes."""

    states: Float[np.ndarray, "N D"]
    positions: Float[np.ndarray, "N C"]


def linear_probe(training: Labelled, validation: Labelled, held_out: Labelled) -> Probe:
    """Fit on the first, choose the penalty on the second, judge on the third."""
    centre, scale = training.states.mean(axis=0), training.states.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    middle = training.positions.mean(axis=0, dtype=np.float64)
    inputs, seen, unseen = (
        ((part.states - centre[None]) / scale[None]).astype(np.float64)
        for part in (training, validation, held_out)
    )
    gram, moments = (
        inputs.T @ inputs / len(inputs),
        inputs.T @ (training.positions - middle[None]) / len(inputs),
    )
    best = (-np.inf, PENALTIES[-1], np.zeros_like(moments))
    for penalty in PENALTIES:
        weights = np.linalg.solve(gram + penalty * np.eye(len(gram)), moments)
        scores = r_squared(validation.positions, seen @ weights + middle[None])
        quality = float(scores[np.isfinite(scores)].mean()) if np.isfinite(scores).any() else 0.0
        if quality > best[0]:
            best = (quality, penalty, weights)
    predictions = unseen @ best[2] + middle[None]
    return Probe(r_squared(held_out.positions, predictions), predictions, best[1])


def r_squared(
    positions: Float[np.ndarray, "N C"], predictions: Float[np.ndarray, "N C"]
) -> Float[np.ndarray, " C"]:
    """The share of the variance that is predicted, per coordinate; NaN where there is none."""
    truth = positions.astype(np.float64)
    total = ((truth - truth.mean(axis=0)[None]) ** 2).sum(axis=0)
    missed = ((truth - predictions) ** 2).sum(axis=0)
    return np.where(total > 0, 1 - missed / np.where(total > 0, total, 1.0), np.nan)


@dataclass(frozen=True)
class PixelComponents:
    """The main directions in which frames differ, pixel by pixel."""

    mean: Float32[np.ndarray, " pixels"]
    components: Float32[np.ndarray, "pixels D"]

    def __call__(self, frames: UInt8[np.ndarray, "N H W"]) -> Float32[np.ndarray, "N D"]:
        """Coordinates of frames along them; block by block, frames may be on disk."""
        parts = [
            np.asarray(frames[start : start + 1_000]) for start in range(0, len(frames), 1_000)
        ]
        return np.concatenate([(_flat(part) - self.mean[None]) @ self.components for part in parts])


def pixel_components(frames: UInt8[np.ndarray, "N H W"], count: int) -> PixelComponents:
    """The first principal components of some frames."""
    chosen = np.linspace(0, len(frames) - 1, min(len(frames), PCA_FRAMES)).astype(np.int64)
    flat = _flat(np.asarray(frames[chosen]))
    mean = flat.mean(axis=0)
    centred = flat - mean[None]
    count = min(count, *(side - 1 for side in centred.shape))
    start = np.ones(min(centred.shape), np.float32)
    _, _, components = scipy.sparse.linalg.svds(centred, k=count, v0=start)
    return PixelComponents(mean, np.ascontiguousarray(components[::-1].T))


def _flat(frames: UInt8[np.ndarray, "N H W"]) -> Float32[np.ndarray, "N pixels"]:
    return frames.reshape(len(frames), -1).astype(np.float32) / 255
