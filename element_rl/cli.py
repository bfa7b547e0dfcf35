"""The command `element`: a file in `commands` for each. A mistake of the user is one sentence and
exit code 2."""

import contextlib
import importlib
import os
import sys

# Before NumPy is loaded: LAPACK's threads spin while they wait, and where another process has one
# of the cores an eigenvalue decomposition takes 8 s instead of 0.1. XLA has threads of its own and
# is not concerned.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Sequence

from element_rl import __version__
from element_rl.foreign import raised_by_them, their_sentence, their_traceback
from element_rl.runs.stopping import INTERRUPTED

USER_ERROR = 2  # exit code when the user has to change something
# exit code when the reader of our output has left, as SIGPIPE gives it: `element --help | head -1`
NOBODY_READS = 141

COMMANDS = {
    "explore": "train agents that explore, without any task reward",
    "evaluate": "act with the policies of a run's checkpoints and measure what they do",
    "watch": "follow runs on a page in the browser while they train",
    "plot": "draw the figures of one or more runs",
    "collect": "make a dataset of what the policies of a run do",
    "offline": "learn a task from datasets, without acting",
    "finetune": "go on with the policies of a run, on a task",
    "pretrain-encoder": "train an encoder of an environment's images, for its explorers",
    "on-policy": "train explorers from rollouts: A3C on images, PPO on any environment",
    "mario": "the same on Super Mario Bros 1-1",
    "maze": "see the method on a small maze, in under a minute",
    "study": "run an experiment of the paper, from nothing to a report",
    "report": "write the page of a run, or of a study again",
    "push": "put a run or a dataset on the Hugging Face hub, or into a folder",
    "pull": "get a run or a dataset from there, checked file by file",
    "doctor": "check the installation, and whether a bonus works on an environment or in a run",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    with contextlib.suppress(OSError):  # the current folder may have been removed
        if os.getcwd() not in sys.path:
            # as `python -m` has it: my_envs:MyEnv-v0 may lie in the file my_envs.py
            sys.path.append(os.getcwd())
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                # not at the interpreter's end, where an error can no longer be answered
                sys.stdout.flush()
    except BrokenPipeError:
        # so that the end does not try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        code = _complain(sentence)
        if theirs := their_traceback(error):
            print(theirs, file=sys.stderr)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(f"element-rl {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        return _complain(f"There is no command {name!r}; choose one of {', '.join(COMMANDS)}.")
    command = importlib.import_module(f"element_rl.commands.{name.replace('-', '_')}")
    return int(command.main(rest))


def _sentence(error: Exception) -> str | None:
    """What to say of an error that the user can put right; None of all others."""
    if raised_by_them(error):
        return their_sentence(error)
    if isinstance(error, ValueError | OSError):
        return str(error)
    if not _out_of_memory(error):
        return None
    return (
        f"There is not enough memory for this ({_first_line(error)}): choose fewer or smaller "
        "things, or a machine with more. What was written before is untouched."
    )


def _out_of_memory(error: BaseException) -> bool:
    """Python's and NumPy's way to say so, or XLA's, whose errors are known by their text alone."""
    text = str(error)
    return isinstance(error, MemoryError) or (
        type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
        and ("RESOURCE_EXHAUSTED" in text or "Out of memory" in text)
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def _overview() -> str:
    lines = [
        f"  element {name:<{max(map(len, COMMANDS))}} {text}" for name, text in COMMANDS.items()
    ]
    return "\n".join(
        [
            "Exploration without reward.",
            "",
            *lines,
            "",
            "Each of them explains itself: element explore --help",
        ]
    )


def _complain(sentence: str) -> int:
    print(f"element: {sentence}", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
