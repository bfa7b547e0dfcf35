"""Agents shared out over several devices do what they do on one, and nothing is sent between
devices. The devices are four of a CPU, in a process of its own (`support.several_devices`)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from element_rl.cli import main
from element_rl.population import Devices, number_of_devices

TESTS = Path(__file__).resolve().parents[2]
ROUNDING = 2e-5  # programs for one agent and for four add up in another order


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("devices")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    paths = f"{TESTS.parent}{os.pathsep}{TESTS}"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "support.several_devices", str(folder)]
    subprocess.run(command, check=True, env=environment)
    return json.loads((folder / "outcome.json").read_text())


def test_a_run_of_worlds_moves_from_four_devices_to_one_and_back(found: dict[str, Any]) -> None:
    assert {name: apart for name, apart in found["resumed"].items() if apart > ROUNDING} == {}
    assert found["visits"] == 0


def test_environments_of_the_host_too(found: dict[str, Any]) -> None:
    assert {name: apart for name, apart in found["host"].items() if apart > ROUNDING} == {}


def test_every_device_has_its_own_agents_and_nothing_is_sent(found: dict[str, Any]) -> None:
    assert found["where"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found["programs"] >= 5
    assert found["sent"] == []


def test_how_many_devices_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert number_of_devices(10) == 1  # of CPUs
    four = 4 * jax.devices()[:1]
    monkeypatch.setattr("jax.devices", lambda: four)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert [number_of_devices(agents) for agents in (1, 2, 3, 4, 5, 8, 10)] == [1, 2, 3, 4, 1, 4, 2]
    assert number_of_devices(10, 1) == 1
    devices = Devices.of(8)
    assert devices.several
    assert [devices.place_of(agent, 8) for agent in (0, 1, 2, 7)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (3, 1),
    ]
    with pytest.raises(ValueError, match="same number of 10 agents each: take 1 or 2"):
        number_of_devices(10, 4)


def test_what_is_not_there_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for devices, sentence in (("0", "at least 1"), ("64", "more than the")):
        arguments = ["explore", "PointMaze-v0", "--devices", devices, "--steps", "100"]
        assert main(arguments) == 2
        printed = capsys.readouterr().err.strip()
        assert sentence in printed
        assert len(printed.splitlines()) == 1
