"""Damaged files of a run, and what every command that reads the run makes of them."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.trying import Attempt, attempt

DAMAGES = ("truncated", "emptied", "altered", "removed", "deep")
COMMANDS = {
    "evaluate": ("evaluate", "explore", "--episodes", "1", "--workers", "0"),
    "plot": ("plot", "explore"),
    "report": ("report", "explore"),
    "doctor": ("doctor", "explore"),
    "resume": ("explore", "--resume", "explore", "--steps", "400"),
    "collect": (
        *("collect", "explore", "--dataset", "maze/other-v0", "--steps", "60"),
        *("--out", "elsewhere", "--workers", "0", "--no-entropy"),
    ),
}
CHECKPOINTS = ("step_000000100", "step_000000200", "step_000000300")
EACH = ("policy.safetensors", "visits.safetensors", "manifest.json")
FILES = (
    *("config.json", "summary.json", "metrics.csv", "random_visits.safetensors"),
    *(f"checkpoints/{step}/{name}" for step in CHECKPOINTS for name in EACH),
    *(f"checkpoints/{CHECKPOINTS[-1]}/resume/{name}" for name in ("arrays.safetensors", EACH[2])),
)


def uses(command: str, file: str) -> bool:
    """Whether a command must notice that a file is damaged: the table of docs/design.md."""
    newest, policy, manifest = CHECKPOINTS[-1] in file, EACH[0] in file, EACH[2] in file
    in_resume = "/resume/" in file
    if file in ("summary.json", "random_visits.safetensors"):
        return command == "doctor"
    if file == "metrics.csv":
        return command in ("doctor", "plot", "report")
    return {
        "evaluate": policy or (manifest and not in_resume),
        "collect": policy or (manifest and not in_resume),
        "plot": (manifest and not in_resume) or (newest and "visits" in file),
        "report": newest and "visits" in file,
        "resume": in_resume or (newest and manifest),
        "doctor": True,
    }[command] or file == "config.json"


def damages(number: int, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """Command, file and damage: all of them in a random order, again and again."""
    every = [(c, f, d) for c in COMMANDS for f in FILES for d in DAMAGES]
    chance = random.Random(seed)
    while number > 0:
        chance.shuffle(every)
        yield from every[:number]
        number -= len(every)


def try_damage(
    command: str, file: str, damage: str, material: Path, place: Path, seconds: float, seed: int
) -> tuple[Attempt, bool]:
    """What the command did, and whether it took in silence what it uses."""
    shutil.copytree(material, place)
    try:
        harm(place / "explore" / file, damage, seed)
        done = attempt(COMMANDS[command], place, seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    # text may be altered into other text that is whole; a file without a checksum cannot tell
    tells = damage in ("truncated", "emptied", "removed", "deep") or ".safetensors" in file
    whole = file in ("metrics.csv", "summary.json", "random_visits.safetensors") or not tells
    return done, done.code == 0 and uses(command, file) and not whole


def harm(file: Path, damage: str, seed: int) -> None:
    content = bytearray(file.read_bytes())
    if damage == "removed":
        file.unlink()
        return
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "emptied":
        content = bytearray()
    elif damage == "deep":
        content = bytearray(b"[" * 100_000)
    else:
        content[random.Random(seed).randrange(len(content))] ^= 1 << (seed % 7)
    file.write_bytes(content)
