"""Runs that are killed at random moments and resumed until they are done: equal to the undisturbed
one?"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.faults.material import COMMANDS
from element_rl.runs.folder import RunFolder

KILLED = ("explore", "worlds", "on-policy", "offline")
TIMING = ("env_steps_per_second", "updates_per_second", "wall_seconds")


def killed_run(
    command: str, material: Path, place: Path, kills: int, seed: int
) -> tuple[int, bool]:
    """How many kills there were before the run was done, and whether it equals the material's."""
    chance, done = random.Random(seed), 0
    shutil.copytree(material / "datasets", place / "datasets")
    begin = list(COMMANDS[command])
    resume = [begin[0], "--resume", command, "--no-figures"]
    longest = 10.0  # seconds: runs of the material take about so long
    while True:
        begun = (place / command / "config.json").exists()
        arguments = resume if begun else begin
        process = subprocess.Popen(
            [sys.executable, "-m", "element_rl.cli", *arguments],
            cwd=place,
            env=os.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if done < kills:
            began, moment = time.monotonic(), chance.uniform(1.0, longest)
            while process.poll() is None and time.monotonic() - began < moment:
                time.sleep(0.01)
        if done < kills and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            continue
        if process.wait() != 0:
            return done, False
        return done, same(RunFolder.open(place / command), RunFolder.open(material / command))


def same(run: RunFolder, other: RunFolder) -> bool:
    """Whether metrics but their timing, and the last policies, are equal bit for bit."""
    pairs = [(run.load_policy(), other.load_policy())]
    pairs.append((run.read_metrics(), other.read_metrics()))
    return all(
        mine.keys() == theirs.keys()
        and all(
            np.array_equal(mine[name], theirs[name], equal_nan=True)
            for name in mine
            if name not in TIMING
        )
        for mine, theirs in pairs
    )
