"""How much code one environment step goes through until it is learned from, logged and saved.

    python -m benchmarks.walk                 functions, files and lines, and the files by name
    python -m benchmarks.walk --compiled      what is left of them once every program is compiled

A tiny run of explore on Ant is profiled, from the first chunk to the last checkpoint: which
functions of the package were called, in which files, and how many lines these files have in all.
The making of the run (settings, environments, networks) is not counted, and worker processes are
not used. Programs for the device are counted while they are traced.
"""

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import element_rl
from element_rl.agents.sac import SACConfig
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig, resolved
from element_rl.training.off_policy.explore import Explorer
from element_rl.training.off_policy.launch import create_run

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


def called(work: Callable[[], Any]) -> set[tuple[Path, str]]:
    """The functions of the package, with their files, that are called meanwhile."""
    seen: set[tuple[Path, str]] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.add((Path(frame.f_code.co_filename), frame.f_code.co_qualname))

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def walk(folder: Path, compiled: bool = False) -> set[tuple[Path, str]]:
    """What a run in this folder goes through; with `compiled` its second half alone."""
    settings = resolved(CONFIG)
    with Explorer(*settings, create_run(settings, folder)) as explorer:
        if compiled:
            with contextlib.suppress(Interrupted):
                explorer.train(lambda progress: None, lambda: explorer.step >= 400)
        return called(lambda: explorer.train(lambda progress: None, lambda: False))


def report(seen: set[tuple[Path, str]]) -> str:
    """One line of sums, then one per file: its lines and how many of its functions were called."""
    functions = Counter(file for file, _ in seen)
    lines = {file: len(file.read_text().splitlines()) for file in functions}
    total = f"{len(seen)} functions, {len(functions)} files, {sum(lines.values())} lines"
    names = [
        f"    {file.relative_to(PACKAGE)!s:<40}{lines[file]:>6}{functions[file]:>6}"
        for file in sorted(functions)
    ]
    return "\n".join([total, *names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compiled", action="store_true", help="only after compilation")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(report(walk(Path(folder) / "run", arguments.compiled)))


if __name__ == "__main__":
    main()
