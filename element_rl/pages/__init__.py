"""What pages in a browser share: the report's, and the one of `element watch`.

    drawing.js  elements, numbers as text, ticks, axes, legends, colours, packed data
    curves.js   lines with bands, a legend that hides them, a cursor that reads them
    maps.js     maps of cells side by side, in the same colours
    tables.js   tables that can be sorted, and the button that copies a command
    page.css    the style of all of it

Later scripts use earlier ones. They read their palette from a constant `DATA` that a page defines:
`colours` (label → index), and what `palette` has.
"""

from importlib import resources
from typing import Any

import matplotlib
import numpy as np

from element_rl.plots.style import COLOURS

# columns of the metrics that are drawn, if anything was logged in them → what stands along the axis
QUANTITIES = {
    "coverage": "coverage (cells)",
    "furthest": "furthest place",
    "episodic_entropy": "episodic entropy (bits)",
    "entropy_saturation": "entropy / its ceiling",
    "episode_length": "episode length (steps)",
    "extrinsic_return": "task return",
    "reward_episodic": "mean episodic reward",
    "reward_lifelong": "mean lifelong reward",
    "memory_size": "remembered states",
    "policy_entropy": "policy entropy",
    "temperature": "temperature",
    "critic_loss": "critic loss",
    "actor_loss": "actor loss",
}


def shared_file(name: str) -> str:
    """The text of one of the files above."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def script_of(*parts: str) -> str:
    """One script of several, whose names are its own."""
    return f'"use strict";\n(() => {{\n{"".join(parts)}}})();'


def palette() -> dict[str, Any]:
    """What the scripts need to know of colours: how many there are for lines, and viridis."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3]
    viridis = (colours * 255).round().astype(np.uint8)
    return {"seriesColours": len(COLOURS), "viridis": viridis.tobytes().hex()}


def colour_variables() -> str:
    """The colours of lines as CSS variables, as they are on a light page."""
    variables = " ".join(f"--series-{index}: {colour};" for index, colour in enumerate(COLOURS))
    return f":root {{ {variables} }}"
