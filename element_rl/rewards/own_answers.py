"""What the functions of a user's own reward return, checked where they return it.

A reward that returns something else than `interface` says would fail deep in a compiled program,
with an error that names none of its functions.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax.numpy as jnp

Made = TypeVar("Made")


def with_checked_answers(made: Made, name: str) -> Made:
    """The same reward, of a class of its own that looks at what its functions return. `name` is
    FILE.py:FUNCTION."""
    kind: Any = type(made)

    def told(function: str, wrong: str) -> ValueError:
        try:
            line = inspect.getsourcelines(getattr(kind, function))[1]
        except (OSError, TypeError):
            line = 0
        place = name.rpartition(":")[0] + (f", line {line}" if line else "")
        return ValueError(f"{kind.__name__}.{function} in {place}, returned {wrong}.")

    def pair(function: str) -> Callable[..., Any]:
        def called(self: Any, *arguments: Any, **options: Any) -> Any:
            answer = getattr(super(checked, self), function)(*arguments, **options)
            if not (isinstance(answer, tuple) and len(answer) == 2):
                raise told(function, f"{_text(answer)}, no pair of a state and a dictionary")
            if not isinstance(answer[1], Mapping):
                raise told(function, f"{_text(answer[1])} beside the state, no dictionary")
            if function == "observe" and set(answer[1]) != (noted := set(self.note_shapes())):
                raise told(function, f"the notes {sorted(answer[1])}, and notes {sorted(noted)}")
            return answer

        return called

    def reward(self: Any, state: Any, batch: Any) -> Any:
        answer = super(checked, self).reward(state, batch)
        rows = batch.action.shape[0]
        if getattr(answer, "shape", None) != (rows,) or not jnp.issubdtype(
            answer.dtype, jnp.floating
        ):
            raise told("reward", f"{_text(answer)}, no {rows} numbers, one for each transition")
        return answer

    functions = {"observe": pair("observe"), "update": pair("update"), "reward": reward}
    checked: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__, **functions})
    same = copy.copy(made)
    object.__setattr__(same, "__class__", checked)
    return same


def _text(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of {value.dtype}, {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
