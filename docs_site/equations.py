"""Equations without a script from elsewhere: ```math blocks, which are TeX, become MathML when the
site is built.

Every current browser draws MathML by itself, and GitHub draws the same blocks, so the Markdown
reads well in both places. Inline formulas are written in Unicode.
"""

from typing import Any

from latex2mathml.converter import convert


def on_config(config: Any) -> Any:
    """Called by MkDocs: adds the fence to those that the Markdown extension knows."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault(
        "custom_fences", []
    )
    fences.append({"name": "math", "class": "equation", "format": equation})
    return config


def equation(source: str, language: str, css_class: str, options: Any, md: Any, **rest: Any) -> str:
    """The HTML of one block; every paragraph of it is an equation on a line of its own."""
    lines = [
        convert(" ".join(part.split()), display="block")
        for part in source.split("\n\n")
        if part.strip()
    ]
    return f'<div class="{css_class}">{"".join(lines)}</div>'
