"""Stopping at a good moment: the first Ctrl-C or SIGTERM is a request, the second an order."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = 130  # exit code of what was told to stop and can be resumed
CHECKPOINT_FIRST = "Stopping: the checkpoint is written first; once more to end at once."


@contextlib.contextmanager
def stop_signals(message: str = CHECKPOINT_FIRST) -> Iterator[Callable[[], bool]]:
    """Within this, Ctrl-C and SIGTERM ask for a stop, which the yielded function tells of; a second
    one raises."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        print(f"\n{message}", file=sys.stderr)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
