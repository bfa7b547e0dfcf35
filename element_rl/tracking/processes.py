"""Trackers beside a training: a process for each, which the training never waits for.

    with tracked(tracking, [TrackedRun(run.path)]) as trackers:
        ...                     # train
        trackers.complete()     # unless it was stopped

At the end they get time to send what is left. Those that need more, hang or have failed are ended;
the run is complete without them.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from element_rl.tracking.files import sent_files
from element_rl.tracking.follower import ORPHANED, Order, failure
from element_rl.tracking.interface import Outcome, counted_bytes
from element_rl.tracking.settings import Tracking

PATIENCE = 120.0  # seconds that trackers have at the end of a run that is done
BYTES_PER_SECOND = 1e6  # and more of them for the run's files
STOPPED_PATIENCE = 30.0  # seconds where it was stopped: nothing but metrics is left
QUIET = 3.0  # seconds of waiting of which nothing is said


@dataclass(frozen=True)
class TrackedRun:
    """A run to track; its folder may come to be later."""

    folder: Path
    home: Path | None = None  # the folder that holds it, where a command makes several runs
    more: bool = False  # whether what `home` has besides, such as figures, goes with this run

    @property
    def name(self) -> str:
        """The folder's name; of several runs of a command, with the command's folder before it."""
        folder = self.folder.resolve()
        return folder.name if self.home is None else f"{self.home.resolve().name}-{folder.name}"


def finetuned_runs(folder: Path) -> list[TrackedRun]:
    """The two runs of a fine-tuning; the comparison goes with that of the transferred policies."""
    return [
        TrackedRun(folder / "transferred", home=folder, more=True),
        TrackedRun(folder / "scratch", home=folder),
    ]


class Trackers:
    """The processes that follow the runs of a command."""

    def __init__(self, followers: Sequence["_Process"]) -> None:
        self._followers = followers
        self._outcome: Outcome = "stopped"

    def complete(self) -> None:
        """The run is done, with its figures: all of it can be sent."""
        self._outcome = "finished"

    def end(self, failed: bool) -> None:
        """Tell them that the run is over, and wait for a while."""
        outcome: Outcome = "failed" if failed else self._outcome
        for follower in self._followers:
            follower.tell(outcome)
        patience = STOPPED_PATIENCE
        if outcome == "finished":
            folders = {follower.run.folder for follower in self._followers}
            sizes = [counted_bytes(list(sent_files(folder).values())) for folder in folders]
            patience = PATIENCE + sum(sizes) / BYTES_PER_SECOND
        try:
            self._wait(patience)
        except KeyboardInterrupt:
            print(f"The trackers are left: they end within {ORPHANED:.0f} s.", file=sys.stderr)
            self.leave()
            return
        for follower in self._followers:
            follower.close()
        for sentence in dict.fromkeys(follower.done for follower in self._followers):
            if sentence is not None:
                print(sentence)

    def leave(self) -> None:
        """Do not wait for them: they come to an end as if the training had been killed."""
        for follower in self._followers:
            follower.leave()

    def _wait(self, patience: float) -> None:
        began, said = time.monotonic(), False
        while slow := [follower for follower in self._followers if follower.is_running()]:
            names = ", ".join(dict.fromkeys(follower.order.tracker for follower in slow))
            waited = time.monotonic() - began
            if waited > patience:
                print(
                    f"Not done in {patience:.0f} s, and left: {names}; the run is complete, and "
                    "--resume with --track sends what is missing.",
                    file=sys.stderr,
                )
                return
            if waited > QUIET and not said:
                said = True
                print(
                    f"Waiting for {names} to send what is left, at most {patience:.0f} s (Ctrl-C: "
                    "no longer)."
                )
            time.sleep(0.05)


@contextlib.contextmanager
def tracked(tracking: Tracking, runs: Sequence[TrackedRun]) -> Iterator[Trackers]:
    """Within this the runs are tracked."""
    followers = []
    for name in dict.fromkeys(tracking.track):
        for run in runs:
            try:
                followers.append(_Process(name, tracking.track_project, run))
            except OSError as error:
                _warn(name, run, str(error))
    trackers = Trackers(followers)
    try:
        yield trackers
    except Exception:
        trackers.end(failed=True)
        raise
    except BaseException:  # told to end at once
        trackers.leave()
        raise
    trackers.end(failed=False)


class _Process:
    """The process that brings one run to one tracker."""

    def __init__(self, tracker: str, project: str | None, run: TrackedRun) -> None:
        self.run = run
        self.order = Order(
            tracker=tracker,
            folder=str(run.folder.resolve()),
            name=run.name,
            project=project,
            home=str((run.home or run.folder).resolve()),
            more=run.more,
            process=os.getpid(),
        )
        words = json.dumps(dataclasses.asdict(self.order))
        # A session of its own: Ctrl-C reaches the training only, which says what follows from it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "element_rl.tracking.follower", words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._warned, self._closed = False, False
        self.done: str | None = None  # where the run can be seen, once all of it was sent
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def tell(self, outcome: Outcome) -> None:
        """How the run ended. The input stays open: its end would mean that the training is gone."""
        with contextlib.suppress(OSError):  # it has ended already, which is told elsewhere
            os.write(self._input.fileno(), f"{outcome}\n".encode())

    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """The process is gone after this, and what it had to say was said."""
        self._closed = True
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._listener.join(timeout=5.0)
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()

    def leave(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._input.close()

    def _listen(self) -> None:
        # Not by lines of the pipe: a thread inside one of Python's buffers keeps a process from
        # ending.
        text = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._output.fileno(), 4096):
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        if (code := self._process.wait()) != 0 and not self._closed:
            self._warn(f"it ended with code {code}")

    def _hear(self, words: dict[str, str]) -> None:
        self.done = words.get("done", self.done)
        if "warning" in words:
            self._warn(words["warning"])

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            _warn(self.order.tracker, self.run, reason)


def _warn(tracker: str, run: TrackedRun, reason: str) -> None:
    print(
        f"{tracker} failed ({failure(reason)}): the run goes on, and what is missing there is sent "
        f"when it is resumed with --resume {run.home or run.folder} --track {tracker}.",
        file=sys.stderr,
    )
