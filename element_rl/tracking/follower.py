"""The process of one tracker: follows a run's folder and sends what is new in it.

    python -m element_rl.tracking.follower ORDER       # ORDER is JSON; see `Order`

Whoever started it holds its standard input: a word there, an `Outcome`, says that the run is over.
When the input ends, the training is gone, and this process too within `ORPHANED` seconds. Standard
output has a line of JSON for each thing to say: a `warning`, once, or that it is `done`. What the
tracker's library prints goes to RUN/tracking/TRACKER.log.

How far the run was sent stands in RUN/tracking/TRACKER.json, with the tracker's own names for it.
So every step is sent once: those that a resumed run does over again are the same numbers. What
fails is tried again, from the same file: nothing is lost while a server is away.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from element_rl.runs.kinds import kind_of
from element_rl.storage.files import read_json_object, write_json
from element_rl.tracking.files import files_of
from element_rl.tracking.interface import Facts, Outcome, Tracker
from element_rl.tracking.rows import NewSteps

TRACKING = "tracking"  # folder in the run's
POLL = 1.0  # seconds between two looks at the folder
RETRY = 30.0  # seconds after a failure
ORPHANED = 20.0  # seconds to come to an end when the training is gone
LONGEST_REASON = 300  # characters of an error: some come with a page


@dataclass(frozen=True)
class Order:
    """What the process is to follow."""

    tracker: str
    folder: str  # of the run, absolute; it may not be there yet
    name: str  # of the run
    project: str | None
    home: str  # the folder that the command was given: that of the run, or one that holds it
    more: bool  # whether what is in `home` besides is sent with the run
    process: int  # of the training


class Follower:
    """Brings a tracker up to what the folder of a run has."""

    def __init__(self, order: Order, tracker: Tracker) -> None:
        self.order, self.tracker = order, tracker
        self.folder = Path(order.folder)
        self.own = self.folder / TRACKING
        self.warned = self.begun = False
        self.stored: dict[str, Any] = {}

    def follow(self, ending: "Ending") -> None:
        """Send until the run is over, then what is left."""
        while not (self.folder / "config.json").exists():
            over = ending.wait(POLL)
            if over and not (self.folder / "config.json").exists():
                return  # it never began; a short run begins and ends between two looks
        self._open()
        while not ending.is_set():
            succeeded = self._tried(lambda: self._send(ended=False))
            ending.wait(POLL if succeeded else RETRY)
        if not self._tried(lambda: self._end(ending.outcome)):
            sys.exit(1)

    def _open(self) -> None:
        """From here on everything that is printed goes to a file of the run's."""
        with contextlib.suppress(OSError):  # a full disk; then it goes nowhere
            self.own.mkdir(exist_ok=True)
            log = os.open(self.own / f"{self.order.tracker}.log", os.O_CREAT | os.O_WRONLY, 0o644)
            os.lseek(log, 0, os.SEEK_END)
            os.dup2(log, 1)
            os.dup2(log, 2)
        with contextlib.suppress(ValueError):
            path = self._state_path()
            self.stored = dict(read_json_object(path)) if path.exists() else {}
        told = self.stored.get("step")
        self.steps = NewSteps(self.folder / "metrics.csv", told if isinstance(told, int) else -1)

    def _send(self, ended: bool) -> None:
        if not self.begun:
            self.tracker.begin(self._facts(), self.stored, self._remember)
            self.begun = True
        last = None
        try:
            for step, values in self.steps.read(ended):
                self.tracker.log(step, values)
                last = step
        finally:
            if last is not None:
                self._remember(step=last)

    def _end(self, outcome: Outcome) -> None:
        self._send(ended=True)
        if outcome == "finished":
            more = Path(self.order.home) if self.order.more else None
            self.tracker.send(files_of(self.folder, more, int(self.stored.get("step", 0))))
        say(done=f"Tracked by {self.tracker.finish(outcome)}")

    def _tried(self, work: Any) -> bool:
        """Whether something worked; if not, that is said, once."""
        try:
            work()
        except (Exception, SystemExit) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            if not self.warned:
                self.warned = True
                say(warning=failure(f"{type(error).__name__}: {error}"))
            return False
        return True

    def _facts(self) -> Facts:
        config = read_json_object(self.folder / "config.json")
        settings = config.get("settings") or {}
        kind, env = kind_of(config), config.get("env") or settings.get("env") or ""
        label = config.get("reward") or settings.get("reward") or settings.get("algorithm") or kind
        return Facts(
            folder=self.folder,
            own=self.own,
            beside=Path(self.order.home).parent,
            project=self.order.project,
            name=self.order.name,
            group=f"{env}-{label}" if env else str(label),
            kind=kind,
            config=config,
            process=self.order.process,
        )

    def _state_path(self) -> Path:
        return self.own / f"{self.order.tracker}.json"

    def _remember(self, **values: Any) -> None:
        self.stored |= values
        write_json(self._state_path(), self.stored)


def failure(reason: str) -> str:
    """An error in one line."""
    text = " ".join(reason.split()).rstrip(".")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} …"


def make_tracker(name: str) -> Tracker:
    """The tracker of that name; its library is loaded when it begins."""
    from element_rl.tracking.mlflow_run import MlflowRun
    from element_rl.tracking.trackio_run import TrackioRun
    from element_rl.tracking.wandb_run import WandbRun

    kinds: dict[str, type[Tracker]] = {
        "wandb": WandbRun,
        "trackio": TrackioRun,
        "mlflow": MlflowRun,
    }
    return kinds[name]()


def say(**words: str) -> None:
    """Tells the training something; that it is gone does not matter."""
    with contextlib.suppress(OSError):
        os.write(_channel, (json.dumps(words) + "\n").encode())


class Ending(threading.Event):
    """Set when the run is over, with how it ended."""

    outcome: Outcome = "stopped"


def listen(descriptor: int, ending: Ending) -> None:
    """Waits for the word that the run is over. Without a training that could say it, it was
    killed, and soon this process ends too, whatever its library is at."""
    words = b""
    while data := os.read(descriptor, 1024):
        words += data
        for outcome in get_args(Outcome):
            if words.decode().strip() == outcome:
                ending.outcome = outcome
                ending.set()
    ending.set()
    timer = threading.Timer(ORPHANED, os._exit, [1])
    timer.daemon = True
    timer.start()


_channel = 1  # of what is said


def main() -> None:
    global _channel
    order = Order(**json.loads(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # the training decides, and says so
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(5)
    # The library, and processes that it starts, get other ones.
    listened, _channel = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    ending = Ending()
    threading.Thread(target=listen, args=(listened, ending), daemon=True).start()
    Follower(order, make_tracker(order.tracker)).follow(ending)


if __name__ == "__main__":
    main()
