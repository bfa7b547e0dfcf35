"""One attempt at one cell: begins it, or continues it from its checkpoint, in a process of its own.

    python -m element_rl.studies.engine.attempt FOLDER       # FOLDER/cell.json says what to run

A process of its own, because what a cell can do to one (run out of memory, crash in a simulator)
must not reach the others. The exit code tells how it went; a failure's reason is in failure.json,
unless the process had no time to write it. Whoever started the process holds its standard input:
when that ends, the cell stops at a checkpoint.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from element_rl.runs.stopping import INTERRUPTED, stop_signals
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_json_object, write_json
from element_rl.storage.settings import settings_from_json
from element_rl.studies.engine.grid import FAILURE, Cell, cell_folder, is_done
from element_rl.studies.engine.jobs import job_from_json, job_to_json, perform, runs_of
from element_rl.tracking.processes import tracked
from element_rl.tracking.settings import NOT_TRACKED, Tracking

CELL = "cell.json"
LOG = "cell.log"  # what the attempt printed, with tracebacks
FAILED = 1
PATIENCE = 60.0  # seconds for a process that was training here and is writing its last checkpoint
LONGEST_REASON = 500  # characters: some errors come with a page


def prepare(out: Path, cell: Cell, tracking: Tracking = NOT_TRACKED) -> Path:
    """The cell's folder, with a note of what to run there."""
    folder = cell_folder(out, cell)
    folder.mkdir(parents=True, exist_ok=True)
    job = {"env": cell.env, "method": cell.method, **job_to_json(cell.config)}
    write_json(folder / CELL, job | {"tracking": tracking})
    return folder


def attempt(
    folder: Path, stop: Callable[[], bool] = lambda: False, patience: float = PATIENCE
) -> None:
    """Work on the cell in a folder until it is done; what keeps it from that is noted in the
    folder, then raised."""
    if is_done(folder):
        return
    (folder / FAILURE).unlink(missing_ok=True)
    try:
        cell = read_json_object(folder / CELL)
        job, tracking = job_from_json(cell), settings_from_json(Tracking, cell.get("tracking", {}))
        with tracked(tracking, runs_of(job, folder)) as trackers:
            perform(job, folder, stop, patience)
            trackers.complete()
    except Interrupted:
        raise
    except Exception as error:
        note_failure(folder, f"{type(error).__name__}: {error}")
        raise


def note_failure(folder: Path, reason: str) -> None:
    """Leave word of why the cell is not done."""
    text = " ".join(reason.split())
    write_json(
        folder / FAILURE,
        {"reason": text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} …"},
    )


def main(folder: Path) -> int:
    orphaned = threading.Event()

    def wait_for_the_end() -> None:
        # Not sys.stdin: a thread that is inside one of Python's buffers keeps the process from
        # ending.
        while os.read(0, 1024):
            pass
        orphaned.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    try:
        with stop_signals("Stopping at a checkpoint.") as told:
            attempt(folder, lambda: told() or orphaned.is_set())
    except (Interrupted, KeyboardInterrupt):
        return INTERRUPTED
    except Exception:
        traceback.print_exc()  # into the cell's log; the sentence is in failure.json
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
