"""The campaign: so many faults of each kind, and a Markdown table of what came of them."""

import importlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.faults.command_lines import command_lines, try_command_line
from benchmarks.faults.damages import damages, try_damage
from benchmarks.faults.foreign import foreign_cases, reward_cases, try_foreign
from benchmarks.faults.kills import KILLED, killed_run
from benchmarks.faults.material import make_material
from benchmarks.tables import markdown_table, provenance
from element_rl.cli import COMMANDS

PER_RUN = 4  # kills of one run
MOST_UNTOUCHED = 20  # runs that may be done before they are killed


@dataclass(frozen=True)
class Settings:
    """How many of each; the defaults take about an hour on two cores."""

    # Kills of runs of explore, on the host and in worlds, of on-policy and offline.
    kills: int = 200
    # Damaged files, each met by one command.
    damages: int = 2_000
    # Fuzzed command lines.
    command_lines: int = 1_000
    # Environments with one fault each.
    foreign: int = 60
    # Rewards of a user's own with one fault each.
    rewards: int = 40
    # Seed of all that is random.
    seed: int = 0
    # Seconds after which a command that is still at work is ended.
    seconds: float = 60.0


def main(settings: Settings) -> str:
    """Everything, with a line for every fault that was found; the table."""
    for name in COMMANDS:  # so that a try costs no imports
        importlib.import_module(f"element_rl.commands.{name.replace('-', '_')}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        material = make_material(place / "material")
        where = place, settings.seconds
        rows = [
            kill_row(settings, material, place),
            row("damaged files × commands", damage_faults(settings, material, place)),
            row("fuzzed command lines", line_faults(settings, material, place)),
            row("environments that fail", foreign_faults(foreign_cases(settings.foreign), *where)),
            row("rewards that fail", foreign_faults(reward_cases(settings.rewards), *where)),
        ]
    table = markdown_table(("fault", "tries", "tracebacks", "in silence", "other"), rows)
    about = provenance(("jax", "gymnasium"))
    return f"{table}\n\nMeasured on {about['machine']}; commit {about['commit']}."


def row(name: str, faults: Iterable[str]) -> tuple[str, ...]:
    found = Counter(faults)
    silent = found["without a word"] + found["accepted in silence"]
    other = found.total() - found[""] - found["traceback"] - silent
    return (name, *(f"{n:,}" for n in (found.total(), found["traceback"], silent, other)))


def told(fault: str, what: Any) -> str:
    if fault:
        print(f"{fault}: {what}", flush=True)
    return fault


def kill_row(settings: Settings, material: Path, place: Path) -> tuple[str, ...]:
    kills = different = number = 0
    while kills < settings.kills and number < settings.kills + MOST_UNTOUCHED:
        command, many = KILLED[number % len(KILLED)], min(PER_RUN, settings.kills - kills)
        home = place / f"killed-{number}"
        home.mkdir()
        made, equal = killed_run(command, material, home, many, settings.seed + number)
        # a run that was done before its moment came was not killed
        kills, number, different = kills + made, number + 1, different + (not equal)
        told("" if equal else "another outcome", f"{command} killed {made} times")
    return ("kills (other: runs with another outcome)", f"{kills:,}", "0", "0", f"{different:,}")


def damage_faults(settings: Settings, material: Path, place: Path) -> Iterable[str]:
    for index, (command, file, damage) in enumerate(damages(settings.damages, settings.seed)):
        done, silent = try_damage(
            command, file, damage, material, place / "damaged", settings.seconds, index
        )
        fault = done.fault or ("accepted in silence" if silent else "")
        yield told(fault, f"{file} {damage}, {done}")


def line_faults(settings: Settings, material: Path, place: Path) -> Iterable[str]:
    for line in command_lines(settings.command_lines, settings.seed):
        done = try_command_line(line, material, place / "fuzzed", settings.seconds)
        yield told(done.fault, done)


def foreign_faults(
    cases: Iterable[tuple[str, str, str]], place: Path, seconds: float
) -> Iterable[str]:
    for case in cases:
        done = try_foreign(*case, place / "foreign", seconds)
        yield told(done.fault, done)


if __name__ == "__main__":
    campaign: Callable[[Settings], str] = main
    print(campaign(tyro.cli(Settings)))
