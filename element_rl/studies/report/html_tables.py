"""Tables as HTML: numbers to the right, written as in the Markdown tables, every cell with what it
is sorted by."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

from element_rl.studies.engine.table_text import NOTHING, Cell, cell_text

# Text that reads as a number: 2,140 ± 90, (0.81 to 0.97), 95 %, −3.
_NUMBER = re.compile(
    r"^[(\[]?\s*([-−+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(?:$|[%±–)\],(]|to\b)", re.IGNORECASE
)


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str, colours: Mapping[str, int]
) -> str:
    """A table whose column heads are buttons that sort it; names of methods get the colour of their
    curves."""
    numeric = [_is_numeric([row[position] for row in rows]) for position in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{_aligned(right)}>'
        f'<button type="button" class="sort">{escape(column)}</button></th>'
        for column, right in zip(columns, numeric, strict=True)
    )
    cells = [
        "".join(_cell(value, right, colours) for value, right in zip(row, numeric, strict=True))
        for row in rows
    ]
    lines = "".join(f"<tr>{line}</tr>" for line in cells)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table class="sortable"><caption class="unseen">{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def method_mark(label: str, colours: Mapping[str, int]) -> str:
    """A dot in a method's colour, or nothing for other text."""
    return f'<i class="dot series-{colours[label]}"></i>' if label in colours else ""


def _cell(value: Cell, right: bool, colours: Mapping[str, int]) -> str:
    written, mark = cell_text(value), ""
    if written == NOTHING:
        key = ""
    elif isinstance(value, str):
        key = str(_leading_number(value) if right else value.casefold())
        written, mark = escape(written), method_mark(value, colours)
    else:
        key, written = repr(value), written.replace("-", "−")
    return f'<td{_aligned(right)} data-sort="{escape(key)}">{mark}{written}</td>'


def _aligned(right: bool) -> str:
    return ' class="number"' if right else ""


def _is_numeric(values: Sequence[Cell]) -> bool:
    present = [value for value in values if cell_text(value) != NOTHING]
    return bool(present) and all(
        not isinstance(value, str) or _NUMBER.match(value) for value in present
    )


def _leading_number(value: str) -> float:
    match = _NUMBER.match(value)
    return float(match[1].replace(",", "").replace("−", "-")) if match else math.nan
