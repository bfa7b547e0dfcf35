"""What the commands share that propose what to do next from what a run has measured.

Two evaluations of the same agents differ by chance: how much, their differences from each line of
metrics to the next tell (`noise_of`). What is within it is not spoken of.
"""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

FEWEST_LINES = 8  # of metrics, to speak of how returns go: two for each quarter
CLEAR = 2.0  # deviations beyond which a difference is none of chance


class Trend(NamedTuple):
    """How the mean return goes: in the third quarter of the lines, in the last, and whether the
    difference is more than chance."""

    before: float
    now: float
    is_clear: bool


def trend_of(curve: Float[np.ndarray, " T"]) -> Trend | None:
    """The last quarter of a curve beside the quarter before; None where it is too short to tell."""
    curve = curve[np.isfinite(curve)]
    quarter = len(curve) // 4
    if len(curve) < FEWEST_LINES:
        return None
    before, now = float(np.mean(curve[-2 * quarter : -quarter])), float(np.mean(curve[-quarter:]))
    chance = noise_of(curve) / np.sqrt(quarter)
    return Trend(before, now, abs(now - before) > CLEAR * chance)


def noise_of(curve: Float[np.ndarray, " T"]) -> float:
    """The deviation of the difference of two evaluations that differ by chance: 1.48 times the
    median of |differences| from line to line, which a few steep pieces do not change."""
    return float(1.4826 * np.median(np.abs(np.diff(curve)))) if len(curve) > 1 else 0.0


def option_words(
    settings: Any, defaults: Any, unsaid: Sequence[str] = (), prefix: str = ""
) -> list[str]:
    """The words that make these settings of the defaults."""
    words: list[str] = []
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), f"{prefix}{field.name.replace('_', '-')}"
        is_default = value is None or value == getattr(defaults, field.name)
        if field.name in unsaid or is_default or dataclasses.is_dataclass(value):
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name}", *(shlex.quote(_text(each)) for each in values)]
    return words


def _text(value: Any) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
