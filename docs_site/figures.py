"""Figures open in full size when they are clicked, and wide ones can be told from others, which a
style sheet cannot.

On a phone a row of three panels is unreadable when it is as narrow as the page: wide figures scroll
there (docs/site.css).
"""

import posixpath
import re
import struct
from pathlib import Path
from typing import Any

FIGURE = re.compile(r'<img [^>]*src="(?P<source>[^":]+\.png)"[^>]*>')
WIDE = 2.0  # times as wide as high


def on_page_content(html: str, page: Any, config: Any, **rest: Any) -> str:
    """Called by MkDocs: puts a link around every figure."""
    folder = Path(config.docs_dir, posixpath.dirname(page.file.src_uri))

    def linked(figure: re.Match[str]) -> str:
        width, height = _size(folder / figure["source"])
        kind = "figure wide" if width > WIDE * height else "figure"
        return f'<a class="{kind}" href="{figure["source"]}">{figure[0]}</a>'

    return FIGURE.sub(linked, html)


def _size(path: Path) -> tuple[int, int]:
    """Width and height, which stand at the same place in every PNG."""
    with path.open("rb") as file:
        return struct.unpack(">16xII", file.read(24))
