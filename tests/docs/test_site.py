"""The site builds without a warning; in a browser nothing of it is missing, nothing comes from elsewhere, nothing is too wide."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, open_browser
from documents import ROOT

PAGES = ("index.html", "metrics.html", "api/rewards.html", "results/coverage.html")
PHONE, DESKTOP = 390, 1400


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served: its search needs a server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
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


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_pages_open(address: str, browser: Browser, width: int) -> None:
    for page in PAGES:
        browser.send("Page.navigate", url="about:blank")
        browser.events.clear()
        browser.resize(width, 900)
        browser.send("Page.navigate", url=f"{address}/{page}")
        browser.wait_for("document.readyState === 'complete' && !!document.querySelector('article h1')")
        browser.settle()
        assert browser.problems() == [], page
        assert all(url.startswith((address, "data:", "about:")) for url in browser.requests()), page
        assert browser.evaluate("document.scrollingElement.scrollWidth") <= width, f"{page} is wider than {width}"
        assert browser.evaluate("[...document.images].every(image => image.naturalWidth > 0)"), page
