"""The documentation as its tests read it: pages, their blocks of code, and the commands in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the line of its first; files that are shown in
    them are read."""
    found = []
    fences = re.finditer(
        rf"^( *)```{language}\n(.*?)^ *```$", document.read_text(), flags=re.S | re.M
    )
    for fence in fences:
        line = document.read_text().count("\n", 0, fence.start(2)) + 1
        code = "\n".join(text.removeprefix(fence[1]) for text in fence[2].split("\n"))
        found.append(
            (line, re.sub(r'--8<-- "(.+?)"', lambda shown: (ROOT / shown[1]).read_text(), code))
        )
    return found


def without_fences(document: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", document.read_text(), flags=re.S | re.M)


def spans(document: Path) -> list[str]:
    """What is set as `code` within the text."""
    return re.findall(r"(?<!`)`([^`]+)`(?!`)", without_fences(document))


def commands(document: Path) -> list[list[str]]:
    """The arguments of every `element …` in blocks and in the text, without its comment."""
    lines = [
        line
        for _, block in blocks(document, "sh")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += [" ".join(span.split()) for span in spans(document)]
    found = [shlex.split(line, comments=True) for line in lines if re.match(r"element [a-z]", line)]
    return [arguments[1:] for arguments in found]


def table(document: Path, heading: str) -> dict[str, list[str]]:
    """The first table below a heading: the first cell of each row, and the others."""
    below = re.split(rf"^#+ {re.escape(heading)}$", document.read_text(), flags=re.M)[1]
    found = re.search(r"(?:^\|.*\n)+", below, flags=re.M)
    assert found, f"{name_of(document)} has no table below {heading}"
    return _rows(found[0])


def rows_of(document: Path, first_cell: str) -> dict[str, list[str]]:
    """The table whose heading begins with these words."""
    heading = rf"^\| {re.escape(first_cell)}.*\n(?:\|.*\n)+"
    found = re.search(heading, document.read_text(), flags=re.M)
    assert found, f"{name_of(document)} has no table that begins with {first_cell}"
    return _rows(found[0])


def _rows(lines: str) -> dict[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()[2:]
    ]
    return {first: others for first, *others in cells}
