"""Whether a value out of a JSON file is of a type, as annotations have it."""

import json
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

LONGEST_VALUE = 40  # characters that are shown of a value


def fits(hint: Any, value: Any) -> bool:
    """Lists stand for tuples, text for paths, and objects for dataclasses; a whole number is a
    float too."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(choice, value) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if hint in (None, types.NoneType):
        return value is None
    if origin in (tuple, list):
        return _fits_sequence(arguments, value, any_length=origin is list)
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Mapping)):
        return isinstance(value, Mapping) or (is_dataclass(hint) and isinstance(value, hint))
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, int | float)
    if hint is Path:
        return isinstance(value, str | Path)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _fits_sequence(arguments: tuple[Any, ...], value: Any, any_length: bool) -> bool:
    if not isinstance(value, list | tuple):
        return False
    if any_length or Ellipsis in arguments:
        return all(fits(arguments[0], item) for item in value) if arguments else True
    return len(value) == len(arguments) and all(map(fits, arguments, value))


def type_text(hint: Any) -> str:
    """A type in the words of its annotation."""
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def shortened(value: Any) -> str:
    """The beginning of a value, as JSON writes it."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
