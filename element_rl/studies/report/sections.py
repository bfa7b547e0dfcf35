"""What a page says in words and tables, as HTML; places for drawings, which the scripts fill.

All text of the results passes through `text` or `html_tables`, which escape it.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from element_rl.storage.files import to_json
from element_rl.studies.engine.grid import REPORT_SEEDS
from element_rl.studies.engine.results import CellRecord, Results
from element_rl.studies.report.drawings import group_title
from element_rl.studies.report.html_tables import html_table, method_mark

Colours = Mapping[str, int]  # a method's name → which colour it has

_MARKS = {"done": "✓", "failed": "✕", "missing": "○"}


def body(results: Results, colours: Colours, facts: Mapping[str, str] | None = None) -> str:
    """Everything between the head and the scripts of a page. `facts` stand below its title instead
    of a study's."""
    drawn = {
        "curves": ("Curves", [(item.title, item.note) for item in results.curves]),
        "maps": ("Maps", [(group_title(maps), "") for maps in results.map_groups()]),
        "paths": ("Trajectories", [(item.title, "") for item in results.paths]),
        "scatters": ("Scatter", [(item.title, item.note) for item in results.scatters]),
    }
    sections = [
        ("findings", "Findings", _findings(results)),
        ("tables", "Tables", _tables(results, colours)),
        *((kind, heading, _drawings(kind, entries)) for kind, (heading, entries) in drawn.items()),
        ("cells", "Cells of the grid", _cells(results.cells, colours)),
        ("configuration", "Configuration", _configuration(results.settings)),
        ("provenance", "Where it comes from", _provenance(results.provenance)),
        ("reproduce", "Make it again", _command(results.command)),
    ]
    present = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in present)
    parts = "".join(
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{heading}</h2>{content}</section>'
        for name, heading, content in present
    )
    return (
        f'{_header(results, facts)}<nav aria-label="Sections"><ul>{links}</ul></nav><main>'
        "<noscript><p>The drawings of this page need JavaScript; its text and tables do "
        "not.</p></noscript>"
        f"{parts}</main>"
    )


def text(value: object) -> str:
    """Text with everything escaped that HTML would read as something else."""
    return escape(str(value))


def _header(results: Results, given: Mapping[str, str] | None) -> str:
    if given is not None:
        facts = [f"{text(name)} <b>{text(value)}</b>" for name, value in given.items()]
    else:
        facts = _facts_of_a_study(results)
    return (
        f'<header><h1>{text(results.title)}</h1><p class="question">{text(results.question)}</p>'
        f'<p class="facts">{"".join(f"<span>{fact}</span>" for fact in facts)}</p></header>'
    )


def _facts_of_a_study(results: Results) -> list[str]:
    facts = [f"study <b>{text(results.study)}</b>", f"scale <b>{text(results.scale)}</b>"]
    seeds = sorted({cell.seeds for cell in results.cells})
    if seeds:
        spread = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]}–{seeds[-1]}"
        facts.append(
            f"<b>{spread}</b> seed{'' if seeds == [1] else 's'} per cell, {_from(results)}"
        )
        facts.append(_states(results.cells))
    if commit := results.provenance.get("runs: commit"):
        facts.append(f"commit <b>{text(commit)}</b>")
    return facts


def _from(results: Results) -> str:
    """Of which seeds a study is."""
    first = min(cell.first_seed for cell in results.cells)
    purpose = "for reporting" if first >= REPORT_SEEDS else "of development"
    return f"from <b>{first}</b> ({purpose})"


def _states(cells: Sequence[CellRecord]) -> str:
    counts = Counter(cell.state for cell in cells)
    done = f"<b>{counts.pop('done', 0)}</b> of {len(cells)} cells done"
    return ", ".join([done, *(f"<b>{count}</b> {text(state)}" for state, count in counts.items())])


def _findings(results: Results) -> str:
    findings, notes = (
        "".join(f"<li>{text(item)}</li>" for item in items)
        for items in (results.findings, results.notes)
    )
    return (f'<ul class="findings">{findings}</ul>' if findings else "") + (
        f'<h3>How to read it</h3><ul class="notes">{notes}</ul>' if notes else ""
    )


def _tables(results: Results, colours: Colours) -> str:
    tables = "".join(
        f'<div class="block"><h3>{text(table.title)}</h3>'
        f"{html_table(table.columns, table.rows, table.title, colours)}{_note(table.note)}</div>"
        for table in results.tables
    )
    return f'<div class="blocks">{tables}</div>' if tables else ""


def _note(note: str) -> str:
    return f'<p class="note">{text(note)}</p>' if note else ""


def _drawings(kind: str, entries: Sequence[tuple[str, str]]) -> str:
    """An empty place for every drawing of a kind, with its heading."""
    figures = "".join(
        f'<figure class="{kind}" data-kind="{kind}" data-index="{index}">'
        f"<figcaption><h3>{text(title)}</h3></figcaption>"
        f'<div class="drawing"></div>{_note(note)}</figure>'
        for index, (title, note) in enumerate(entries)
    )
    return f'<div class="figures of-{kind}">{figures}</div>' if figures else ""


def _cells(cells: Sequence[CellRecord], colours: Colours) -> str:
    if not cells:
        return ""
    # heading → what a record has below it
    columns = {
        "cell": "name",
        "environment": "env",
        "method": "method",
        "seeds": "seeds",
        "from seed": "first_seed",
        "steps per seed": "steps",
        "state": "state",
        "seconds": "seconds",
        "reason": "reason",
    }
    records = [to_json(cell) | {"reason": cell.reason or None} for cell in cells]
    rows = [tuple(record[name] for name in columns.values()) for record in records]
    every = html_table(tuple(columns), rows, "Every cell", colours)
    return (
        f"<p>{_states(cells)}.</p>{_cell_grid(cells, colours)}{_failures(cells)}"
        f"<details><summary>Every cell</summary>{every}</details>"
    )


def _cell_grid(cells: Sequence[CellRecord], colours: Colours) -> str:
    """Environments down, methods across, one mark per cell."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    heads = "".join(
        f'<th scope="col">{method_mark(method, colours)}{text(method)}</th>' for method in methods
    )
    lines = []
    for env in dict.fromkeys(cell.env for cell in cells):
        fields = []
        for method in methods:
            here = [cell for cell in cells if (cell.env, cell.method) == (env, method)]
            fields.append(f"<td>{''.join(map(_cell_mark, here))}</td>")
        lines.append(f'<tr><th scope="row">{text(env)}</th>{"".join(fields)}</tr>')
    return (
        '<div class="scroll" role="region" aria-label="State of every cell" tabindex="0">'
        f'<table class="grid"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell_mark(cell: CellRecord) -> str:
    took = "" if cell.seconds is None else f", {round(cell.seconds):,} s"
    state = cell.state if cell.state in _MARKS else "other"
    described = text(f"{cell.name}: {cell.state}{took}{f' ({cell.reason})' if cell.reason else ''}")
    return (
        f'<span class="state {state}" title="{described}">'
        f'<span aria-hidden="true">{_MARKS.get(cell.state, "?")}</span>'
        f'<span class="unseen">{described}</span></span>'
    )


def _failures(cells: Sequence[CellRecord]) -> str:
    lines = "".join(
        f"<li><b>{text(cell.name)}</b> {text(cell.state)}: "
        f"{text(cell.reason or 'no reason was recorded')}</li>"
        for cell in cells
        if cell.state == "failed" or cell.reason
    )
    return f'<ul class="failures">{lines}</ul>' if lines else ""


def _configuration(settings: Mapping[str, Any]) -> str:
    if not settings:
        return ""
    return f"<details><summary>All settings</summary>{_entries(settings)}</details>"


def _entries(values: Mapping[str, Any]) -> str:
    """Plain values as a list of terms, objects folded below it."""
    plain = {
        name: value for name, value in values.items() if not (isinstance(value, Mapping) and value)
    }
    terms = "".join(
        f"<div><dt>{text(name)}</dt><dd>{_value(value)}</dd></div>" for name, value in plain.items()
    )
    folded = "".join(
        f"<details><summary>{text(name)}</summary>{_entries(value)}</details>"
        for name, value in values.items()
        if name not in plain
    )
    return (f'<dl class="terms">{terms}</dl>' if terms else "") + folded


def _value(value: Any) -> str:
    """Text as it is, a list of plain values with commas, anything else as JSON."""
    if (
        isinstance(value, list | tuple)
        and value
        and not any(isinstance(item, list | tuple | Mapping) for item in value)
    ):
        return ", ".join(map(_value, value))
    return text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _provenance(provenance: Mapping[str, Any]) -> str:
    """Commit, date and the like, then each group of facts (versions, hardware) under its own
    heading."""
    plain = {name: value for name, value in provenance.items() if not isinstance(value, Mapping)}
    groups = "".join(
        f"<div><h3>{text(name.replace('_', ' ').capitalize())}</h3>{_entries(value)}</div>"
        for name, value in provenance.items()
        if name not in plain and value
    )
    return _entries(plain) + (f'<div class="facts-groups">{groups}</div>' if groups else "")


def _command(command: str) -> str:
    return (
        f'<div class="command"><pre tabindex="0"><code>{text(command)}</code></pre>'
        '<button type="button" class="copy">Copy</button></div>'
    )
