"""Settings from elsewhere: of an earlier run, which `dataclasses.asdict` and `files.to_json` took
apart, and pairs of a name and a value."""

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from element_rl.storage.files import Entries
from element_rl.storage.types import fits, shortened, type_text

Settings = TypeVar("Settings")


def settings_from_json(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """A dataclass from its JSON. Lists become tuples, text becomes a path where the field wants
    one, and dictionaries become the dataclasses they were."""
    hints = get_type_hints(kind)
    if unknown := sorted(set(values) - set(hints)):
        raise ValueError(
            f"{kind.__name__} has no setting {unknown[0]!r}: it was written by another version."
        )
    required = (
        field.name
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING
    )
    for name in required:
        if name not in values:
            raise ValueError(f"{kind.__name__} needs the setting {name!r}, which is missing.")
    for name, value in values.items():
        if not fits(hints[name], value):
            file = f" in {values.path}" if isinstance(values, Entries) else ""
            raise ValueError(
                f"The setting {name!r} of {kind.__name__}{file} is {shortened(value)}, no "
                f"{type_text(hints[name])}."
            )
    return kind(**{name: _value(hints[name], value) for name, value in values.items()})


def options_of(
    settings: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "--"
) -> list[str]:
    """The options with which a command gets these settings, of which it has the defaults; both as
    JSON has them."""
    options: list[str] = []
    for name, value in settings.items():
        if name not in defaults or value is None or value == defaults[name]:
            continue
        flag = prefix + name.replace("_", "-")
        if isinstance(value, Mapping):
            options += options_of(value, defaults[name] or {}, f"{flag}.")
        elif isinstance(value, bool):
            options.append(flag if value else f"--no-{flag.removeprefix('--')}")
        elif isinstance(value, list | tuple):
            options += [flag, *map(str, value)]
        else:
            options += [flag, str(value)]
    return options


def named_values(
    option: str, pairs: Sequence[str], example: str, dotted: bool = False
) -> dict[str, Any]:
    """NAME=VALUE pairs given with an option, their values read as JSON; a word that is no JSON
    stays a string. `dotted`: a name may say whose it is, as in rnd.learning_rate=1e-3."""
    parsed = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        *whose, plain = name.split(".") if dotted else [name]
        named = plain.isidentifier() and all(
            part.replace("-", "_").isidentifier() for part in whose
        )
        if not equals or not named or len(whose) > 1:
            raise ValueError(f"{option} takes NAME=VALUE pairs, e.g. {example}; got {pair!r}.")
        try:
            value = json.loads(text if text not in ("True", "False") else text.lower())
            parsed[name] = tuple(value) if isinstance(value, list) else value
        except json.JSONDecodeError:
            parsed[name] = text
    return parsed


def with_missing(pairs: Sequence[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """NAME=VALUE pairs after those of the values that they do not name."""
    named = {pair.partition("=")[0] for pair in pairs}
    missing = (
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
        if name not in named
    )
    return (*missing, *pairs)


def _value(hint: Any, value: Any) -> Any:
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, Mapping):
        kinds = [choice for choice in choices if isinstance(choice, type) and is_dataclass(choice)]
        return settings_from_json(kinds[0], value) if kinds else dict(value)
    if isinstance(value, list):
        tuples = [choice for choice in choices if get_origin(choice) is tuple]
        entry = get_args(tuples[0])[0] if tuples else Any
        return tuple(_value(entry, part) for part in value)
    return (
        Path(value) if isinstance(value, str) and Path in choices and str not in choices else value
    )
