"""Text without the paths of the machine that it was written on.

Settings name files: of an environment (`xml_file=/home/alice/ant.xml`), of a reward, of a dataset,
of the run that another was made from. What is pushed keeps their names, not where they were.
"""

import re
from pathlib import Path, PureWindowsPath
from typing import Any

# after the beginning, a space, or what stands before a value; up to the last slash
_FOLDERS = re.compile(
    r"""(?:(?<=[\s='"(\[,])|^)(?:~[^/\s]*|[A-Za-z]:)?[/\\]+(?=\S)(?:[^\s/\\'",;)\]]+[/\\]+)*"""
)
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*://")


def without_paths(value: Any) -> Any:
    """A value of JSON whose texts name files without their folders."""
    if isinstance(value, dict):
        return {name: without_paths(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    return without_folders(value) if isinstance(value, str) else value


def without_folders(text: str) -> str:
    """`/home/alice/ant.xml` → `ant.xml`, also within `xml_file=/home/alice/ant.xml`; relative paths
    and addresses stay."""
    if _ADDRESS.match(text):
        return text
    home = str(Path.home())
    if len(home) > 1:  # first: it may hold spaces, at which a path within a text ends
        text = re.sub(rf"{re.escape(home)}(?=[/\\]|$)", "/", text)
    if "\n" not in text and (text.startswith("/") or re.match(r"[A-Za-z]:[\\/]", text)):
        return (PureWindowsPath(text) if "\\" in text else Path(text)).name
    return _FOLDERS.sub("", text)
