"""`element watch`: a local page that follows runs while they train."""

import signal
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from element_rl.commands.options import read_options
from element_rl.watch.folders import Watch
from element_rl.watch.server import open_server, serve

SOME_RUNS = tyro.conf.arg(metavar="RUN ...", help_behavior_hint="(required)")


@dataclass(frozen=True)
class WatchCommand:
    """Follow runs on a page in your browser: coverage map, curves and state, while they train.

    It is served to this machine alone, until Ctrl-C. Nothing is written into the runs.
    """

    # Folders of runs, or a folder with runs in it, such as runs, also of those that begin later.
    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], SOME_RUNS]]
    # Port of this machine to serve the page at; 0 for any that is free.
    # (default: the first free one from 7070 on)
    port: int | None = None
    # Open the page in the browser too.
    open: bool = False


def main(arguments: list[str]) -> int:
    args = read_options(WatchCommand, arguments, "element watch")
    if not args.runs:
        raise ValueError("Name at least one run folder to watch, or a folder with runs in it.")
    if args.port is not None and not 0 <= args.port <= 65535:
        raise ValueError(f"--port {args.port} is no port: choose one from 1024 to 65535.")
    watch = Watch(args.runs)
    server = open_server(watch, args.port)
    ended = threading.Event()

    def end(number: int, frame: Any) -> None:
        ended.set()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    number = len(watch.runs)
    runs = "1 run" if number == 1 else f"{number} runs" if number else "for runs that begin"
    print(f"Watching {runs} at {server.address} (Ctrl-C ends it)", flush=True)
    try:
        if args.open:
            webbrowser.open(server.address)
        serve(server, ended)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
