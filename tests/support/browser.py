"""A headless Chromium driven over the DevTools protocol through a pipe: JSON messages that end with
a zero byte.

Needs nothing but the browser. https://chromedevtools.github.io/devtools-protocol
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",  # containers have little of it
    "--hide-scrollbars",  # so that 400 pixels are 400 pixels
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds to wait for an answer; a loaded machine starts a browser in ten


def open_browser(shows: str) -> Iterator["Browser"]:
    """For a fixture: a browser, closed in the end. Where there is none, the tests of what it shows
    are skipped, loudly."""
    program = next((path for path in map(shutil.which, NAMES) if path), None)
    if program is None:
        pytest.skip(f"NOT TESTED: {shows} in a browser, for none of {', '.join(NAMES)} is on PATH.")
    opened = Browser(program)
    yield opened
    opened.close()


class Browser:
    """One browser with one page."""

    def __init__(self, program: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._received = b""
        self._profile = tempfile.mkdtemp(prefix="browser-")
        browser_reads, self._to_browser = os.pipe()
        self._from_browser, browser_writes = os.pipe()
        # The browser reads from 3 and writes to 4. A shell moves them there: a fork with JAX's
        # threads around would warn.
        command = f'exec "$0" "$@" 3<&{browser_reads} 4>&{browser_writes}'
        arguments = [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, *arguments],
            pass_fds=(browser_reads, browser_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_reads)
        os.close(browser_writes)
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._to_browser)  # the browser ends when nobody can talk to it any more
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from_browser)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result; events that come meanwhile are
        kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to_browser, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(
        self,
        url: str,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
        touch: bool = False,
    ) -> None:
        """Loads a page afresh and waits until it says that it is ready."""
        self.send("Page.navigate", url="about:blank")
        self.events.clear()
        self.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.send("Page.navigate", url=url)
        self.wait_for("document.documentElement?.dataset.ready === 'true'")
        self.settle()

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def settle(self) -> None:
        """Two frames: sizes are observed, then drawn."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def wait_for(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{condition} did not come true; the page reported {self.problems()}"
                )
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", answer)
            )
        return answer["result"].get("value")

    def problems(self) -> list[str]:
        """Everything the page has reported since it was opened: exceptions, console and log
        entries."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [
            json.dumps(event["params"]) for event in self.events if event.get("method") in kinds
        ]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        sent = [
            event for event in self.events if event.get("method") == "Network.requestWillBeSent"
        ]
        return [event["params"]["request"]["url"] for event in sent]

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            codes = {
                "ArrowLeft": 37,
                "ArrowRight": 39,
                "Home": 36,
                "End": 35,
                "Tab": 9,
                "Enter": 13,
            }
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
            )

    def hover(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """A picture of the whole page, for a person to look at."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        answer = self.send(
            "Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1}
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            if not select.select([self._from_browser], [], [], PATIENCE)[0]:
                raise TimeoutError("The browser does not answer.")
            data = os.read(self._from_browser, 1 << 20)
            if not data:
                raise RuntimeError(f"The browser ended (exit code {self._process.wait()}).")
            self._received += data
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)
