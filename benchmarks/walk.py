"""How much code one environment step goes through: functions, files and lines.

    python -m benchmarks.walk                  both walks, with the files by name
    python -m benchmarks.walk explore          a step of `element explore`
    python -m benchmarks.walk sb3              a step with Stable-Baselines3
    python -m benchmarks.walk --compiled       what is left of explore once all is compiled

A walk profiles a small piece of work: which functions of the package were called, in which files,
and how many lines these files have in all. What is made beforehand (settings, environments,
networks, the buffer) is not counted. Programs for the device are counted while they are traced.

explore    a tiny run on Ant without worker processes, from its first chunk to its last checkpoint:
           a step is collected, stored, observed, learned from, logged and saved
sb3        `IntrinsicReplayBuffer.add`, several episodes of it, and one `sample`, with ELEMENT and
           observations and actions of Ant's shapes; the states enter an exact memory
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from gymnasium import spaces

import element_rl
from element_rl.agents.sac import SACConfig
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer
from element_rl.training.off_policy.launch import create_run
from element_rl.training.off_policy.resolving import resolved

PACKAGE = Path(element_rl.__file__).parent
CONFIG = ExploreConfig(
    "Ant-v5",
    steps=800,
    replay_size=3_000,
    chunk_steps=40,
    log_every=200,
    checkpoint_every=400,
    update_interval=100,
    update_steps=100,
    workers=0,
    random_seeds=0,
    sac=SACConfig(hidden_sizes=(16, 16), batch_size=16, learn_start=100),
    env_options=("max_episode_steps=100",),
)
NUM_ENVS, EPISODE_STEPS, SB3_STEPS = 2, 50, 200  # of the walk with Stable-Baselines3

Functions = set[tuple[Path, str]]
"""Functions by their file and name."""


def walk_explore(compiled: bool = False) -> Functions:
    """What a run goes through; with `compiled` its second half alone."""
    with tempfile.TemporaryDirectory() as folder:
        settings = resolved(CONFIG)
        with Explorer(*settings, create_run(settings, Path(folder) / "run")) as explorer:
            if compiled:
                with contextlib.suppress(Interrupted):
                    explorer.train(lambda progress: None, lambda: explorer.step >= 400)
            return called(lambda: explorer.train(lambda progress: None, lambda: False))


def walk_sb3() -> Functions:
    """What steps of a random walk go through while they are stored, and then a batch of them."""
    from element_rl.integrations.sb3 import IntrinsicReplayBuffer  # needs the extra [sb3]

    buffer = IntrinsicReplayBuffer(
        1_000,
        spaces.Box(-np.inf, np.inf, (27,)),
        spaces.Box(-1.0, 1.0, (8,)),
        n_envs=NUM_ENVS,
        max_episode_steps=EPISODE_STEPS,
        position=("x_position", "y_position"),
        total_steps=1_000,
    )
    jax.clear_caches()  # what another walk has traced is traced again

    def use() -> None:
        generator = np.random.default_rng(0)
        following = generator.normal(size=(NUM_ENVS, 27)).astype(np.float32)
        for step in range(1, SB3_STEPS + 1):
            before, following = following, following + np.float32(0.1)
            actions = generator.uniform(-1, 1, (NUM_ENVS, 8)).astype(np.float32)
            ended = np.full(NUM_ENVS, step % EPISODE_STEPS == 0)
            place = {"x_position": float(step), "y_position": 0.0, "TimeLimit.truncated": ended[0]}
            buffer.add(before, following, actions, np.zeros(NUM_ENVS), ended, [place] * NUM_ENVS)
        buffer.sample(32)

    return called(use)


WALKS: dict[str, Callable[[], Functions]] = {"explore": walk_explore, "sb3": walk_sb3}


def called(work: Callable[[], Any]) -> Functions:
    """The functions of the package that are called meanwhile."""
    seen: Functions = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.add((Path(frame.f_code.co_filename), frame.f_code.co_qualname))

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def report(name: str, seen: Functions) -> str:
    """One line of sums, then one per file: its lines and how many of its functions were called."""
    functions = Counter(file for file, _ in seen)
    lines = {file: len(file.read_text().splitlines()) for file in functions}
    sums = f"{len(seen)} functions, {len(functions)} files, {sum(lines.values()):,} lines"
    names = [
        f"    {file.relative_to(PACKAGE)!s:<40}{lines[file]:>6}{functions[file]:>6}"
        for file in sorted(functions)
    ]
    return "\n".join([f"{name}: {sums}", *names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("walk", nargs="?", choices=("both", *WALKS), default="both")
    parser.add_argument("--compiled", action="store_true", help="explore after compilation alone")
    arguments = parser.parse_args()
    if arguments.compiled:
        print(report("explore, compiled", walk_explore(compiled=True)))
        return
    for name, walk in WALKS.items():
        if arguments.walk in ("both", name):
            print(report(name, walk()))


if __name__ == "__main__":
    main()
