"""How much code one transition goes through with Stable-Baselines3: functions, files, lines.

    python benchmarks/walk_sb3.py [--files]

Counts what of `element_rl` is called by `IntrinsicReplayBuffer.add`, several episodes of it, and by
`sample`, with ELEMENT and environments of `Ant-v5`'s shapes. Whatever JAX traces for them counts,
the making of the buffer does not. There are two walks: the first episodes with all settings left
open, when no state is remembered yet, and a run of known length whose states enter an exact memory.
`--files` lists the files with their lines and called functions.
"""

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from gymnasium import spaces

import element_rl
from element_rl.integrations.sb3 import IntrinsicReplayBuffer

PACKAGE = str(Path(element_rl.__file__).parent)
NUM_ENVS, EPISODE_STEPS, STEPS = 2, 50, 200
WALKS: dict[str, dict[str, Any]] = {
    "first episodes": {},
    "states enter the memory": {"total_steps": 1_000},
}


def walk(**settings: Any) -> set[tuple[str, str]]:
    """File and name of every function of the package that `add` and `sample` call."""
    called: set[tuple[str, str]] = set()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    buffer = IntrinsicReplayBuffer(
        1_000,
        spaces.Box(-np.inf, np.inf, (27,)),
        spaces.Box(-1.0, 1.0, (8,)),
        n_envs=NUM_ENVS,
        max_episode_steps=EPISODE_STEPS,
        position=("x_position", "y_position"),
        **settings,
    )
    jax.clear_caches()  # what another walk has traced is traced again
    sys.setprofile(count)
    try:
        use(buffer)
    finally:
        sys.setprofile(None)
    return called


def use(buffer: IntrinsicReplayBuffer) -> None:
    """Steps of a random walk, stored; then a batch."""
    generator = np.random.default_rng(0)
    following = generator.normal(size=(NUM_ENVS, 27)).astype(np.float32)
    for step in range(1, STEPS + 1):
        before, following = following, following + np.float32(0.1)
        actions = generator.uniform(-1, 1, (NUM_ENVS, 8)).astype(np.float32)
        ended = np.full(NUM_ENVS, step % EPISODE_STEPS == 0)
        place = {"x_position": float(step), "y_position": 0.0, "TimeLimit.truncated": ended[0]}
        buffer.add(before, following, actions, np.zeros(NUM_ENVS), ended, [place] * NUM_ENVS)
    buffer.sample(32)


def main() -> None:
    for title, settings in WALKS.items():
        called = walk(**settings)
        lines = {file: len(Path(file).read_text().splitlines()) for file, _ in called}
        size = f"{len(called)} functions, {len(lines)} files, {sum(lines.values()):,} lines"
        print(f"{title}: {size}")
        for file in sorted(lines) if "--files" in sys.argv else ():
            functions = sorted(name for path, name in called if path == file)
            print(f"  {Path(file).relative_to(PACKAGE)}: {lines[file]} lines;", *functions)


if __name__ == "__main__":
    main()
