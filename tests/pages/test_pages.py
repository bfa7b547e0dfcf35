"""What pages share is there, and is in the package."""

import re

import pytest

from element_rl.pages import (
    QUANTITIES,
    colour_variables,
    palette,
    script_of,
    shared_file,
)
from element_rl.plots.style import COLOURS
from element_rl.runs.metrics_log import METRIC_COLUMNS

FILES = ("drawing.js", "curves.js", "maps.js", "tables.js", "page.css")


@pytest.mark.parametrize("name", FILES)
def test_files_are_there_and_load_nothing(name: str) -> None:
    text = shared_file(name)
    assert len(text) > 1_000
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_every_colour_of_a_line_is_a_variable() -> None:
    found = dict(re.findall(r"--series-(\d): (#\w{6});", colour_variables()))
    assert found == {str(index): colour for index, colour in enumerate(COLOURS)}
    assert palette()["seriesColours"] == len(COLOURS)


def test_viridis_is_256_colours_from_violet_to_yellow() -> None:
    viridis = palette()["viridis"]
    assert len(viridis) == 256 * 6
    assert (viridis[:6], viridis[-6:]) == ("440154", "fde725")


def test_quantities_are_columns() -> None:
    assert set(QUANTITIES) - {"furthest"} <= set(METRIC_COLUMNS)


def test_a_script_keeps_its_names_to_itself() -> None:
    assert script_of("const a = 1;\n", "b();\n") == (
        '"use strict";\n(() => {\nconst a = 1;\nb();\n})();'
    )
