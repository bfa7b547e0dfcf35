"""Tables as text: Markdown, CSV, and lines on a terminal; and numbers as a person writes them.

write_tables    NAME.md and NAME.csv of every table of a study's results
show_tables     all of them on a terminal
cell_text       2,140 and 3.422 and –
"""

import csv
import io
import math
import re
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from element_rl.storage.files import write_text
from element_rl.studies.engine.results import Results, Table

NOTHING = "–"

Cell = str | float | int | None


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Writes every table twice, for people and for programs; the files."""
    written = []
    for table in results.tables:
        note = f"\n{_one_line(table.note)}\n" if table.note else ""
        for kind, text in (
            ("md", f"# {_one_line(table.title)}\n\n{markdown(table)}{note}"),
            ("csv", csv_text(table)),
        ):
            written.append(folder / f"{file_stem(table.name)}.{kind}")
            write_text(written[-1], text)
    return written


def markdown(table: Table) -> str:
    """The table alone: columns of numbers to the right, thousands separated, digits as many as a
    reader takes in."""
    rulers = ["---:" if numbers else "---" for numbers in _of_numbers(table)]
    rows = [[_escaped(cell_text(cell)) for cell in row] for row in table.rows]
    lines = [[_escaped(name) for name in table.columns], rulers, *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def show_tables(results: Results, console: Console | None = None) -> None:
    """Prints every table: with lines on a terminal, as Markdown into a file or a pipe."""
    console = console or Console()
    for table in results.tables:
        if console.file.isatty():
            console.print()
            console.print(terminal_table(table))
        else:
            print(f"\n{table.title}\n\n{markdown(table)}", file=console.file)


def terminal_table(table: Table) -> RichTable:
    """The table as it is drawn on a terminal; what has no room is folded, never cut."""
    drawn = RichTable(title=escape(table.title), title_justify="left")
    for name, numbers in zip(table.columns, _of_numbers(table), strict=True):
        drawn.add_column(escape(name), justify="right" if numbers else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(escape(cell_text(cell)) for cell in row))
    return drawn


def csv_text(table: Table) -> str:
    """A header and the rows; numbers with all their digits, nothing for what was not measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if _is_missing(cell) else cell for cell in row] for row in table.rows)
    return text.getvalue()


def file_stem(name: str) -> str:
    """A name of a table or a figure as that of a file, whatever is in it."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "unnamed"


def cell_text(cell: Cell) -> str:
    """A cell as a person would write it: 2,140 and 3.422 and –."""
    if _is_missing(cell):
        return NOTHING
    if isinstance(cell, float):
        return number_text(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def number_text(value: float) -> str:
    """Four digits, or as many as stand before the point; an exponent only where a person would
    write one."""
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.2e}"
    # 999.96 is written with four digits before the point
    before = len(str(int(float(f"{size:.4g}"))))
    return f"{value:,.{max(4 - before, 0)}f}"


def _is_missing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _of_numbers(table: Table) -> list[bool]:
    """Which columns have no text; an all-empty one counts as text."""
    columns = [[row[place] for row in table.rows] for place in range(len(table.columns))]
    present = [[cell for cell in column if cell is not None] for column in columns]
    return [bool(cells) and not any(isinstance(cell, str) for cell in cells) for cells in present]


def _escaped(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())
