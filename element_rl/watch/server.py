"""HTTP for the page, on this machine alone.

    /                               the page, with /watch.css and /watch.js
    /state                          every run: its state and how far it is
    /curves?run=0&generation=3&first=17    curves of a run, from a point on
    /map?run=0&step=5000[&seed=1]   visits per cell

The socket is bound to 127.0.0.1. A page of somebody else's can still send a browser there under a
name of its own (DNS rebinding), so `Host` must name this machine. Only GET is answered. Runs are
numbered: no path of the file system is ever taken from an address. Nothing may be loaded into the
page, or the page into another, from anywhere else: its content security policy says so.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from element_rl.pages import QUANTITIES, colour_variables, palette, script_of, shared_file
from element_rl.storage.files import FileError
from element_rl.watch.bins import COUNTING
from element_rl.watch.folders import Watch

LOOPBACK = "127.0.0.1"
USUAL_PORT, PORTS_TRIED = 7070, 50
# a port may be another one: `ssh -L 9000:localhost:7070`
OWN_NAMES = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
SHARED_SCRIPTS = ("drawing.js", "curves.js", "maps.js", "tables.js")
OWN_SCRIPTS = ("words.js", "charts.js", "live_maps.js", "cards.js", "watch.js")
IDLE_SECONDS = 30  # after which a silent connection is closed
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    # drawings colour their elements by style attributes
    "style-src 'self' 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class WatchServer(ThreadingHTTPServer):
    """Serves the page of some runs at a port of this machine; 0 takes any that is free."""

    daemon_threads = True
    allow_reuse_address = True  # a port is free again as soon as a watcher has ended
    request_queue_size = 64

    def __init__(self, watch: Watch, port: int) -> None:
        self.watch = watch
        self.files = page_files()
        super().__init__((LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers close connections whenever they like; that is nothing to print."""


def open_server(watch: Watch, port: int | None) -> WatchServer:
    """At this port; where none was asked for, at the first free one from the usual on."""
    tried = range(USUAL_PORT, USUAL_PORT + PORTS_TRIED) if port is None else (port,)
    for number in tried:
        try:
            return WatchServer(watch, number)
        except OverflowError:
            raise ValueError(f"--port {port} is no port: choose one from 1024 to 65535.") from None
        except PermissionError:
            raise ValueError(
                f"Port {number} is not yours to open: choose one from 1024 to 65535."
            ) from None
        except OSError:
            continue
    if port is None:
        raise ValueError(f"No port from {tried[0]} to {tried[-1]} is free: give one with --port.")
    raise ValueError(
        f"Port {port} is taken by another program, perhaps another element watch: choose another "
        "--port, or leave it out to take the next that is free."
    )


def page_files() -> dict[str, tuple[str, bytes]]:
    """Address → type and content of the files that the page is made of."""
    own = resources.files(__package__) / "page"

    def read(name: str) -> str:
        return (own / name).read_text(encoding="utf-8")

    data = {**palette(), "colours": {}, "quantities": QUANTITIES, "counting": COUNTING}
    constants = f"const DATA = {json.dumps(data)};\n"
    script = script_of(constants, *map(shared_file, SHARED_SCRIPTS), *map(read, OWN_SCRIPTS))
    style = f"{colour_variables()}\n{shared_file('page.css')}{read('watch.css')}"
    return {
        "/": ("text/html; charset=utf-8", read("watch.html").encode()),
        "/watch.css": ("text/css; charset=utf-8", style.encode()),
        "/watch.js": ("text/javascript; charset=utf-8", script.encode()),
    }


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: WatchServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "element-watch", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        if not self._is_for_us():
            self._refuse(HTTPStatus.FORBIDDEN, "This page is served to this machine alone.")
            return
        target = urlsplit(self.path)
        if target.path in self.server.files:
            self._answer(HTTPStatus.OK, *self.server.files[target.path])
            return
        answer = ANSWERS.get(target.path)
        if answer is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
            return
        try:
            found = answer(self.server.watch, numbers_of(target.query))
        except LookupError:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such run.")
        except FileError as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "Runs, steps and seeds are numbers.")
        else:
            self._send_json(HTTPStatus.OK, found)

    def _only_get(self) -> None:
        self.close_connection = True  # what was sent with it is not read
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This page can only be read.")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _only_get  # noqa: N815

    def _is_for_us(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and OWN_NAMES.fullmatch(hosts[0].strip()) is not None

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send_json(status, {"problem": sentence})

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        self._answer(status, "application/json; charset=utf-8", body)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line per request would bury the address."""


def numbers_of(query: str) -> dict[str, int]:
    """The numbers of an address; ValueError where something else is in it."""
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=8)
    for name, text in pairs:
        if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
            raise ValueError(f"{name} is no number.")
    return {name: int(text) for name, text in pairs}


def state(watch: Watch, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Of every run, in the order of their numbers."""
    return {"runs": [run.facts() for run in watch.runs], "leftOut": watch.left_out}


def curves(watch: Watch, numbers: Mapping[str, int]) -> dict[str, Any]:
    run = watch.runs[numbers["run"]]
    return run.curves(numbers.get("generation", -1), numbers.get("first", 0))


def visits(watch: Watch, numbers: Mapping[str, int]) -> dict[str, Any]:
    return watch.runs[numbers["run"]].visits(numbers["step"], numbers.get("seed"))


ANSWERS: dict[str, Callable[[Watch, Mapping[str, int]], dict[str, Any]]] = {
    "/state": state,
    "/curves": curves,
    "/map": visits,
}


def serve(server: WatchServer, ended: threading.Event) -> None:
    """Look and answer until `ended` is set, from a signal handler."""
    threads = (
        threading.Thread(target=server.watch.follow, args=(ended,), daemon=True),
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True),
    )
    for thread in threads:
        thread.start()
    try:
        while not ended.wait(0.5):  # with a limit, so that signals come through
            pass
    finally:
        server.shutdown()
        server.server_close()
