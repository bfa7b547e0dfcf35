"""`element evaluate`: act with the policies of a run's checkpoints."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from element_rl.commands.bars import Bar, bar_or_lines
from element_rl.commands.options import read_options
from element_rl.commands.summaries import evaluation_table
from element_rl.evaluate import evaluate, film
from element_rl.runs.folder import RunFolder


@dataclass(frozen=True)
class Evaluate:
    """Act with the policies of a run's checkpoints.

    Trajectories, returns and entropies go to the run's evaluation folder.
    """

    # Folder of the run, made by element explore, on-policy, mario or offline.
    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    # Episodes of each checkpoint and seed.
    episodes: int = 5
    # Act with the policy's mean or likeliest action instead of sampling.
    deterministic: bool = False
    # Step of the only checkpoint to act with. (default: all checkpoints)
    checkpoint: int | None = None
    # Write an mp4 of one episode of the last policy evaluated.
    video: bool = False
    # Write the mp4 with a random policy beside it, in the same environment.
    beside_random: bool = False
    # Folder to write to. (default: RUN/evaluation)
    out: Path | None = None
    # Processes that act; 0 acts in the command's own process.
    # (default: one per core, or none where there is little to do)
    workers: int | None = None


def main(arguments: list[str]) -> int:
    args = read_options(Evaluate, arguments, "element evaluate")
    run = RunFolder.open(args.run)
    with bar_or_lines(Console(), Bar("episodes"), name="episodes") as watch:
        result = evaluate(
            run,
            args.episodes,
            args.deterministic,
            args.checkpoint,
            out=args.out,
            workers=args.workers,
            watch=watch,
        )
    evaluation_table(result)
    if args.video or args.beside_random:
        with bar_or_lines(Console(), Bar("frames"), name="film") as watch:
            path = film(
                run,
                args.deterministic,
                args.checkpoint,
                args.out,
                watch,
                beside_random=args.beside_random,
            )
        print(f"Video: {path}")
    return 0
