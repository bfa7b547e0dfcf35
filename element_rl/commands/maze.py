"""`element maze`: the fastest way to see the method. Under a minute, then a page of maps."""

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from element_rl.commands.bars import Bar, bar_or_lines
from element_rl.commands.options import read_options
from element_rl.runs.watching import COMPILING, Progress
from element_rl.studies.engine.results import Results
from element_rl.studies.engine.table_text import show_tables
from element_rl.studies.maze import MazeConfig
from element_rl.studies.maze.results import maze_command_outcome

SMOKE = MazeConfig(episodes=12, steps=100, seeds=2)


@dataclass(frozen=True)
class MazeCommand:
    """A 20 × 20 maze and tabular Q-learning: what do the episodic and the lifelong reward pay for,
    and where do they lead?"""

    # How many agents learn with each reward.
    seeds: int = 10
    # Episodes of each agent.
    episodes: int = 300
    # Steps of each episode.
    steps: int = 700
    # Folder for results, figures and a page.
    out: Path = Path("runs/maze")


def main(arguments: list[str]) -> int:
    command = read_options(MazeCommand, arguments, "element maze")
    config = MazeConfig(seeds=command.seeds, episodes=command.episodes, steps=command.steps)
    run_maze_study(config, command.out, " ".join(["element maze", *arguments]))
    return 0


def run_maze_study(config: MazeConfig, out: Path, written: str) -> Results:
    """Everything, with a bar over the episodes, then the tables and where the page is."""
    began = time.monotonic()
    with bar_or_lines(Console(), Bar("episodes"), config.episodes) as watch:
        watch(Progress(0, config.episodes, 0.0, {}, doing=COMPILING))

        def tell(done: int, total: int) -> None:
            watch(Progress(done, total, done / max(time.monotonic() - began, 1e-9), {}))

        results = maze_command_outcome(config, out, tell, written)
    show_tables(results)
    for sentence in results.findings:
        print(sentence)
    for figure in sorted((out / "figures").glob("maze.png")):
        print(f"\nFigure: {figure}")
    print(f"Report: {out / 'report.html'}")
    return results
