"""Findings as a page for people, and as JSON for programs."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from element_rl.doctor.findings import Finding, exit_code
from element_rl.storage.files import to_json

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
NAME_WIDTH = 18


def printed(console: Console, title: str, findings: Iterable[Finding]) -> list[Finding]:
    """Prints findings as they come, and returns them."""
    console.print(f"[bold]{escape(title)}[/bold]")
    seen = []
    for finding in findings:
        row = Table.grid(padding=(0, 1))
        row.add_column(width=4, style=STYLES[finding.status])
        row.add_column(width=NAME_WIDTH)
        row.add_column(ratio=1, overflow="fold")
        row.add_row(finding.status, escape(finding.name), escape(finding.sentence))
        if finding.advice:
            row.add_row("", "", f"[bold]→[/bold] {escape(finding.advice)}")
        console.print(Padding(row, (0, 0, 0, 2)))
        seen.append(finding)
    console.print()
    return seen


def print_verdict(console: Console, findings: Sequence[Finding]) -> None:
    """How many were well, how many not."""
    counts = {status: sum(finding.status == status for finding in findings) for status in STYLES}
    parts = [f"{counts['ok']} well"]
    parts += [f"[yellow]{counts['warn']} to look at[/yellow]"] if counts["warn"] else []
    parts += [f"[bold red]{counts['fail']} failed[/bold red]"] if counts["fail"] else []
    console.print(", ".join(parts) + ".")


def as_json(findings: Sequence[Finding]) -> str:
    """All of it, with the exit code; numbers that are not finite are null."""
    return json.dumps(
        to_json({"exit_code": exit_code(findings), "findings": list(findings)}), indent=2
    )
