"""Cells that coverage counts, where the map has no bounds, or where there is no map.

    map without bounds   squares of a fixed size, however far they lie: floor(position / size)
    state cells          z = asinh((o − mean) / deviation) of each column of the observation o, mean
                         and deviation over random actions; of more than four columns, four fixed
                         random mixtures (orthonormal rows, z R); then floor(z / 0.5)
    observations         of whole numbers, such as one-hots and grids: every one that is different
    pictures             of frames, 12 × 7 pixels of 8 greys (after Go-Explore's 11 × 8 of 8): every
                         one that is different

A cell has one number of 64 bits. The indices along K axes have 64 / K bits each, so that a map
reaches two thousand million cells in every direction; what has no axes is a hash. Nothing here
depends on an agent, a reward or a seed: the same environment has the same cells in every run.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64, Shaped, UInt8

STATE_AXES = 4
STATE_SIDE = 0.5  # deviations
STREAM = 0  # of the mixtures
PICTURE = (7, 12)  # rows and columns
GREYS = 8
HASH_STREAM = 1


@dataclass(frozen=True)
class StateCells:
    """Cells of observations in units of their deviation under random actions."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    kind = "state cells"

    @property
    def axes(self) -> int:
        return min(len(self.mean), STATE_AXES)

    def cell(self, observations: Float[np.ndarray, "*batch O"]) -> Int64[np.ndarray, "*batch"]:
        rows = observations[..., : len(self.mean)].astype(np.float64)
        units = np.arcsinh((rows - self.mean) / np.asarray(self.deviation))
        mixed = units if len(self.mean) <= STATE_AXES else units @ mixtures(len(self.mean))
        return packed(np.floor(mixed / STATE_SIDE))

    @property
    def described(self) -> str:
        width = len(self.mean)
        of = f"the {width} numbers of the observation" if width > 1 else "the observation"
        if width > STATE_AXES:
            of = f"{STATE_AXES} fixed random mixtures of the {width} numbers of the observation"
        return f"cells of half a deviation of {of} under random actions"


@dataclass(frozen=True)
class DifferentObservations:
    """Every different observation of whole numbers is a cell."""

    width: int  # columns that tell of the world

    kind = "observations"
    axes = 1
    described = "different observations, which are whole numbers"

    def cell(self, observations: Float[np.ndarray, "*batch O"]) -> Int64[np.ndarray, "*batch"]:
        return hashed(np.round(observations[..., : self.width].astype(np.float64)).astype(np.int64))


@dataclass(frozen=True)
class DifferentPictures:
    """Every different picture is a cell, seen coarsely."""

    kind = "pictures"
    axes = 1
    described = f"different pictures, seen as {PICTURE[1]} × {PICTURE[0]} pixels of {GREYS} greys"

    def cell(self, observations: UInt8[np.ndarray, "*batch H W"]) -> Int64[np.ndarray, "*batch"]:
        *batch, height, width = observations.shape
        rows, columns = (
            side // parts for side, parts in zip((height, width), PICTURE, strict=True)
        )
        within = observations[..., : rows * PICTURE[0], : columns * PICTURE[1]]
        parts = within.reshape(*batch, PICTURE[0], rows, PICTURE[1], columns)
        small = parts.mean(axis=(-3, -1))
        greys = np.floor(small * (GREYS / 256)).astype(np.int64)
        return hashed(greys.reshape(*batch, -1))


OtherCells = StateCells | DifferentObservations | DifferentPictures


def map_cell(
    positions: Float[np.ndarray, "*batch C"], size: tuple[float, float]
) -> Int64[np.ndarray, "*batch"]:
    """Cells of a map without bounds."""
    return packed(np.floor(positions[..., :2].astype(np.float64) / size))


def packed(indices: Float[np.ndarray, "*batch K"]) -> Int64[np.ndarray, "*batch"]:
    """Whole numbers along K axes as one number; beyond its reach, the outermost."""
    axes = indices.shape[-1]
    half = 2.0 ** (64 // axes - 1)
    # Clipped as floats; the largest float below 2⁶³ is still a whole number of 64 bits.
    inside = np.clip(indices, -half, np.nextafter(half, 0)).astype(np.int64)
    if axes == 1:
        return np.asarray(inside[..., 0])
    bits = 64 // axes
    mask = np.uint64((1 << bits) - 1)
    together = np.zeros(indices.shape[:-1], np.uint64)
    for axis in range(axes):
        together = (together << np.uint64(bits)) | (inside[..., axis].view(np.uint64) & mask)
    return np.asarray(together).view(np.int64)


def unpacked(cells: Int64[np.ndarray, " N"], axes: int) -> Int64[np.ndarray, "N K"]:
    """The opposite."""
    if axes == 1:
        return cells[:, None]
    bits = 64 // axes
    # shifted left until the sign stands in front, then back, which keeps it
    parts = [
        (cells << np.int64(64 - bits * (axes - axis))) >> np.int64(64 - bits)
        for axis in range(axes)
    ]
    return np.stack(parts, axis=-1)


def mixtures(width: int) -> Float[np.ndarray, "O K"]:
    """Orthonormal directions, the same for ever: from NumPy's frozen legacy generator."""
    drawn = np.random.RandomState(STREAM).standard_normal((width, STATE_AXES))
    directions, scale = np.linalg.qr(drawn)
    # which sign they get is a library's choice
    return np.asarray(directions * np.sign(np.diag(scale)))


def hashed(numbers: Shaped[np.ndarray, "*batch O"]) -> Int64[np.ndarray, "*batch"]:
    """Of whole numbers: their sum with fixed random factors, modulo 2⁶⁴, mixed once more."""
    factors = np.random.RandomState(HASH_STREAM).randint(
        0, 2**32, (2, numbers.shape[-1]), np.uint64
    )
    odd = (factors[0] << np.uint64(32)) | factors[1] | np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = (numbers.astype(np.int64).view(np.uint64) * odd).sum(axis=-1, dtype=np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29))).view(np.int64)


def state_cells(observations: Float[np.ndarray, "N O"]) -> StateCells | DifferentObservations:
    """The cells of an environment in which random actions lead to these observations."""
    rows = observations.astype(np.float64)
    if np.isfinite(rows).all() and (rows == np.round(rows)).all():
        return DifferentObservations(rows.shape[1])
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    # what rounding leaves of a constant is no deviation; a column that never moved keeps its unit
    deviation = np.where(deviation > 1e-6 * np.maximum(np.abs(mean), 1e-3), deviation, 1.0)
    return StateCells(tuple(_short(mean)), tuple(_short(deviation)))


def _short(values: Float[np.ndarray, " O"]) -> list[float]:
    """Four digits: what another version of NumPy rounds otherwise makes no other cells."""
    return [float(f"{value:.4g}") for value in values]
