"""What a run is doing, as its folder tells it.

A process that trains holds a lock on config.json from its first moment until its summary is
written. The system lets go of it when the process ends, however it ends. So:

    locked                                     running
    not locked, its summary has all steps      finished
    not locked, at a checkpoint that nothing   stopped: Ctrl-C or SIGTERM was answered
        but a stop asks for
    not locked otherwise                       died: killed, or ended by an error

Nothing is told by time. On file systems without locks the state is `unknown`, and the page says
when the last line was written.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import KINDS, kind_of
from element_rl.runs.watching import TRANSFER

UNITS = {"offline": "updates", "encoder": "epochs"}  # of `step`, where they are not steps


@dataclass(frozen=True)
class State:
    """What a run is doing, in a word and a sentence, and with which command it is continued."""

    word: str
    sentence: str = ""
    command: str = ""


def unit_of(kind: str) -> str:
    """What the steps of a run count."""
    return UNITS.get(kind, "steps")


def last_step(config: Mapping[str, Any]) -> int | None:
    """Where a run was meant to end; None where its settings do not say."""
    settings = config.get("settings") or {}
    steps = settings.get("epochs" if kind_of(config) == "encoder" else "steps")
    if not isinstance(steps, int):
        return None
    chunk = settings.get("chunk_steps") or 1  # it ends with a whole chunk
    return -(-steps // chunk) * chunk


def state_of(run: RunFolder, logged: int) -> State:
    """The state of a run whose metrics have come to the step `logged`."""
    training = run.is_training()
    summary, steps = run.read_summary(), last_step(run.config)
    of_steps = kind_of(run.config) != "encoder"  # whose summary counts frames
    # an older run may have ended at the step itself, not with a whole chunk
    planned = (run.config.get("settings") or {}).get("steps", 0) if of_steps else 0
    finished = bool(summary) and summary.get("steps", planned) >= planned
    if training:
        at_end = steps is not None and logged >= steps and not summary and of_steps
        return State("running", "All steps are made; a random policy is measured." * at_end)
    if finished:
        return State("finished")
    if training is None:
        sentence = "This file system has no locks, which would tell whether a process is at work."
        return State("unknown", sentence, resume_command(run))
    if not of_steps or kind_of(run.config) == "collect":  # these have no checkpoints to tell by
        sentence = "Nothing trains it now; resumed, it goes on after what it has finished."
        return State("stopped", sentence, resume_command(run))
    return _ended_early(run, logged, steps)


def _ended_early(run: RunFolder, logged: int, steps: int | None) -> State:
    """Of a run with checkpoints that nobody trains and that has not all of its summary."""
    newest = run.latest_checkpoint()
    complete = newest is not None and steps is not None and newest >= steps
    if newest is not None and newest >= logged and newest not in _planned(run) and not complete:
        sentence = f"It was told to stop, at {_at(run, newest)}, and can be resumed."
        return State("stopped", sentence, resume_command(run))
    again = "has no checkpoint yet and begins again when it is resumed"
    if complete:
        again = "has made all its steps; resumed, it writes its summary"
    elif newest is not None:
        again = f"goes on from {_at(run, newest)}, its newest checkpoint, when it is resumed"
    sentence = f"Its process was killed, or ended by an error. The run {again}."
    return State("died", sentence, resume_command(run))


def resume_command(run: RunFolder) -> str:
    """How a run is continued, as a line for a shell. Of a cell of a study: with that study."""
    folder = run.path
    if folder.name in ("transferred", "scratch"):
        # the halves of a comparison are continued together, in the folder around them
        folder = folder.parent
    for home in (folder, folder / "transferred"):
        if (home / TRANSFER).exists():
            return f"element finetune --resume {shlex.quote(str(folder))}"
    return KINDS[kind_of(run.config)].continued_with.format(shlex.quote(str(run.path)))


def _planned(run: RunFolder) -> list[int]:
    """Checkpoints that the settings ask for; a stop leaves another."""
    settings = run.config.get("settings") or {}
    every, chunk = settings.get("checkpoint_every"), settings.get("chunk_steps") or 1
    if not isinstance(every, int) or every < 1:
        return []
    return [step for step in run.checkpoint_steps() if step % every < chunk]


def _at(run: RunFolder, step: int) -> str:
    return f"{unit_of(kind_of(run.config)).removesuffix('s')} {step:,}"
