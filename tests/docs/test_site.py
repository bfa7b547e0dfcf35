"""The site builds without a warning; in a browser nothing of it is missing, nothing comes from
elsewhere, nothing is too wide."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, open_browser
from support.documents import ROOT

PAGES = ("index.html", "metrics.html", "api/rewards.html", "results/coverage.html")
PHONE, DESKTOP = 390, 1400


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, as on the web; from the disk it is opened too, by one test."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from open_browser("the documentation")


def test_site_has_its_pages_and_pictures(site: Path) -> None:
    assert all((site / page).exists() for page in PAGES)
    assert (site / "results" / "coverage.png").exists()
    assert "<math" in (site / "index.html").read_text()
    assert (site / "explorer-beside-random.webp").exists()


def test_notebooks_are_shown_with_their_output(site: Path) -> None:
    folder = site / "source" / "examples" / "notebooks"
    first, second, third = (path.read_text() for path in sorted(folder.glob("*.html")))
    assert all("data:image/png;base64," in page for page in (first, second, third))
    assert 'href="../../../results/sb3.html"' in second
    assert 'href="03_write_and_compare_a_reward.ipynb.html"' in second
    assert '"cell_type"' not in first


def test_lists_are_lists(site: Path) -> None:
    """A list without an empty line before it, or one within another that is indented too little,
    would be running text."""
    for page in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", page.read_text(), flags=re.S):
            assert not re.search(r"^(?:[-*]|\d+\.) | - <strong>", paragraph, flags=re.M), (
                f"{page.name}: {paragraph}"
            )
    items = re.findall(r"<li>.*?</li>", (site / "methods" / "element.html").read_text(), flags=re.S)
    assert any("Credit" in item and "<table>" in item for item in items)


def test_fields_are_listed_once(site: Path) -> None:
    """In the table of their class, and not under a heading of their own as well; the signature
    still has them."""
    page = (site / "api" / "rewards.html").read_text()
    assert page.count('id="element_rl.rewards.interface.RewardSpec"') == 1
    assert 'id="element_rl.rewards.interface.RewardSpec.state_dim"' not in page
    shown = re.split(
        r'id="element_rl\.rewards\.interface\.RewardSpec"|id="element_rl\.rewards\.interface\.Reward"',
        page,
    )[1]
    assert len(re.findall(r"\bstate_dim\b", re.sub(r"<[^>]+>", " ", shown))) == 2


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_pages_open(address: str, browser: Browser, width: int) -> None:
    for page in PAGES:
        open_page(browser, f"{address}/{page}", width)
        assert browser.problems() == [], page
        assert all(url.startswith((address, "data:", "about:")) for url in browser.requests()), page
        assert browser.evaluate("document.scrollingElement.scrollWidth") <= width, (
            f"{page} is wider than {width}"
        )
        assert browser.evaluate("[...document.images].every(image => image.naturalWidth > 0)"), page


def test_search_works_from_the_disk(site: Path, browser: Browser) -> None:
    """`make docs` names a file: what is opened so must find things as well, without a server and
    without network."""
    open_page(browser, (site / "methods" / "ngu.html").as_uri(), DESKTOP)
    browser.evaluate("document.querySelector('[data-md-component=search-query]').focus()")
    browser.send("Input.insertText", text="bandwidth")
    browser.wait_for("!!document.querySelector('.md-search-result__link')")
    assert "choosing.html" in browser.evaluate(
        "document.querySelector('.md-search-result__link').href"
    )
    assert browser.problems() == []
    assert all(url.startswith(("file:", "data:", "about:")) for url in browser.requests())


def test_figures_can_be_read_on_a_phone_and_in_the_dark(address: str, browser: Browser) -> None:
    open_page(browser, f"{address}/index.html", PHONE)
    figure = "document.querySelector('article .figure')"
    # three panels of 200 pixels
    assert browser.evaluate(f"{figure}.querySelector('img').width") >= 600
    assert browser.evaluate(f"{figure}.clientWidth") <= PHONE
    assert browser.evaluate(f"getComputedStyle({figure}).overflowX") == "auto"
    assert browser.evaluate(f"{figure}.href").endswith("results/coverage.png")
    browser.evaluate("document.body.setAttribute('data-md-color-scheme', 'slate')")
    assert browser.evaluate(f"getComputedStyle({figure}).backgroundColor") == "rgb(255, 255, 255)"


def open_page(browser: Browser, url: str, width: int) -> None:
    browser.send("Page.navigate", url="about:blank")
    browser.events.clear()
    browser.resize(width, 900)
    browser.send("Page.navigate", url=url)
    browser.wait_for("document.readyState === 'complete' && !!document.querySelector('article h1')")
    browser.settle()
