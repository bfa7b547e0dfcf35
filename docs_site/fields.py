"""Fields that the code explains by a comment are explained in the API reference too.

    steps: int = 1_000_000  # environment steps per seed

Settings, states and records here are dataclasses and named tuples whose fields have such comments. This extension of Griffe,
which reads the code for the site, makes a table of them below the docstring of their class.
"""

import re
from typing import Any

import griffe

RECORDS = {"NamedTuple", "eqx.Module"}


class CommentedFields(griffe.Extension):
    """Adds the table of fields to every class that has any."""

    def on_package(self, *, pkg: griffe.Module, **rest: Any) -> None:
        """Called by Griffe when the whole package has been read."""
        for module in _modules(pkg):
            for found in module.classes.values():
                if not found.is_alias:
                    _add_fields(found)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    inner = [part for part in module.modules.values() if not part.is_alias]
    return [module, *(found for part in inner for found in _modules(part))]


def _add_fields(found: griffe.Class) -> None:
    if not found.has_labels("dataclass") and not RECORDS & {str(base) for base in found.bases}:
        return  # the attributes of other classes are their own business
    fields = [
        griffe.DocstringAttribute(name, description=_comment(field), annotation=field.annotation, value=_default(field))
        for name, field in found.attributes.items()
        if "class-attribute" in field.labels or "instance-attribute" in field.labels
        if not name.startswith("_") and "property" not in field.labels and field.annotation is not None
    ]
    if fields and found.docstring is not None:
        text = griffe.DocstringSectionText(found.docstring.value)
        found.docstring.parsed = [text, griffe.DocstringSectionAttributes(fields)]


def _comment(field: griffe.Attribute) -> str:
    """What is said behind a field, or in the lines above it."""
    lines = field.module.lines_collection[field.filepath]
    first, last = field.lineno or 1, field.endlineno or 1
    above = []
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith("#"):
            break
        above.insert(0, line.strip())
    behind = re.findall(r"\s# .*", "\n".join(lines[first - 1 : last]))
    comments = [comment.strip().removeprefix("#").strip() for comment in [*above, *behind]]
    return " ".join(comments)


def _default(field: griffe.Attribute) -> str | None:
    return None if field.value is None else str(field.value)
