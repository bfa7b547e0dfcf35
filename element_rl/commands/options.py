"""How every command reads its options: a dataclass in, the user's choices out.

    @dataclass(frozen=True)
    class Settings:
        # Environment steps per agent.
        steps: int = 1_000_000
        # Weight of the lifelong reward; 0 for the episodic reward alone. (default: 0.5)
        beta: float | None = None

    settings = read_options(Settings, arguments, "element explore")

The comment above a field is the option's text in `--help`. A default of `None` or of nothing says
nothing: there the comment ends with what will be used, in the form shown. The comment of an
argument that is needed on some occasions only ends with "(required, unless …)": left out, it is
empty, and the dataclass has to refuse that. Counts may be written as 1e6, numbers are finite, and
no type is shown as "or None", though the word None is taken for it. Numbers in comments are shown
without commas, at which tyro would break a line.
"""

import dataclasses
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
    UnsupportedTypeAnnotationError,
)

Options = TypeVar("Options")
HelpText = str | Callable[[], str | None] | None

# how tyro writes a default of None, one of no values, and an empty text
NO_VALUE = ("None", "", "''")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
WRITTEN_HINT = re.compile(r"\s*(\((default: |required, unless ).*\))$")
LARGEST_COUNT = 2**31 - 1  # steps, rows and seeds are numbered with 32 bits on the device
AS_TYRO_DOES = "as tyro does"  # among a type's markers: our rule for dataclasses is asking tyro's


def read_options(
    kind: type[Options],
    arguments: Sequence[str],
    command: str,
    default: Options | None = None,
    description: str | None = None,
    defaults_of: Mapping[type, str] | None = None,
) -> Options:
    """The dataclass as the command line has it. `default` is taken where nothing is said.

    `defaults_of`: what the help says of every default in a dataclass within it, whose values there
    are not those that will be used.
    """
    rules = _rules(defaults_of or {})
    options: dict[str, Any] = {"prog": command, "description": description, "registry": rules}
    if default is not None:
        options["default"] = default
    read: Options = tyro.cli(kind, args=arguments, **options)
    return read


def _rules(defaults_of: Mapping[type, str]) -> ConstructorRegistry:
    rules = ConstructorRegistry()
    rules.struct_rule(lambda info: described_fields(info, defaults_of))
    rules.primitive_rule(count)
    rules.primitive_rule(finite_number)
    rules.primitive_rule(value_or_none)
    return rules


def described_fields(
    info: StructTypeInfo, defaults_of: Mapping[type, str]
) -> StructConstructorSpec | None:
    """Fields as tyro finds them, with the defaults that their comments tell of."""
    if not dataclasses.is_dataclass(info.type) or AS_TYRO_DOES in info.markers:
        return None
    asked = dataclasses.replace(info, markers=(*info.markers, AS_TYRO_DOES))
    found = ConstructorRegistry.get_struct_spec(asked)
    if not isinstance(found, StructConstructorSpec):
        return None
    default = defaults_of.get(info.type)
    return dataclasses.replace(
        found, fields=tuple(described(field, default) for field in found.fields)
    )


def described(field: StructFieldSpec, default: str | None = None) -> StructFieldSpec:
    """A field whose help tells the default that will be used, unless it has a hint of its own."""
    kind, *annotations = (
        get_args(field.type) if hasattr(field.type, "__metadata__") else (field.type,)
    )
    shown = tyro.conf.arg(
        help_behavior_hint=lambda value: (
            default_hint(field.helptext, value) if default is None else f"(default: {default})"
        )
    )
    annotated: Any = Annotated[(kind, shown, *annotations)]
    given = field.default
    if kind is str and _is_missing(given) and WRITTEN_HINT.search(read_text(field.helptext)):
        given = ""  # of what tyro itself requires, it says no more than that
    return dataclasses.replace(
        field, type=annotated, default=given, helptext=lambda: sentence(field.helptext)
    )


def sentence(text: HelpText) -> str | None:
    """What an option's comment says before it comes to the default."""
    return WRITTEN_HINT.sub("", read_text(text)) or None


def default_hint(text: HelpText, value: str) -> str:
    """What is printed behind an option's text: its default, or what stands for none."""
    written = WRITTEN_HINT.search(read_text(text))
    return written[1] if written and value in NO_VALUE else f"(default: {value})"


def read_text(text: HelpText) -> str:
    """The text of a field's comment, in one line. (tyro looks for it when help is asked for.)"""
    words = ((text() if callable(text) else text) or "").split()
    return THOUSANDS.sub("", " ".join(words))


def _is_missing(default: Any) -> bool:
    return any(default is missing for missing in (tyro.MISSING, tyro.MISSING_NONPROP))


def count(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Integers, 1e6 among them."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def finite_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    """Numbers but nan and inf, with which nothing can be learned."""
    if info.type is not float:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT",
        instance_from_str=lambda words: _finite(words[0]),
        is_instance=lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def _finite(text: str) -> float:
    number = _number(text)
    if not math.isfinite(number):
        raise ValueError(f"a finite number is needed, such as 0.5 or 3e-4, got {text!r}.")
    return number


def whole_number(text: str) -> int:
    """250000, 250_000 and 2.5e5 are the same number; 1.5 is none, and 1e11 is more than can be
    counted."""
    try:
        number = int(text)
    except ValueError:
        approximate = _number(text)
        if not approximate.is_integer():
            raise ValueError(
                f"a whole number is needed, such as 250000 or 2.5e5, got {text!r}."
            ) from None
        number = int(approximate)
    if abs(number) > LARGEST_COUNT:
        raise ValueError(f"a whole number of at most {LARGEST_COUNT} is needed, got {text!r}.")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def value_or_none(
    info: PrimitiveTypeInfo,
) -> PrimitiveConstructorSpec[Any] | UnsupportedTypeAnnotationError | None:
    """`float | None` is shown as FLOAT. The word None is taken too."""
    choices = get_args(info.type) if info.type_origin in (Union, types.UnionType) else ()
    kinds = [choice for choice in choices if choice is not types.NoneType]
    if len(kinds) != 1 or len(kinds) == len(choices):
        return None
    found = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kinds[0], info.markers))
    if isinstance(found, UnsupportedTypeAnnotationError):
        return found
    several = isinstance(found.nargs, int) and found.nargs != 1

    def read(words: list[str]) -> Any:
        if words == ["None"]:
            return None
        if several and len(words) != found.nargs:
            raise ValueError(f"{found.nargs} values are needed, got {len(words)}.")
        return found.instance_from_str(words)

    def written(value: Any) -> list[str]:
        return ["None"] if value is None else found.str_from_instance(value)

    return dataclasses.replace(
        found,
        nargs="*" if several else found.nargs,
        choices=None if found.choices is None else (*found.choices, "None"),
        instance_from_str=read,
        is_instance=lambda value: value is None or found.is_instance(value),
        str_from_instance=written,
    )
