"""Links from the documentation to files outside of docs/ (modules, examples, tests) lead somewhere
on the site too.

In the repository such a link opens the file. On the site it opens a page that shows the file, made
when the site is built; of a notebook its text, its code and its output.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)]*)?\)")
LANGUAGES = {".py": "python", ".js": "javascript", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs: adds a page for every file outside of docs/ that a page links to."""
    linked = {
        path
        for page in files.documentation_pages()
        for path in _outside(page.src_uri, page.content_string)
    }
    for path in sorted(linked):
        files.append(File.generated(config, _page_of(path), content=_listing(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Called by MkDocs: turns the links to such files into links to their pages."""
    folder = posixpath.dirname(page.file.src_uri)

    def to_page(link: re.Match[str]) -> str:
        path = _target(page.file.src_uri, link["path"])
        return link[0] if path is None else f"]({posixpath.relpath(_page_of(path), folder or '.')})"

    return LINK.sub(to_page, markdown)


def _outside(page: str, markdown: str) -> list[str]:
    targets = [_target(page, link["path"]) for link in LINK.finditer(markdown)]
    return [path for path in targets if path is not None]


def _target(page: str, link: str) -> str | None:
    """The file a link leads to, from the root of the repository; none where it is a page, or is
    missing."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "..")) or not (ROOT / path).is_file() else path


def _page_of(path: str) -> str:
    return f"source/{path}.md"


def _listing(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return _notebook(path, json.loads(text)["cells"])
    fence = "`````"  # longer than any in the file
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    return f"{head}{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}{fence}\n"


def _notebook(path: str, cells: list[dict[str, Any]]) -> str:
    """Its cells one after the other; links to pages of docs/ and to other notebooks lead there."""
    up = "../" * path.count("/") + "../"  # from source/ to docs/

    def to_page(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        inside = target.startswith("docs/")
        return f"]({up + target.removeprefix('docs/') if inside else link[1] + '.md'})"

    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(((?!https?:)[^)#]+)\)", to_page, source))
        else:
            parts.append(f"`````python\n{source}\n`````")
            parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="Output of the cell above" src="data:image/png;base64,{picture}">'
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"`````text\n{text}\n`````" if text else ""
