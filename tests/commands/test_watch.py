"""`element watch` from a shell: its address, its end, and what it refuses."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from support.known_checkpoints import CONFIG

from element_rl.cli import main
from element_rl.runs.folder import RunFolder


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_and_ends_with_a_signal(tmp_path: Path, ending: int) -> None:
    RunFolder.create(tmp_path / "run", CONFIG)
    command = [sys.executable, "-m", "element_rl.cli", "watch", str(tmp_path / "run")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--port", "0"], **pipes) as process:  # type: ignore[call-overload]
        line = process.stdout.readline()
        found = re.fullmatch(r"Watching 1 run at (http://127\.0\.0\.1:\d+/) \(.*\)\n", line)
        assert found is not None, line
        with urllib.request.urlopen(f"{found[1]}state") as answer:
            assert answer.status == 200
        process.send_signal(ending)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(RunFolder.create(tmp_path / "run", CONFIG).path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        mistakes = {
            ("nowhere",): "There is no folder nowhere: name the folder of a run",
            (str(tmp_path / "run" / "config.json"),): "There is no folder",
            (run, "--port", str(port)): f"Port {port} is taken by another program",
            (run, "--port", "70000"): "--port 70000 is no port",
            (): "Name at least one run folder to watch",
        }
        for arguments, sentence in mistakes.items():
            assert main(["watch", *arguments]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"element: {sentence}")
            assert error.count("\n") == 1
