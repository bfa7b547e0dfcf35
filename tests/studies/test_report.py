"""The page of a study says what the results say."""

import base64
import re
import zlib

import numpy as np
import pytest
from support.invented import invented_results
from support.pages import EVIL, empty_results, one_map

from element_rl.storage.files import FileError
from element_rl.studies.engine.results import (
    PathGroup,
    Paths,
    Results,
    write_results,
)
from element_rl.studies.report import embedded_json, page, write_report
from element_rl.studies.report.drawings import colour_indices, drawings
from element_rl.studies.report.figures import series_styles
from element_rl.studies.report.html_tables import html_table


def levels(results: Results, group: int = 0, index: int = 0) -> np.ndarray:
    """The bytes of a map as the scripts read them: [frames, lines from the top, columns]."""
    drawn = drawings(results, {})["maps"][group]["maps"][index]
    cells = np.frombuffer(zlib.decompress(base64.b64decode(drawn["cells"])), np.uint8)
    return cells.reshape(len(drawn["frames"]), drawn["rows"], drawn["columns"])


def test_where_it_is_written(tmp_path) -> None:
    write_results(tmp_path, empty_results())
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert (
        write_report(tmp_path, tmp_path / "elsewhere" / "a.html").read_text()
        == (tmp_path / "report.html").read_text()
    )
    with pytest.raises(FileError, match="run `element study` first"):
        write_report(tmp_path / "elsewhere")


def test_sections_come_in_order() -> None:
    headings = re.findall(r"<h2[^>]*>([^<]*)", page(invented_results()))
    drawn = ["Findings", "Tables", "Curves", "Maps", "Trajectories", "Scatter"]
    assert headings == [
        *drawn,
        "Cells of the grid",
        "Configuration",
        "Where it comes from",
        "Make it again",
    ]
    assert re.findall(r"<h2[^>]*>([^<]*)", page(empty_results())) == ["Make it again"]


def test_json_cannot_end_its_script() -> None:
    assert "<" not in embedded_json({"label": EVIL, EVIL: [float("nan")]})


def test_methods_have_the_colours_of_the_figures() -> None:
    results = invented_results()
    indices = colour_indices(results)
    styles = series_styles(results)
    assert indices["element"] == 0
    assert indices["random"] == -1
    assert [
        label for label, index in sorted(indices.items(), key=lambda entry: entry[1]) if index >= 0
    ] == list(styles)[:-1]


def test_a_row_upwards_is_a_line_upwards() -> None:
    grid = np.zeros((3, 2))
    grid[0, 0], grid[2, 1] = 1.0, 100.0  # bottom left, top right
    assert levels(empty_results(maps=(one_map(grid),))).tolist() == [[[0, 0, 254], [1, 0, 0]]]


def test_levels_are_logarithmic_where_the_map_says_so_and_can_be() -> None:
    grid = np.array([[1.0, 10.0, 100.0]])
    straight = empty_results(maps=(one_map(grid, logarithmic=False),))
    assert levels(empty_results(maps=(one_map(grid),)))[0, ::-1, 0].tolist() == [
        1,
        127,
        254,
    ]  # 127.5, to the even side
    assert levels(straight)[0, ::-1, 0].tolist() == [1, 24, 254]
    negative = drawings(empty_results(maps=(one_map(-grid),)), {})["maps"][0]
    assert not negative["logarithmic"]


def test_maps_of_a_group_share_colours_and_others_do_not() -> None:
    low, high = np.full((2, 2), 1.0), np.full((2, 2), 9.0)
    low[0, 0] = 3.0
    together = empty_results(maps=(one_map(low, "a", group="g"), one_map(high, "b", group="g")))
    apart = empty_results(maps=(one_map(low, "a"), one_map(high, "b")))
    assert levels(together)[0, 1, 0] == 127
    assert levels(apart)[0, 1, 0] == 254
    assert len(drawings(apart, {})["maps"]) == 2


def test_only_the_visited_part_is_kept_with_walls_and_start() -> None:
    grid = np.zeros((100, 100))
    grid[40:60, 50:60] = 2.0
    item = one_map(grid, start=(0.305, 0.5), walls=(50 * 100 + 55,))
    drawn = drawings(empty_results(maps=(item,)), {})["maps"][0]["maps"][0]
    (left, right), (bottom, top) = drawn["limits"]
    assert 0.25 < left < 0.305 < 0.6 < right < 0.65
    assert bottom < 0.5 < 0.6 < top
    assert (levels(empty_results(maps=(item,))) == 255).sum() == 1


def test_paths_come_back_where_they_were() -> None:
    way = ((0.0, 0.0), (3.0, 1.0), (3.0, 1.0), (-1.0, 2.0))
    drawn = drawings(
        empty_results(paths=(Paths("p", "P", "x", "y", (PathGroup("early", (way, way[:1])),)),)), {}
    )
    group, entry = drawn["paths"][0]["groups"][0], drawn["paths"][0]
    assert group["lengths"] == [3, 1]  # where it stood still is one point
    steps = np.frombuffer(zlib.decompress(base64.b64decode(group["points"])), "<i2").reshape(-1, 2)[
        :3
    ]
    back = np.asarray(entry["low"]) + steps.cumsum(axis=0) / entry["grid"] * np.asarray(
        entry["span"]
    )
    np.testing.assert_allclose(back, [way[0], way[1], way[3]], atol=3e-4)


def test_columns_of_numbers_stand_right_and_are_sorted_as_numbers() -> None:
    rows = (("a", "1,200 ± 30", -0.5, "x"), ("b", "90 ± 1", None, None))
    made = html_table(("name", "mean ± std", "change", "95 %"), rows, "T", {"a": 3})
    assert re.findall(r'<th scope="col"( class="number")?>', made) == [
        "",
        ' class="number"',
        ' class="number"',
        "",
    ]
    assert re.findall(r'data-sort="([^"]*)"', made) == [
        "a",
        "1200.0",
        "-0.5",
        "x",
        "b",
        "90.0",
        "",
        "",
    ]
    assert ">−0.5" in made
    assert made.count('class="dot series-3"') == 1


def test_three_robots_six_methods_ten_frames_are_a_small_file() -> None:
    text = page(invented_results(("Ant-v5", "Hopper-v5", "Walker2d-v5"), frames=10, cells=100))
    assert len(text.encode()) < 3e6
