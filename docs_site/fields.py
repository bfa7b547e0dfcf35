"""Shows the comments of fields and the parameters in docstrings as tables and lists of the API
reference.

A field of a dataclass or a named tuple:

    steps: int = 1_000_000  # environment steps per seed

A line of a docstring that begins with the name of a parameter:

    capacity: transitions kept; the buffer's size.

This is an extension of Griffe, which reads the code for the site.
"""

import re
from collections.abc import Iterator
from typing import Any

import griffe

RECORDS = {"NamedTuple", "eqx.Module"}
# Markdown here takes a list for one only after an empty line, which docstrings do not spend.
LIST_IN_PARAGRAPH = re.compile(r"^(?!(?:-|\d+\.) )(\S.*)\n(?=(?:-|\d+\.) )", re.M)


class FieldsAndParameters(griffe.Extension):
    """Goes through everything when the whole package has been read."""

    def on_package(self, *, pkg: griffe.Module, **rest: Any) -> None:
        """Called by Griffe."""
        for found in _parts(pkg):
            if found.docstring is not None:
                found.docstring.value = LIST_IN_PARAGRAPH.sub(r"\1\n\n", found.docstring.value)
            if isinstance(found, griffe.Class):
                _add_fields(found)
            elif isinstance(found, griffe.Function):
                _list_parameters(found)


def _parts(parent: Any) -> Iterator[Any]:
    """All that is defined here, and not only imported."""
    for found in parent.members.values():
        if not found.is_alias:
            yield found
            if not found.is_attribute:
                yield from _parts(found)


def _add_fields(found: griffe.Class) -> None:
    if not found.has_labels("dataclass") and not RECORDS & {str(base) for base in found.bases}:
        return  # the attributes of other classes are their own business
    fields = [
        griffe.DocstringAttribute(name, description=_comment(field), annotation=field.annotation)
        for name, field in found.attributes.items()
        if name in found.members  # those of a parent stand there
        and not name.startswith("_")
        and "property" not in field.labels
        and field.annotation is not None
    ]
    if fields and found.docstring is not None:
        text = griffe.DocstringSectionText(found.docstring.value)
        found.docstring.parsed = [text, griffe.DocstringSectionAttributes(fields)]
        for field in fields:  # the table is enough: a heading for each as well would say it twice
            found.del_member(field.name)


def _comment(field: griffe.Attribute) -> str:
    """What is said behind a field, or in the lines above it."""
    lines = field.module.lines_collection[field.filepath]
    first, last = field.lineno or 1, field.endlineno or 1
    above: list[str] = []
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith("#"):
            break
        above.insert(0, line.strip())
    behind = re.findall(r"\s# .*", "\n".join(lines[first - 1 : last]))
    return " ".join(comment.strip().removeprefix("#").strip() for comment in [*above, *behind])


def _list_parameters(found: griffe.Function) -> None:
    """Lines that begin with names of parameters become a list."""
    if found.docstring is None:
        return
    parameters = {parameter.name for parameter in found.parameters}
    lines, listed = [], False
    for line in found.docstring.value.split("\n"):
        names = re.match(r"(\w+(?:, \w+)*): ", line)
        if names and set(names[1].split(", ")) <= parameters:
            shown = ", ".join(f"`{name}`" for name in names[1].split(", "))
            lines += ["", f"- {shown}: {line[names.end() :]}"]
            listed = True
        else:
            lines.append(line)
    if listed:
        found.docstring.value = "\n".join(lines).strip()
