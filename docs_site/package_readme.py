"""The README as a package index shows it: beside nothing else, so links to files of the repository
would lead nowhere.

Such a link becomes its text and the file's path, which is one in the source distribution. Figures
are left out. This is a metadata hook of Hatchling (pyproject.toml), which builds the distributions.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FIGURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", re.M)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!https?:)(?P<path>[^)#]*)(?:#[^)]*)?\)")
WHERE = "\nThe files that are named here are in the source distribution.\n"


class PackageReadme(MetadataHookInterface):
    """Called by Hatchling, for wheels and source distributions alike."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}


def without_relative_links(markdown: str) -> str:
    """The same text, in which no link depends on where it stands."""
    return LINK.sub(_as_text, FIGURE.sub("", markdown)) + WHERE


def _as_text(link: re.Match[str]) -> str:
    text, path = link["text"], link["path"]
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
