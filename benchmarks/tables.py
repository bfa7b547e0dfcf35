"""Markdown tables in docs/benchmarks.md, each between two markers, so that measuring again replaces
them."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIELDS = ("machine", "versions", "commit", "date")
PAGE = ROOT / "docs" / "benchmarks.md"


def replace_table(page: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything else of the page
    stays."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    content = page.read_text(encoding="utf-8")
    before, found_begin, rest = content.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(
            f"{page.name} has no markers '{begin}' … '{end}'; add the two lines where the table "
            "belongs."
        )
    temporary = page.with_suffix(".tmp")
    temporary.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")
    temporary.replace(page)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers, aligned to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def significant(value: float, digits: int = 3) -> str:
    """`value` with so many significant digits, without an exponent where a person would not write
    one."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
        return text
    return f"{value:.1e}"


def provenance(packages: Sequence[str]) -> dict[str, str]:
    """What a reader needs to judge a figure: machine, versions, commit, day."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.machine()}",
        "versions": ", ".join(
            [
                f"Python {platform.python_version()}",
                *(f"{name} {version(name)}" for name in packages),
            ]
        ),
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
    }


def source_line(made_with: dict[str, str]) -> str:
    return "Measured on {machine}; {versions}; commit {commit}; {date}.".format(**made_with)


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"
