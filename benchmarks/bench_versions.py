"""Is this version as fast as another? Two checkouts train the same thing in turns, on one machine.

    git worktree add ../before COMMIT
    python -m benchmarks.bench_versions ../before .

Each round runs the command of each checkout once, in another order than the round before. A rate is
environment steps per second with one update per step, from the first logged line after learning has
begun to the last: what is compiled is compiled by then. What counts is the ratio within a round.
"""

import csv
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Settings:
    """What to compare, on what."""

    # Folder of the checkout to compare with.
    before: tyro.conf.Positional[Path]
    # Folder of the checkout that is measured.
    after: tyro.conf.Positional[Path] = Path(".")
    # Environment that is explored.
    env: str = "Ant-v5"
    # What is learned from.
    rewards: tuple[str, ...] = ("element", "extrinsic")
    # Environment steps of each run; learning begins after the first thousand.
    steps: int = 8_000
    # Times that every run is made.
    rounds: int = 5


def main(settings: Settings) -> dict[str, list[float]]:
    """Rates of `after` over those of `before`, by reward; one line each."""
    ratios: dict[str, list[float]] = {}
    for reward in settings.rewards:
        ratios[reward] = []
        for turn in range(settings.rounds):
            order = (settings.before, settings.after)
            rates = {path: rate(path, reward, settings) for path in order[:: 1 - 2 * (turn % 2)]}
            ratios[reward].append(rates[settings.after] / rates[settings.before])
            print(f"  {reward}, round {turn + 1}: {ratios[reward][-1]:.3f}", flush=True)
        low, high = min(ratios[reward]), max(ratios[reward])
        median = statistics.median(ratios[reward])
        print(f"{settings.env}, {reward}: {median:.3f} of the speed before ({low:.3f}–{high:.3f})")
    return ratios


def rate(checkout: Path, reward: str, settings: Settings) -> float:
    """Environment steps per second of a short run."""
    every = max(settings.steps // 8, 1)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            *(sys.executable, "-m", "element_rl.cli", "explore", settings.env),
            *("--reward", reward, "--steps", str(settings.steps), "--log-every", str(every)),
            *("--update-interval", "2000", "--update-steps", "200", "--replay-size", "100000"),
            *("--random-seeds", "0", "--no-figures", "--out", str(run)),
        ]
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
        subprocess.run(command, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
        with (run / "metrics.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["critic_loss"]]
    first, last = rows[0], rows[-1]
    seconds = float(last["wall_seconds"]) - float(first["wall_seconds"])
    return (int(last["step"]) - int(first["step"])) / seconds


if __name__ == "__main__":
    main(tyro.cli(Settings))
