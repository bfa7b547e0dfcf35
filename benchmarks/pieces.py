"""Runs in pieces: each takes so many seconds at most and ends at a checkpoint; the next goes on."""

import time
from collections.abc import Callable
from pathlib import Path

from element_rl.runs.watching import Interrupted, Progress
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run, reopen_run


def trained(
    config: ExploreConfig,
    folder: Path,
    seconds: float,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> bool:
    """Begins the run in a folder, or goes on with it, for so many seconds at most; whether it is
    done. The steps that are under way when time is over are finished first."""
    if (folder / "summary.json").exists():
        return True
    if seconds <= 0:
        return False
    ends = time.monotonic() + seconds
    there = (folder / "config.json").exists()
    folder.parent.mkdir(parents=True, exist_ok=True)
    run = (reopen_run if there else create_run)(config, folder)
    try:
        explore(config, run, watch, lambda: time.monotonic() > ends, resume=there)
    except Interrupted as interrupted:
        print(f"{folder}: step {interrupted.step:,}; the same command goes on.", flush=True)
        return False
    return True
