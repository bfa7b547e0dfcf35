"""The page is served to this machine alone, to be read and nothing else."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.invented_runs import make_run

from element_rl.watch.folders import Watch
from element_rl.watch.server import WatchServer, open_server, page_files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchServer]:
    watch = Watch([make_run(tmp_path_factory.mktemp("runs") / "run").path])
    watch.look()
    opened = open_server(watch, 0)
    threading.Thread(target=opened.serve_forever, args=(0.05,), daemon=True).start()
    yield opened
    opened.shutdown()
    opened.server_close()


def ask(
    server: WatchServer, target: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and content; JSON as what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    connection.putrequest(method, target, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    found = dict(answer.getheaders())
    connection.close()
    is_json = found.get("Content-Type", "").startswith("application/json")
    return answer.status, found, json.loads(body) if is_json and body else body


def test_it_listens_on_loopback_only(server: WatchServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/watch.css", "text/css; charset=utf-8"),
        ("/watch.js", "text/javascript; charset=utf-8"),
        ("/state", "application/json; charset=utf-8"),
        ("/curves?run=0", "application/json; charset=utf-8"),
        ("/map?run=0&step=500000&seed=1", "application/json; charset=utf-8"),
    ],
)
def test_everything_is_of_its_type_and_loads_nothing_else(
    server: WatchServer, target: str, kind: str
) -> None:
    status, headers, body = ask(server, target)
    assert (status, headers["Content-Type"]) == (200, kind)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; connect-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]
    assert "Access-Control-Allow-Origin" not in headers
    assert body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "localhost@evil", ""]
)
def test_a_name_of_somebody_elses_is_refused(server: WatchServer, host: str) -> None:
    """DNS rebinding: the browser would send the page's own name."""
    status, _, body = ask(server, "/state", Host=host)
    assert (status, list(body)) == (403, ["problem"])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:7070"])
def test_names_of_this_machine_are_answered(server: WatchServer, host: str) -> None:
    """Also at another port, as through ssh -L."""
    assert ask(server, "/state", Host=host)[0] == 200


def test_no_host_is_refused(server: WatchServer) -> None:
    with socket.create_connection(server.server_address[:2]) as connection:  # type: ignore[arg-type]
        connection.sendall(b"GET /state HTTP/1.0\r\n\r\n")
        assert b" 403 " in connection.recv(200)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_only_get_is_answered(server: WatchServer, method: str) -> None:
    status, headers, _ = ask(server, "/state", method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "target",
    [
        "/config.json",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/watch.css/../../../etc/passwd",
        "/page/watch.js",
        "/state/",
        "/curves?run=1",
        "/curves",
        "/map?run=0&step=500000&seed=9",
        "/map?run=0",
    ],
)
def test_what_is_not_there_is_not_found(server: WatchServer, target: str) -> None:
    status, _, body = ask(server, target)
    assert (status, list(body)) == (404, ["problem"])


@pytest.mark.parametrize(
    "target",
    [
        "/curves?run=-1",
        "/curves?run=../../etc/passwd",
        "/curves?run=",
        "/curves?run=0&first=1e9",
        "/map?run=0&step=%D9%A3",  # a digit, but not of ours
        "/curves?run=" + "9" * 40,
        "/curves?" + "&".join(f"a{number}=1" for number in range(20)),
    ],
)
def test_what_is_no_number_is_refused(server: WatchServer, target: str) -> None:
    status, _, body = ask(server, target)
    assert (status, list(body)) == (400, ["problem"])


def test_curves_come_from_where_the_page_is(server: WatchServer) -> None:
    everything = ask(server, "/curves?run=0")[2]
    generation, steps = everything["generation"], everything["step"]
    assert (everything["first"], steps[0], steps[-1]) == (0, 10_000, 500_000)
    assert everything["seeds"] == [0, 1, 2]
    assert len(everything["columns"]["coverage"]["seeds"]) == 3
    rest = ask(server, f"/curves?run=0&generation={generation}&first=48")[2]
    assert (rest["first"], rest["step"]) == (48, steps[48:])
    assert rest["columns"]["coverage"]["mean"] == everything["columns"]["coverage"]["mean"][48:]
    # of another generation, or beyond the end: from the beginning
    for wrong in (f"generation={generation + 1}&first=48", f"generation={generation}&first=999"):
        assert ask(server, f"/curves?run=0&{wrong}")[2] == everything


def test_many_ask_at_once(server: WatchServer) -> None:
    found: list[int] = []

    def keep_asking() -> None:
        for target in ("/state", "/curves?run=0", "/map?run=0&step=250000", "/"):
            found.append(ask(server, target)[0])

    threads = [threading.Thread(target=keep_asking) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 48


def test_a_port_that_is_taken(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    port = server.server_address[1]
    with pytest.raises(ValueError, match=f"Port {port} is taken by another program"):
        open_server(server.watch, port)
    monkeypatch.setattr("element_rl.watch.server.USUAL_PORT", port)
    beside = open_server(server.watch, None)  # the next that is free
    assert port < beside.server_address[1] < port + 50
    beside.server_close()


def test_no_file_of_the_page_loads_from_elsewhere() -> None:
    for kind, content in page_files().values():
        text = content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, kind
        assert "https:" not in text, kind
        assert "innerHTML" not in text, kind  # text from outside stays text


def test_paths_of_this_machine_are_not_looked_up(server: WatchServer, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert ask(server, f"{tmp_path}/config.json")[0] == 404
