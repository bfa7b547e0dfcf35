"""The page of a study: it says what the results say, and works in a real browser, from disk and alone."""

import base64
import dataclasses
import re
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from browser import NAMES, Browser, find_browser
from invented import METHODS, invented_results

from element_rl.files import FileError
from element_rl.studies.figures import series_styles
from element_rl.studies.report import embedded_json, page, write_report
from element_rl.studies.report.drawings import colour_indices, drawings
from element_rl.studies.report.html_tables import html_table
from element_rl.studies.results import (
    CellRecord,
    Curves,
    Frame,
    Map,
    PathGroup,
    Paths,
    PointGroup,
    Results,
    Scatter,
    Series,
    Table,
    write_results,
)

EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>\"'&"
PIXELS = (
    "[...document.querySelectorAll('figure.maps')[{group}].querySelectorAll('.area canvas')].map(c => c.toDataURL())"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(f"NOT TESTED: the page in a browser, for none of {', '.join(NAMES)} is on PATH.")
    opened = Browser(program)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of an invented study."""
    folder = tmp_path_factory.mktemp("study")
    write_results(folder, invented_results())
    return write_report(folder).as_uri()


def empty_results(**parts) -> Results:
    return Results("maze", "Maze", "Where?", "smoke", "element study maze", (), **parts)


def one_map(grid: np.ndarray, name: str = "m", **options) -> Map:
    frames = (Frame.of("now", grid),)
    return Map(name, name, "x", "y", ((0.0, 1.0), (0.0, 1.0)), grid.shape, "value", frames, **options)


def levels(results: Results, group: int = 0, index: int = 0) -> np.ndarray:
    """The bytes of a map as the scripts read them: [frames, lines from the top, columns]."""
    drawn = drawings(results, {})["maps"][group]["maps"][index]
    cells = np.frombuffer(zlib.decompress(base64.b64decode(drawn["cells"])), np.uint8)
    return cells.reshape(len(drawn["frames"]), drawn["rows"], drawn["columns"])


# What the page is made of


def test_where_it_is_written(tmp_path) -> None:
    write_results(tmp_path, empty_results())
    assert write_report(tmp_path) == tmp_path / "report.html"
    assert (
        write_report(tmp_path, tmp_path / "elsewhere" / "a.html").read_text() == (tmp_path / "report.html").read_text()
    )
    with pytest.raises(FileError, match="run `element study` first"):
        write_report(tmp_path / "elsewhere")


def test_sections_come_in_order() -> None:
    headings = re.findall(r"<h2[^>]*>([^<]*)", page(invented_results()))
    drawn = ["Findings", "Tables", "Curves", "Maps", "Trajectories", "Scatter"]
    assert headings == [*drawn, "Cells of the grid", "Configuration", "Where it comes from", "Make it again"]
    assert re.findall(r"<h2[^>]*>([^<]*)", page(empty_results())) == ["Make it again"]


def test_json_cannot_end_its_script() -> None:
    assert "<" not in embedded_json({"label": EVIL, EVIL: [float("nan")]})


def test_methods_have_the_colours_of_the_figures() -> None:
    results = invented_results()
    indices = colour_indices(results)
    styles = series_styles(results)
    assert indices["element"] == 0
    assert indices["random"] == -1
    assert [label for label, index in sorted(indices.items(), key=lambda entry: entry[1]) if index >= 0] == list(
        styles
    )[:-1]


def test_a_row_upwards_is_a_line_upwards() -> None:
    grid = np.zeros((3, 2))
    grid[0, 0], grid[2, 1] = 1.0, 100.0  # bottom left, top right
    assert levels(empty_results(maps=(one_map(grid),))).tolist() == [[[0, 0, 254], [1, 0, 0]]]


def test_levels_are_logarithmic_where_the_map_says_so_and_can_be() -> None:
    grid = np.array([[1.0, 10.0, 100.0]])
    straight = empty_results(maps=(one_map(grid, logarithmic=False),))
    assert levels(empty_results(maps=(one_map(grid),)))[0, ::-1, 0].tolist() == [1, 127, 254]  # 127.5, to the even side
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
    drawn = drawings(empty_results(paths=(Paths("p", "P", "x", "y", (PathGroup("early", (way, way[:1])),)),)), {})
    group, entry = drawn["paths"][0]["groups"][0], drawn["paths"][0]
    assert group["lengths"] == [3, 1]  # where it stood still is one point
    steps = np.frombuffer(zlib.decompress(base64.b64decode(group["points"])), "<i2").reshape(-1, 2)[:3]
    back = np.asarray(entry["low"]) + steps.cumsum(axis=0) / entry["grid"] * np.asarray(entry["span"])
    np.testing.assert_allclose(back, [way[0], way[1], way[3]], atol=3e-4)


def test_columns_of_numbers_stand_right_and_are_sorted_as_numbers() -> None:
    rows = (("a", "1,200 ± 30", -0.5, "x"), ("b", "90 ± 1", None, None))
    made = html_table(("name", "mean ± std", "change", "95 %"), rows, "T", {"a": 3})
    assert re.findall(r'<th scope="col"( class="number")?>', made) == ["", ' class="number"', ' class="number"', ""]
    assert re.findall(r'data-sort="([^"]*)"', made) == ["a", "1200.0", "-0.5", "x", "b", "90.0", "", ""]
    assert ">−0.5" in made
    assert made.count('class="dot series-3"') == 1


def test_three_robots_six_methods_ten_frames_are_a_small_file() -> None:
    text = page(invented_results(("Ant-v5", "Hopper-v5", "Walker2d-v5"), frames=10, cells=100))
    assert len(text.encode()) < 3e6


# What a browser makes of it


def test_opens_from_disk_without_errors_or_requests(browser: Browser, study: str) -> None:
    browser.open(study)
    assert browser.problems() == []
    assert browser.requests() == [study]
    assert browser.evaluate("document.title").startswith("Coverage")
    assert browser.evaluate("document.querySelectorAll('polyline.line').length") == 2 * len(METHODS)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "map_columns"), [(400, 2), (1600, 6)])
def test_readable_on_a_telephone_and_on_a_wide_screen(
    browser: Browser, study: str, width: int, map_columns: int, dark: bool
) -> None:
    browser.open(study, width, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    browser.settle()
    assert browser.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert browser.evaluate("innerWidth") == width
    columns = "getComputedStyle(document.querySelector('.panels')).gridTemplateColumns.split(' ').length"
    assert browser.evaluate(columns) == map_columns
    # Drawings are made for the width they have: their letters are as large as they say.
    scales = (
        "[...document.querySelectorAll('.chart > svg, .area > svg')].map(s => s.clientWidth / s.viewBox.baseVal.width)"
    )
    assert all(0.98 <= scale <= 1.02 for scale in browser.evaluate(scales))
    assert browser.evaluate("parseFloat(getComputedStyle(document.querySelector('.tick')).fontSize)") >= 11
    ink = "getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]"
    assert (browser.evaluate(ink) > 128) == dark
    assert browser.problems() == []


def test_one_slider_moves_all_maps_of_its_group(browser: Browser, study: str) -> None:
    browser.open(study)
    ant, hopper = (browser.evaluate(PIXELS.format(group=group)) for group in (0, 1))
    slider = "document.querySelector('figure.maps input[type=range]')"
    label = "document.querySelector('figure.maps output').textContent"
    assert browser.evaluate(label) == "1000k steps"
    browser.evaluate(f"{slider}.focus()")
    browser.press("ArrowLeft")
    assert browser.evaluate(label) == browser.evaluate(f"{slider}.getAttribute('aria-valuetext')") == "833k steps"
    moved = browser.evaluate(PIXELS.format(group=0))
    assert all(before != after for before, after in zip(ant, moved, strict=True))
    assert browser.evaluate(PIXELS.format(group=1)) == hopper
    browser.press("End")
    assert browser.evaluate(PIXELS.format(group=0)) == ant


def test_cells_of_a_map_are_as_the_plane_says(browser: Browser, study: str) -> None:
    """One unit is as long on both axes where the map says so, whatever stands beside it."""
    for width in (400, 1600):
        browser.open(study, width)
        sizes = "[...document.querySelectorAll('.area canvas')].map(c => c.clientWidth / c.width / (c.clientHeight / c.height))"
        ratios = browser.evaluate(sizes)
        assert all(abs(ratio - 1) < 0.02 for ratio in ratios[:6] + ratios[12:])  # the robot on a plane, and the maze
        assert not any(abs(ratio - 1) < 0.02 for ratio in ratios[6:12])  # x–z: 60 m by 2 m


def test_maps_can_be_played_and_read(browser: Browser, study: str) -> None:
    browser.open(study)
    browser.evaluate("document.querySelector('.play').click()")
    assert browser.evaluate("document.querySelector('figure.maps output').textContent") == "167k steps"
    browser.evaluate("document.querySelector('.play').click()")
    place = "(() => {const c = document.querySelector('.area canvas'); c.scrollIntoView({block: 'center', behavior: 'instant'});"
    box = browser.evaluate(f"{place} const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()")
    browser.hover(box[0] + box[2] / 2, box[1] + box[3] / 2)
    browser.settle()
    read = browser.evaluate("[...document.querySelectorAll('.panel .value')].map(p => p.textContent)")
    assert all(re.fullmatch(r"\(−?[\d.]+, −?[\d.]+\): [\d.]+( × 10[⁻\d⁰¹²³⁴⁵⁶⁷⁸⁹]+)?", value) for value in read[:6])
    assert not any(read[6:])  # those of other groups say nothing


def test_a_legend_hides_and_shows(browser: Browser, study: str) -> None:
    browser.open(study)
    lines = "[...document.querySelector('figure.curves').querySelectorAll('polyline.line')].map(l => l.dataset.label)"
    button = "document.querySelector('figure.curves .legend button')"
    assert browser.evaluate(lines) == list(METHODS)
    browser.evaluate(f"{button}.click()")
    assert browser.evaluate(lines) == list(METHODS[1:])
    assert browser.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
    browser.evaluate(f"{button}.click()")
    assert browser.evaluate(lines) == list(METHODS)


@pytest.mark.parametrize("kind", ["paths", "scatters"])
def test_legends_of_planes_change_the_picture(browser: Browser, study: str, kind: str) -> None:
    browser.open(study)
    pixels = f"document.querySelector('figure.{kind} canvas').toDataURL()"
    before = browser.evaluate(pixels)
    browser.evaluate(f"document.querySelector('figure.{kind} .legend button').click()")
    assert browser.evaluate(pixels) != before
    browser.evaluate(f"document.querySelector('figure.{kind} .legend button').click()")
    assert browser.evaluate(pixels) == before


def test_curves_are_read_with_the_pointer_and_with_keys(browser: Browser, study: str) -> None:
    browser.open(study)
    chart = "document.querySelector('figure.curves .chart')"
    browser.evaluate(f"{chart}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.evaluate(f"(b => [b.x, b.y, b.width, b.height])({chart}.getBoundingClientRect())")
    browser.hover(box[0] + box[2] / 2, box[1] + box[3] / 2)
    browser.settle()
    read = browser.evaluate(f"{chart}.querySelector('.readout').innerText")
    assert "steps per seed" in read
    assert sorted(re.findall("|".join(METHODS), read)) == sorted(METHODS)
    browser.evaluate(f"{chart}.focus()")
    browser.press("End")
    rows = browser.evaluate(f"[...{chart}.querySelectorAll('.readout tr')].map(row => row.innerText)")
    assert browser.evaluate(f"{chart}.querySelector('.readout b').textContent") == "1,000,000 steps per seed"
    last = invented_results().curves[0].series[0]
    assert rows[0].split() == [
        "element",
        *f"{last.middle[-1]:,.0f} {last.low[-1]:,.0f} to {last.high[-1]:,.0f}".split(),
    ]


def test_a_click_sorts_a_table(browser: Browser, study: str) -> None:
    browser.open(study)
    column = "[...document.querySelectorAll('#tables tbody tr')].map(row => row.cells[4].textContent)"
    click = "document.querySelectorAll('#tables th button')[4].click()"
    original = browser.evaluate(column)
    browser.evaluate(click)
    falling = browser.evaluate(column)
    values = [float(text.replace(",", "")) for text in falling[:-1]]
    assert values == sorted(values, reverse=True)
    assert falling[-1] == "–"
    assert browser.evaluate("document.querySelector('#tables th[aria-sort]').cellIndex") == 4
    browser.evaluate(click)
    assert browser.evaluate(column) == [*reversed(falling[:-1]), "–"]
    browser.evaluate(click)
    assert browser.evaluate(column) == original


def test_the_command_can_be_taken(browser: Browser, study: str) -> None:
    browser.open(study)
    browser.evaluate("document.querySelector('.copy').click()")
    browser.wait_for("['Copied', 'Selected'].includes(document.querySelector('.copy').textContent)")


def test_text_of_results_stays_text(browser: Browser, tmp_path) -> None:
    grid = np.ones((2, 2))
    results = Results(
        study=EVIL,
        title=EVIL,
        question=EVIL,
        scale=EVIL,
        command=EVIL,
        cells=(CellRecord(EVIL, EVIL, EVIL, 1, 1, "failed", None, EVIL), CellRecord("b", "e", "m", 1, 1, EVIL)),
        findings=(EVIL,),
        notes=(EVIL,),
        tables=(Table("t", EVIL, (EVIL, "b"), ((EVIL, 1.0),), EVIL),),
        curves=(Curves("c", EVIL, EVIL, EVIL, (Series(EVIL, (0.0, 1.0), (1.0, 2.0)),), EVIL),),
        maps=(dataclasses.replace(one_map(grid, group=EVIL), title=EVIL, x_label=EVIL, value_label=EVIL),),
        paths=(Paths("p", EVIL, EVIL, EVIL, (PathGroup(EVIL, (((0.0, 0.0), (1.0, 1.0)),)),)),),
        scatters=(Scatter("s", EVIL, EVIL, EVIL, (PointGroup(EVIL, (1.0,), (2.0,)),), True, EVIL),),
        settings={EVIL: {EVIL: EVIL, "list": [EVIL, {EVIL: EVIL}]}},
        provenance={EVIL: EVIL, "versions": {EVIL: EVIL}},
    )
    write_results(tmp_path, results)
    browser.open(write_report(tmp_path).as_uri(), 400)
    assert browser.problems() == []
    assert browser.evaluate("window.broken === undefined && document.images.length === 0")
    assert browser.evaluate("document.title") == EVIL
    assert browser.evaluate("document.querySelector('.legend button').textContent") == EVIL
    assert browser.evaluate("document.querySelector('.command code').textContent") == EVIL
    assert browser.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_little_or_nothing_to_show_is_no_error(browser: Browser, tmp_path) -> None:
    nothing = Series("none", (0.0, 1.0), (None, None), (None, None), (None, None))
    results = empty_results(
        tables=(Table("t", "No rows", ("a",), ()),),
        curves=(
            Curves("a", "A", "x", "y", (nothing, Series("point", (0.5,), (2.0,)))),
            Curves("b", "B", "x", "y", ()),
        ),
        maps=(
            one_map(np.zeros((2, 2))),
            one_map(np.full((1, 1), 3.0), "n"),
            dataclasses.replace(one_map(np.ones((2, 2))), frames=()),
        ),
        paths=(Paths("p", "P", "x", "y", ()), Paths("q", "Q", "x", "y", (PathGroup("one", (((1.0, 1.0),), ())),))),
        scatters=(Scatter("s", "S", "x", "y", (PointGroup("none", (), ()),), True),),
    )
    write_results(tmp_path, results)
    browser.open(write_report(tmp_path).as_uri())
    assert browser.problems() == []
    assert "NaN" not in browser.evaluate("document.querySelector('main').innerHTML")
