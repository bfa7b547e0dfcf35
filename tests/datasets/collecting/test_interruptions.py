"""No interruption of a collection shows in its dataset; mistakes are told in a sentence."""

import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collecting import (
    assert_same,
    collected,
    command_line,
    each_episode,
    relived,
    start,
    wait_for_a_part,
)

from element_rl.commands.collect import main
from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.datasets.collecting import chunks as collect_chunks
from element_rl.datasets.collecting import making as collect_module
from element_rl.datasets.collecting.agents import agents_of, contributions_of
from element_rl.datasets.collecting.chunks import divide
from element_rl.datasets.minari_files import Dataset, known_datasets, read_dataset
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_json_object, write_json
from element_rl.storage.locks import locked


@pytest.mark.parametrize("steps_per_part", [1, 30])
def test_stopped_and_continued(
    run: RunFolder,
    undisturbed: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps_per_part: int,
) -> None:
    """Parts so small that episodes run through many; stopped again and again. Only the order of the
    episodes may change."""
    monkeypatch.setattr(collect_chunks, "PART_STEPS", steps_per_part)
    monkeypatch.setattr(collect_chunks, "LONGEST_CHUNK", 20)
    whole = collected(run, tmp_path / "whole")
    config = CollectConfig(
        run.path, "hopper/test-v0", steps=250, workers=0, out=tmp_path / "stopped"
    )
    reached: list[int] = []
    while True:
        chunks: list[Any] = []
        try:
            stopped = read_dataset(collect(config, chunks.append, lambda: len(chunks) == 3))  # noqa: B023
            break
        except Interrupted as interrupted:
            reached.append(interrupted.step)
            left = known_datasets(tmp_path / "stopped")
    assert len(reached) > 3
    assert reached == sorted(reached)
    assert left == []
    assert_same(whole, stopped)
    for one, entry in each_episode(whole):
        relived(whole, one, entry["seed"])


def test_killed_at_any_moment(run: RunFolder, undisturbed: Dataset, tmp_path: Path) -> None:
    arguments = command_line(run, tmp_path, workers=1)
    generator = np.random.default_rng()
    process = start(arguments)
    parts = tmp_path / "hopper" / ".test-v0.parts"
    wait_for_a_part(process, parts)
    time.sleep(generator.uniform(0, 0.3))
    process.kill()
    process.communicate()
    if known_datasets(tmp_path) == []:
        assert main(arguments) == 0
    assert_same(undisturbed, read_dataset("hopper/test-v0", tmp_path))
    assert not parts.exists()


def test_told_to_stop(run: RunFolder, tmp_path: Path) -> None:
    arguments = [
        str(run.path),
        "--steps",
        "500000",
        "--dataset",
        "hopper/long-v0",
        "--out",
        str(tmp_path),
        "--no-entropy",
    ]
    process = start(arguments)
    while not list(tmp_path.glob("hopper/.long-v0.parts/settings.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    written = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "Continue with: element collect" in written
    assert known_datasets(tmp_path) == []


def test_division() -> None:
    """The chunks of a share are one step longer than it: the observation after its last step has to
    come from somewhere."""
    for steps in (1, 2, 199, 200, 201, 1_000, 4_999):
        division = divide(steps, 2, 16)
        chunks = steps // division.chunk_steps + 1
        assert chunks * division.chunk_steps > steps
        assert division.chunk_steps <= collect_chunks.LONGEST_CHUNK
        assert division.part_chunks * division.chunk_steps <= collect_chunks.PART_STEPS
    assert divide(10_000, 100, 400).part_chunks == 1


def test_a_checkpoint_that_a_stop_has_left_is_not_acted_with(
    run: RunFolder, tmp_path: Path
) -> None:
    """So that a run which was stopped and continued gives the dataset of the undisturbed one."""
    copy = shutil.copytree(run.path, tmp_path / "copy")
    planned = run.checkpoint_steps()
    shutil.copytree(
        copy / "checkpoints" / f"step_{planned[0]:09d}",
        copy / "checkpoints" / f"step_{planned[0] + 37:09d}",
    )
    agents = agents_of(RunFolder.open(copy), (), of_the_task=True)
    assert len(agents.run.checkpoint_steps()) == len(planned) + 1
    assert [entry.checkpoint for entry in contributions_of(agents, 100, ())] == planned
    assert [entry.checkpoint for entry in contributions_of(agents, 100, (planned[0] + 37,))] == [
        planned[0] + 37
    ]


def test_sentences(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**changes: Any) -> str:
        with pytest.raises(ValueError, match=r"\.$") as raised:
            collected(run, tmp_path, **changes)
        return str(raised.value)

    assert "is no Minari id" in said(dataset="no version")
    assert "has no checkpoint of step 3" in said(checkpoints=(3,))
    assert "at least 1 for each of the 3 checkpoints" in said(steps=2)
    assert "Say with --steps" in said(steps=None)
    assert "at least 1" in said(steps=0)
    assert "keeps no replay" in said(from_replay=True)
    assert "cannot be used with --from-replay" in said(from_replay=True, deterministic=True)
    wider = ("exclude_current_positions_from_observation=false",)
    assert "observe 11 numbers and act with 3" in said(env_options=wider)
    assert not list(tmp_path.glob("hopper/*"))
    assert not list(tmp_path.glob("hopper/.*"))

    chunks: list[Any] = []
    config = CollectConfig(run.path, "hopper/test-v0", steps=250, workers=0, out=tmp_path)
    with pytest.raises(Interrupted):
        collect(config, chunks.append, lambda: len(chunks) == 2)
    assert "has other settings (steps was 250 and is 240" in said(steps=240)
    settings = tmp_path / "hopper" / ".test-v0.parts" / "settings.json"
    written = read_json_object(settings)
    write_json(settings, {name: value for name, value in written.items() if name != "parts"})
    assert "has other settings (parts was None and is 2)" in said()  # begun by an older version
    write_json(settings, written)
    with locked(tmp_path / "hopper" / ".test-v0.parts" / "lock"):
        assert "Another process is collecting" in said()
    collected(run, tmp_path)
    assert "exists already" in said()
    monkeypatch.setitem(sys.modules, "minari", None)
    assert "pip install 'element-rl[datasets]'" in said(dataset="hopper/other-v0")


def test_a_dataset_that_was_finished_in_this_moment_is_not_collected_again(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_of, acted = collect_module._settings, list[Any]()

    def after_another(*arguments: Any) -> dict[str, Any]:
        """Between the look at what is there and the claim, another process has made the dataset."""
        monkeypatch.setattr(collect_module, "_settings", settings_of)
        collected(run, tmp_path)
        return settings_of(*arguments)

    monkeypatch.setattr(collect_module, "_settings", after_another)
    with pytest.raises(ValueError, match="exists already"):
        collect(
            CollectConfig(run.path, "hopper/test-v0", steps=250, workers=0, out=tmp_path),
            acted.append,
        )
    assert not acted
    assert not list((tmp_path / "hopper").glob(".*"))
