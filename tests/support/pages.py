"""Results to make pages of: hardly anything in them, or text that would break out of a page."""

import numpy as np

from element_rl.studies.engine.results import (
    Frame,
    Map,
    Results,
)

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>\"'&"


def empty_results(**parts) -> Results:
    return Results("maze", "Maze", "Where?", "smoke", "element study maze", (), **parts)


def one_map(grid: np.ndarray, name: str = "m", **options) -> Map:
    frames = (Frame.of("now", grid),)
    return Map(
        name, name, "x", "y", ((0.0, 1.0), (0.0, 1.0)), grid.shape, "value", frames, **options
    )
