"""A run's kind stands in its config.json; older runs are told apart by what they have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import KINDS, kind_of, sees_frames, stored_settings
from element_rl.runs.launch import create_run, reopen_run


@dataclass(frozen=True)
class Settings:
    env: str | None = "Ant-v5"
    steps: int = 10
    rate: float = 0.5


COLUMNS = ("step", "seed")
OLD: dict[str, tuple[dict[str, Any], bool]] = {  # kind → config.json of old, whether it sees frames
    "explore": ({"env": "Ant-v5", "settings": {"env": "Ant-v5", "reward": "rnd"}}, False),
    "on-policy": ({"on_policy": True, "coverage_cells": [10, 10], "settings": {}}, True),
    "offline": ({"settings": {"datasets": ["a-v0"]}}, False),
    "encoder": ({"frame_shape": [84, 84], "settings": {}}, True),
    "collect": ({"settings": {"dataset": "a-v0"}}, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_older_runs_are_told_apart(kind: str) -> None:
    config, frames = OLD[kind]
    assert kind_of(config) == kind
    assert sees_frames(config) == frames
    assert kind_of({"kind": kind, "settings": {}}) == kind


def test_offline_runs_say_what_they_see() -> None:
    old = OLD["offline"][0]
    assert sees_frames(old | {"coverage_cells": [49, 37]})
    for frames in (False, True):
        new = {"kind": "offline", "sees_frames": frames, "coverage_cells": [100, 100]}
        assert sees_frames(new) == frames


def test_a_run_is_created_and_reopened_by_its_kind(tmp_path: Path) -> None:
    run = create_run("explore", Settings(), tmp_path / "run", COLUMNS, {"env": "Ant-v5"})
    assert run.config["kind"] == "explore"
    assert stored_settings(RunFolder.open(run.path), "explore", Settings) == Settings()
    reopen_run("explore", Settings(steps=20), run.path, COLUMNS)
    with pytest.raises(ValueError, match=r"rate was 0.5 and is 0.7"):
        reopen_run("explore", Settings(rate=0.7), run.path, COLUMNS)
    reopen_run("explore", Settings(rate=0.7), run.path, COLUMNS, may_differ=("rate",))
    with pytest.raises(RunError, match="already holds a run"):
        create_run("explore", Settings(), run.path, COLUMNS, {})


def test_another_kind_is_refused_with_the_right_command(tmp_path: Path) -> None:
    for kind in KINDS:
        run = create_run(kind, Settings(), tmp_path / kind, COLUMNS, {})
        other = "offline" if kind == "explore" else "explore"
        with pytest.raises(RunError) as refused:
            reopen_run(other, Settings(), run.path, COLUMNS)
        how = KINDS[kind].continued_with.format(run.path)
        assert str(refused.value) == f"{run.path} is no {other} run: continue it with {how}."


def test_older_runs_kept_no_package_and_no_newer_settings(tmp_path: Path) -> None:
    path = RunFolder.create(tmp_path / "old", {"settings": {"env": "Own-v0", "steps": 10}}).path
    reopen_run("explore", Settings("package:Own-v0"), path, COLUMNS)
    with pytest.raises(ValueError, match="env was"):
        reopen_run("explore", Settings("package:Other-v0"), path, COLUMNS)
