"""The page of a study works in a real browser, from disk and alone."""

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
import pytest
from support.browser import Browser, open_browser
from support.invented import METHODS, SEEDS, invented_results
from support.pages import EVIL, empty_results, one_map

from element_rl.studies.engine.results import (
    CellRecord,
    Curves,
    PathGroup,
    Paths,
    PointGroup,
    Results,
    Scatter,
    Series,
    Table,
    write_results,
)
from element_rl.studies.report import write_report

PIXELS = (
    "[...document.querySelectorAll('figure.maps')[{group}].querySelectorAll('.area canvas')]"
    ".map(c => c.toDataURL())"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from open_browser("the page")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of an invented study."""
    folder = tmp_path_factory.mktemp("study")
    write_results(folder, invented_results())
    return write_report(folder).as_uri()


def test_opens_from_disk_without_errors_or_requests(browser: Browser, study: str) -> None:
    browser.open(study)
    assert browser.problems() == []
    assert browser.requests() == [study]
    assert browser.evaluate("document.title").startswith("Coverage")
    assert browser.evaluate("document.querySelectorAll('polyline.line').length") == 2 * len(METHODS)
    points = 2 * len(METHODS) * SEEDS
    assert browser.evaluate("document.querySelectorAll('circle.end').length") == points


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
    columns = (
        "getComputedStyle(document.querySelector('.panels')).gridTemplateColumns.split(' ').length"
    )
    assert browser.evaluate(columns) == map_columns
    # Drawings are made for the width they have: their letters are as large as they say.
    scales = (
        "[...document.querySelectorAll('.chart > svg, .area > svg')]"
        ".map(s => s.clientWidth / s.viewBox.baseVal.width)"
    )
    assert all(0.98 <= scale <= 1.02 for scale in browser.evaluate(scales))
    assert (
        browser.evaluate("parseFloat(getComputedStyle(document.querySelector('.tick')).fontSize)")
        >= 11
    )
    ink = "getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]"
    assert (browser.evaluate(ink) > 128) == dark
    assert browser.problems() == []


def test_counts_have_whole_ticks(browser: Browser, tmp_path) -> None:
    lines = [
        Series("element", (1.0, 2.0, 3.0), values)
        for values in ((0.0, 0.5, 0.9), (600.2, 600.4, 600.7))
    ]
    curves = [
        Curves(f"c{n}", "C", "epochs", "cells", (line,), counts=True)
        for n, line in enumerate(lines)
    ]
    write_results(tmp_path, dataclasses.replace(empty_results(), curves=tuple(curves)))
    browser.open(write_report(tmp_path).as_uri(), 1600)
    written = browser.evaluate(
        "[...document.querySelectorAll('.chart > svg')].map(s => "
        "[...s.querySelectorAll('.tick')].map(t => t.textContent))"
    )
    assert [sorted(set(texts)) for texts in written] == [
        ["0", "1", "2", "3"],
        ["1", "2", "3", "600", "601"],
    ]


def test_one_slider_moves_all_maps_of_its_group(browser: Browser, study: str) -> None:
    browser.open(study)
    ant, hopper = (browser.evaluate(PIXELS.format(group=group)) for group in (0, 1))
    slider = "document.querySelector('figure.maps input[type=range]')"
    label = "document.querySelector('figure.maps output').textContent"
    assert browser.evaluate(label) == "1000k steps"
    browser.evaluate(f"{slider}.focus()")
    browser.press("ArrowLeft")
    assert (
        browser.evaluate(label)
        == browser.evaluate(f"{slider}.getAttribute('aria-valuetext')")
        == "833k steps"
    )
    moved = browser.evaluate(PIXELS.format(group=0))
    assert all(before != after for before, after in zip(ant, moved, strict=True))
    assert browser.evaluate(PIXELS.format(group=1)) == hopper
    browser.press("End")
    assert browser.evaluate(PIXELS.format(group=0)) == ant


def test_cells_of_a_map_are_as_the_plane_says(browser: Browser, study: str) -> None:
    """One unit is as long on both axes where the map says so, whatever stands beside it."""
    for width in (400, 1600):
        browser.open(study, width)
        sizes = (
            "[...document.querySelectorAll('.area canvas')]"
            ".map(c => c.clientWidth / c.width / (c.clientHeight / c.height))"
        )
        ratios = browser.evaluate(sizes)
        # the robot on a plane, and the maze
        assert all(abs(ratio - 1) < 0.02 for ratio in ratios[:6] + ratios[12:])
        assert not any(abs(ratio - 1) < 0.02 for ratio in ratios[6:12])  # x–z: 60 m by 2 m


def test_maps_can_be_played_and_read(browser: Browser, study: str) -> None:
    browser.open(study)
    browser.evaluate("document.querySelector('.play').click()")
    assert (
        browser.evaluate("document.querySelector('figure.maps output').textContent") == "167k steps"
    )
    browser.evaluate("document.querySelector('.play').click()")
    place = "(() => {const c = document.querySelector('.area canvas');"
    place += "c.scrollIntoView({block: 'center', behavior: 'instant'});"
    box = browser.evaluate(
        f"{place} const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"
    )
    browser.hover(box[0] + box[2] / 2, box[1] + box[3] / 2)
    browser.settle()
    read = browser.evaluate(
        "[...document.querySelectorAll('.panel .value')].map(p => p.textContent)"
    )
    assert all(
        re.fullmatch(r"\(−?[\d.]+, −?[\d.]+\): [\d.]+( × 10[⁻\d⁰¹²³⁴⁵⁶⁷⁸⁹]+)?", value)
        for value in read[:6]
    )
    assert not any(read[6:])  # those of other groups say nothing


def test_a_legend_hides_and_shows(browser: Browser, study: str) -> None:
    browser.open(study)
    lines = (
        "[...document.querySelector('figure.curves').querySelectorAll('polyline.line')]"
        ".map(l => l.dataset.label)"
    )
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
    rows = browser.evaluate(
        f"[...{chart}.querySelectorAll('.readout tr')].map(row => row.innerText)"
    )
    assert (
        browser.evaluate(f"{chart}.querySelector('.readout b').textContent")
        == "1,000,000 steps per seed"
    )
    last = invented_results().curves[0].series[0]
    assert rows[0].split() == [
        "element",
        *f"{last.middle[-1]:,.0f} {last.low[-1]:,.0f} to {last.high[-1]:,.0f}".split(),
    ]


def test_a_click_sorts_a_table(browser: Browser, study: str) -> None:
    browser.open(study)
    column = (
        "[...document.querySelectorAll('#tables tbody tr')].map(row => row.cells[4].textContent)"
    )
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
        cells=(
            CellRecord(EVIL, EVIL, EVIL, 1, 1, "failed", None, EVIL),
            CellRecord("b", "e", "m", 1, 1, EVIL),
        ),
        findings=(EVIL,),
        notes=(EVIL,),
        tables=(Table("t", EVIL, (EVIL, "b"), ((EVIL, 1.0),), EVIL),),
        curves=(Curves("c", EVIL, EVIL, EVIL, (Series(EVIL, (0.0, 1.0), (1.0, 2.0)),), EVIL),),
        maps=(
            dataclasses.replace(
                one_map(grid, group=EVIL), title=EVIL, x_label=EVIL, value_label=EVIL
            ),
        ),
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
        paths=(
            Paths("p", "P", "x", "y", ()),
            Paths("q", "Q", "x", "y", (PathGroup("one", (((1.0, 1.0),), ())),)),
        ),
        scatters=(Scatter("s", "S", "x", "y", (PointGroup("none", (), ()),), True),),
    )
    write_results(tmp_path, results)
    browser.open(write_report(tmp_path).as_uri())
    assert browser.problems() == []
    assert "NaN" not in browser.evaluate("document.querySelector('main').innerHTML")
