"""What the functions of a user's own reward return, checked where they return it.

A reward that returns something else than `interface` says would fail deep in a compiled program,
with an error that names none of its functions. The checks look at types and shapes only, so they
cost nothing once a program is compiled.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Made = TypeVar("Made")


def with_checked_answers(made: Made, name: str) -> Made:
    """The same reward, of a class of its own that looks at what its functions return. `name` is
    FILE.py:FUNCTION."""
    kind: Any = type(made)
    _check_names(made, kind, name)

    def called(function: str, wrong: Callable[..., str]) -> Callable[..., Any]:
        """The function, whose answer is refused where `wrong` has something to say of it."""

        def checked_function(self: Any, *arguments: Any, **options: Any) -> Any:
            answer = getattr(super(checked, self), function)(*arguments, **options)
            if told := wrong(self, answer, *arguments):
                raise _refusal(kind, name, function, told)
            return answer

        return checked_function

    checks: dict[str, Callable[..., str]] = {
        "init": _wrong_state,
        "observe": _wrong_notes,
        "update": _wrong_metrics,
        "reward": _wrong_reward,
        "reward_terms": _wrong_terms,
    }
    functions = {function: called(function, wrong) for function, wrong in checks.items()}
    checked: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__, **functions})
    same = copy.copy(made)
    object.__setattr__(same, "__class__", checked)
    return same


def _refusal(kind: Any, name: str, function: str, wrong: str) -> ValueError:
    """What a function of the user's returned, and where it stands."""
    try:
        found = inspect.getattr_static(kind, function)
        line = inspect.getsourcelines(getattr(found, "fget", None) or found)[1]
    except (AttributeError, OSError, TypeError):
        line = 0
    place = name.rpartition(":")[0] + (f", line {line}" if line else "")
    return ValueError(f"{kind.__name__}.{function} in {place}, returned {wrong}.")


def _check_names(made: Any, kind: Any, name: str) -> None:
    """Refuses names of metrics and shapes of notes that are none."""
    metrics = made.metric_names
    if not (isinstance(metrics, tuple | list) and all(isinstance(own, str) for own in metrics)):
        raise _refusal(kind, name, "metric_names", f"{_text(metrics)}, no tuple of names")
    shapes = made.note_shapes()
    if not (
        isinstance(shapes, Mapping)
        and all(isinstance(note, str) for note in shapes)
        and all(_is_shape(shape) for shape in shapes.values())
    ):
        raise _refusal(kind, name, "note_shapes", f"{_text(shapes)}, no dictionary of shapes")


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(size, int) and size > 0 for size in value)


def _wrong_state(self: Any, state: Any, *_: Any) -> str:
    for leaf in jax.tree.leaves(state):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            return f"a state with {_text(leaf)} in it, where arrays are needed"
    return ""


def _wrong_pair(answer: Any) -> str:
    if not (isinstance(answer, tuple) and len(answer) == 2):
        return f"{_text(answer)}, no pair of a state and a dictionary"
    if not isinstance(answer[1], Mapping):
        return f"{_text(answer[1])} beside the state, no dictionary"
    return ""


def _wrong_notes(self: Any, answer: Any, state: Any, episode: Any, *_: Any) -> str:
    if wrong := _wrong_pair(answer):
        return wrong
    notes, shapes = answer[1], dict(self.note_shapes())
    if set(notes) != set(shapes):
        return f"the notes {sorted(notes)}, and notes {sorted(shapes)} are promised"
    rows = episode.mask.shape[0]
    for note, value in notes.items():
        if getattr(value, "shape", None) != (rows, *shapes[note]):
            return f"{_text(value)} for the note {note!r}, no {[rows, *shapes[note]]} numbers"
    return ""


def _wrong_metrics(self: Any, answer: Any, *_: Any) -> str:
    if wrong := _wrong_pair(answer):
        return wrong
    for metric, value in answer[1].items():
        if metric not in self.metric_names:
            return f"the metric {metric!r}, which is none of metric_names"
        if not isinstance(value, int | float) and getattr(value, "shape", None) != ():
            return f"{_text(value)} for the metric {metric!r}, no single number"
    return ""


def _wrong_reward(self: Any, answer: Any, state: Any, batch: Any) -> str:
    rows = batch.action.shape[0]
    return "" if _are_numbers(answer, rows) else f"{_text(answer)}, {_wanted(rows)}"


def _wrong_terms(self: Any, answer: Any, state: Any, batch: Any) -> str:
    if not isinstance(answer, Mapping):
        return f"{_text(answer)}, no dictionary of terms"
    rows = batch.action.shape[0]
    for term, value in answer.items():
        if not _are_numbers(value, rows):
            return f"{_text(value)} for the term {term!r}, {_wanted(rows)}"
    return ""


def _are_numbers(value: Any, rows: int) -> bool:
    return getattr(value, "shape", None) == (rows,) and jnp.issubdtype(value.dtype, jnp.floating)


def _wanted(rows: int) -> str:
    return f"no {rows} numbers, one for each transition"


def _text(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of {value.dtype}, {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
