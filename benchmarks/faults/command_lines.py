"""Command lines that nobody should write, and what becomes of them.

A command line is one that works, on small material, with one to three options changed to a value
of a pool: numbers that are huge, negative or none, words, and folders of other kinds of runs.
"""

import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmarks.faults.material import COMMANDS
from benchmarks.faults.trying import Attempt, attempt

COUNTS = (
    *("0", "1", "-1", "2", "7", "12", "999", "1e6", "99999999999", "1e11", "1e15", "1e300"),
    *("2147483648", "2147483647", "-2147483648", "1e9"),
)
NUMBERS = (
    "0",
    "1",
    "-1",
    "12",
    "1e6",
    "1e11",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e-300",
    "1e38",
    "-1e38",
)
WORDS = ("", "x", "None", "name=1", "x=nan", "max_episode_steps=0", "a=[1", "$x_{$", "\x1b[0m", "é")
FOLDERS = ("explore", "on-policy", "offline", "encoder", "datasets", ".", "nowhere", "/dev/null")
POOL = COUNTS + NUMBERS + WORDS + FOLDERS
OF_KIND = {"INT": COUNTS, "FLOAT": NUMBERS, "STR": WORDS, "PATH": FOLDERS}
FITTING = 0.8  # of all values: one of the kind that the option takes
SHORT: Mapping[str, tuple[str, ...]] = {  # what works, without what `COMMANDS` has
    "evaluate": ("evaluate", "explore", "--episodes", "1", "--workers", "0"),
    "plot": ("plot", "explore"),
    "report": ("report", "explore"),
    "finetune": (
        *("finetune", "explore", "--steps", "100", "--episodes", "1", "--candidates", "1"),
        *("--no-compare", "--workers", "0"),
    ),
    "maze": ("maze", "--seeds", "1", "--episodes", "5", "--steps", "20"),
    "doctor": ("doctor", "explore"),
    "study": ("study", "coverage", "--list"),
    "resume explore": ("explore", "--resume", "explore"),
    "resume offline": ("offline", "--resume", "offline"),
    "resume on-policy": ("on-policy", "--resume", "on-policy"),
}


def command_lines(number: int, seed: int = 0) -> Iterator[tuple[str, ...]]:
    """So many of them, the same for the same seed."""
    chance = random.Random(seed)
    working = [*COMMANDS.values(), *SHORT.values()]
    for _ in range(number):
        line = list(chance.choice(working))
        if "--out" in line and line[0] != "collect":
            line[line.index("--out") + 1] = "elsewhere"
        elif line[0] == "collect":
            line[line.index("--dataset") + 1] = "maze/other-v0"
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 0.15 and len(line) > 1 and not line[1].startswith("-"):
                line[1] = chance.choice(POOL)
                continue
            option, kind = chance.choice(options_of(line[0]))
            value = chance.choice(OF_KIND[kind] if chance.random() < FITTING else POOL)
            if option in line and line.index(option) + 1 < len(line):
                line[line.index(option) + 1] = value
            else:
                line += [option, value]
        yield tuple(word.replace("\x00", "") for word in line)


@cache
def options_of(command: str) -> tuple[tuple[str, str], ...]:
    """All options of a command that take a value, as its help has them, each with its kind."""
    with tempfile.TemporaryDirectory() as folder:
        text = attempt((command, "--help"), Path(folder) / "help", 60.0).output
    found = re.findall(r"(--[a-z][a-z0-9.-]*) \[?(INT|FLOAT|STR|PATH)\b", text)
    return tuple(sorted(set(found)))


def try_command_line(line: tuple[str, ...], material: Path, place: Path, seconds: float) -> Attempt:
    """On a copy of the material, which is removed."""
    shutil.copytree(material, place)
    try:
        return attempt(line, place, seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
