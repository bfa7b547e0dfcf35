"""A few golden streams stay as tests: tiny runs give the numbers that are written in `kept.json`.

Bit for bit they repeat on one machine only (`streams.py` compares two versions there). Here they
are compared within a thousandth, which other processors keep to and a changed formula does not. The
environments are this library's own, so that no physics engine's version matters. A change that is
meant to change numbers writes the file again:

    python tests/golden/test_golden.py
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from streams import Stream, explored, on_rooms

KEPT_FILE = Path(__file__).with_name("kept.json")
TOLERANCE = 1e-3
MAZE = {"env": "PointMaze-v0", "options": ("max_episode_steps=50",)}
TD3 = ("--td3.hidden-sizes", "16", "--td3.batch-size", "16", "--td3.learn-start", "200")
RND = ("feature_dim=8", "target_sizes=[16]", "predictor_sizes=[16]")
SHORTER = ("--steps", "400", "--no-figures")
KEPT: dict[str, Stream] = {
    "element": lambda folder: explored(folder, *SHORTER, **MAZE),
    "rnd-td3": lambda folder: explored(
        folder,
        *SHORTER,
        "--reward",
        "rnd",
        "--reward-options",
        *RND,
        "--agent",
        "td3",
        *TD3,
        **MAZE,
    ),
    "several-environments": lambda folder: explored(
        folder, *SHORTER, "--envs-per-agent", "2", "--estimator", "knn", **MAZE
    ),
    "on-policy": on_rooms("--reward", "element"),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_numbers_are_as_they_were(name: str, tmp_path: Path) -> None:
    before = dict(numbers(json.loads(KEPT_FILE.read_text())[name]))
    after = dict(numbers(rounded(KEPT[name](tmp_path))))
    assert after.keys() == before.keys()
    assert after == pytest.approx(before, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)


def numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a stream, with a name for its place; words are compared as names."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{name}/{key}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from numbers(part, f"{name}/{index}")
    elif isinstance(value, bool | int | float):
        yield name, float(value)
    else:
        yield f"{name}={value}", 0.0


def rounded(stream: dict[str, Any]) -> dict[str, Any]:
    """A stream as it is kept: metrics as numbers, arrays by their shape and sum."""
    return {name: _kept(value) for name, value in stream.items()}


def _kept(value: Any) -> Any:
    if isinstance(value, dict) and "sha256" in value:
        return {"shape": value["shape"], "dtype": value["dtype"], "sum": _number(value["sum"])}
    if isinstance(value, dict):
        return {key: _kept(part) for key, part in value.items()}
    return [_kept(part) for part in value] if isinstance(value, list) else _number(value)


def _number(value: Any) -> Any:
    """A number with seven digits; metrics.csv has them as text, and empty fields."""
    try:
        return float(f"{float(value):.7g}")
    except (TypeError, ValueError):
        return value


if __name__ == "__main__":
    import tempfile

    lines = []
    for name, stream in KEPT.items():
        with tempfile.TemporaryDirectory() as folder:
            entries = rounded(stream(Path(folder))).items()
            written = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(written) + "\n}")
    KEPT_FILE.write_text("{" + ",\n".join(lines) + "}\n")
