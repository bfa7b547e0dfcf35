"""YAML of the kind that the head of a card needs: objects, lists, texts and numbers.

Texts are written as JSON has them, between double quotes, with escapes for all that a reader of
YAML would fold, drop or refuse; numbers so that YAML 1.1 takes them for numbers too.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")  # that YAML takes for values
# of a double-quoted text, all but these are escaped
_ESCAPED = re.compile(
    r"[^\x20-\x7e\xa1-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


def yaml_text(value: Mapping[str, Any], indent: str = "") -> str:
    """The lines of an object."""
    lines = []
    for name, item in value.items():
        lines.append(f"{indent}{_scalar(name)}:{_after(item, indent)}")
    return "".join(lines)


def _after(item: Any, indent: str) -> str:
    """What follows a colon, to the end of its last line."""
    if isinstance(item, Mapping) and item:
        return "\n" + yaml_text(item, indent + "  ")
    if isinstance(item, Sequence) and not isinstance(item, str) and item:
        return "\n" + "".join(f"{indent}-{_entry(entry, indent)}" for entry in item)
    return f" {_scalar(item)}\n"


def _entry(entry: Any, indent: str) -> str:
    """What follows the dash of an entry of a list; its first line stands beside the dash."""
    if isinstance(entry, Mapping) and entry:
        return " " + yaml_text(entry, indent + "  ").removeprefix(indent + "  ")
    return f" {_scalar(entry)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping | Sequence) and not value:
        return '""' if isinstance(value, str) else "{}" if isinstance(value, Mapping) else "[]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: _escape(ord(found[0])), quoted)


def _escape(code: int) -> str:
    if 0xD800 <= code < 0xE000:
        code = 0xFFFD  # half of a character, which no file can hold
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    mantissa, exponent, power = text.partition("e")  # YAML 1.1 wants a point, and a sign
    if "." not in mantissa:
        mantissa += ".0"
    sign = "+" if exponent and power[0] not in "+-" else ""
    return f"{mantissa}{exponent}{sign}{power}"
