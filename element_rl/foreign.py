"""Code of the user's that raises: environments and rewards in files of their own.

Of an exception it can be told whose code raised it: the innermost frame of its traceback that is
neither of a library nor of Python itself is ours or theirs. Theirs is shown to them without ours.
"""

import sysconfig
import traceback
from pathlib import Path

OURS = Path(__file__).parent
LIBRARIES = tuple(
    Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib", "platstdlib")
)


def raised_by_them(error: BaseException) -> bool:
    """Whether it was the user's code that raised, or called what raised."""
    frames = [frame for frame in _frames(error) if _is_theirs(frame) or _is_ours(frame)]
    return bool(frames) and _is_theirs(frames[-1])


def their_sentence(error: BaseException) -> str:
    """Which of their functions raised what."""
    frame = [frame for frame in _frames(error) if _is_theirs(frame)][-1]
    said = " ".join(str(error).split()).rstrip(".")
    return (
        f"{frame.name} in {frame.filename}, line {frame.lineno}, raised {type(error).__name__}"
        f"{': ' if said else ''}{said}."
    )


def their_traceback(error: BaseException | None) -> str:
    """The user's part of a traceback, or of that of an error's cause; empty where there is none. A
    cause that comes from another process has it as `theirs`."""
    while error is not None:
        if told := getattr(error, "theirs", ""):
            return str(told)
        frames = _frames(error)
        first = next((place for place, frame in enumerate(frames) if _is_theirs(frame)), None)
        if first is not None and not isinstance(error, KeyboardInterrupt):
            theirs = [frame for frame in frames[first:] if not _is_ours(frame)]
            lines = traceback.format_list(theirs)
            return "In your code:\n" + "".join(
                [*lines, *traceback.format_exception_only(error)]
            ).rstrip("\n")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return ""


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(OURS)


def _is_theirs(frame: traceback.FrameSummary) -> bool:
    path = Path(frame.filename)
    inside = (path.is_relative_to(folder) for folder in LIBRARIES)
    return path.is_file() and not _is_ours(frame) and not any(inside)
