"""Settings of a reward are checked when they are made: one sentence names one that is wrong."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin


def check_settings(config: Any, positive: Sequence[str] = (), **rules: tuple[bool, str]) -> None:
    """Refuses a word that is no choice, a layer without units, and what is given as a rule.

    positive: settings that must be above 0. rules: whether a setting is valid, and what to choose
    where it is not.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        choices = get_args(field.type) if get_origin(field.type) is Literal else ()
        if choices and value not in choices:
            _refuse(config, field.name, " or ".join(choices))
        if field.name.endswith("_sizes") and min(value, default=1) < 1:
            _refuse(config, field.name, "positive widths")
        if field.name in positive and not value > 0:
            _refuse(config, field.name, "at least 1" if field.type is int else "above 0")
        valid, wanted = rules.get(field.name, (True, ""))
        if not valid:
            _refuse(config, field.name, wanted)


def _refuse(config: Any, name: str, wanted: str) -> None:
    raise ValueError(
        f"{type(config).__name__}.{name} is {getattr(config, name)!r}; choose {wanted}."
    )
