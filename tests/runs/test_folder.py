"""Run folders: made, opened, used by one process at a time; checkpoints exact after a round trip,
damage found and named."""

import errno
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import faiss
import numpy as np
import pytest
from support.known_checkpoints import CONFIG, check, save

from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.files import FileError
from element_rl.storage.locks import create_locked

SECONDS = 60.0  # longer than anything here takes


def test_create_then_open_gives_the_same_config(tmp_path: Path) -> None:
    config = CONFIG | {
        "out": tmp_path,
        "bounds": ((-1.0, 1.0), (0, 2)),
        "clip": np.inf,
        "width": np.int64(3),
    }
    created = RunFolder.create(tmp_path / "a" / "run", config)
    opened = RunFolder.open(tmp_path / "a" / "run")
    assert created.config == opened.config
    assert opened.config["bounds"] == [[-1.0, 1.0], [0, 2]]
    assert opened.config["clip"] is None
    assert opened.config["width"] == 3


def test_create_refuses_a_folder_that_holds_a_run(run: RunFolder) -> None:
    with pytest.raises(RunError, match=r"already holds a run .*--resume .*another --out"):
        RunFolder.create(run.path, CONFIG)


def test_create_accepts_an_empty_folder_and_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", CONFIG)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot be made \(File exists\)"):
        RunFolder.create(tmp_path / "file", CONFIG)


def test_open_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no run folder .*nowhere"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"is not a run \(it has no config\.json\)"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.json").write_text('{"env": ')
    with pytest.raises(FileError, match=r"config\.json is damaged or no JSON file .*restore it"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.json").write_text("3")
    with pytest.raises(FileError, match=r"config\.json is damaged \(it holds no JSON object\)"):
        RunFolder.open(tmp_path)


def test_two_processes_do_not_train_in_one_folder(run: RunFolder) -> None:
    code = (
        "from element_rl.runs.folder import RunFolder\n"
        f"with RunFolder.open({str(run.path)!r}).exclusively():\n    print('in')"
    )
    with run.exclusively():
        refused = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert "Another process is training in" in refused.stderr
        assert refused.stdout == ""
        with (
            pytest.raises(RunError, match="wait for it, or choose another --out"),
            RunFolder.open(run.path).exclusively(),
        ):
            pass
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "in\n"
    )


def _race(folders: list[Path], barrier: Barrier, outcomes: Connection) -> None:
    """Create a run in every folder at the same moment as others; say each time what came of it."""
    for folder in folders:
        barrier.wait(SECONDS)
        try:
            created = RunFolder.create(folder, CONFIG)
        except RunError as error:
            created, outcome = None, str(error)
        else:
            outcome = ""
        barrier.wait(SECONDS)  # the winner has made its run, and does not train yet
        late = ""
        if created is None:
            try:
                with RunFolder.open(folder).exclusively():
                    late = "trains"
            except RunError as error:
                late = str(error)
        barrier.wait(SECONDS)
        if created is not None:
            with created.exclusively():
                late = "trains"
        outcomes.send((outcome, late))
    outcomes.close()


def test_of_runs_that_begin_in_one_folder_at_once_one_trains(tmp_path: Path) -> None:
    folders = [tmp_path / str(index) for index in range(50)]
    context = multiprocessing.get_context("spawn")
    barrier, racers = context.Barrier(3), []
    for _ in range(3):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_race, args=(folders, barrier, theirs), daemon=True)
        process.start()
        theirs.close()
        racers.append((process, ours))
    for folder in folders:
        outcomes = sorted(racer.recv() for _, racer in racers)
        assert outcomes[0] == ("", "trains")
        for refusal, late in outcomes[1:]:
            assert refusal.startswith(
                f"{folder} already holds a run (it has config.json): continue it with --resume"
            )
            assert late.startswith(f"Another process is training in {folder}")
        assert [path.name for path in folder.iterdir()] == ["config.json"]
    for process, ours in racers:
        process.join(SECONDS)
        ours.close()
        assert process.exitcode == 0


def test_a_new_run_is_let_go_of_when_it_has_trained_or_is_dropped(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", CONFIG)
    with (
        pytest.raises(RunError, match="Another process is training"),
        RunFolder.open(run.path).exclusively(),
    ):
        pass
    with (
        run.exclusively(),
        pytest.raises(RunError, match="Another process is training"),
        run.exclusively(),
    ):
        pass
    with RunFolder.open(run.path).exclusively():
        pass
    RunFolder.create(tmp_path / "dropped", CONFIG)
    with RunFolder.open(tmp_path / "dropped").exclusively():
        pass


def test_one_process_takes_a_folder_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    run = RunFolder.create(tmp_path / "run", CONFIG)
    assert RunFolder.open(run.path).config == run.config
    with pytest.raises(FileExistsError):
        create_locked(run.path / "config.json", "{}")
    with (
        pytest.raises(RunError, match="Another process is training"),
        RunFolder.open(run.path).exclusively(),
    ):
        pass
    assert [path.name for path in run.path.iterdir()] == ["config.json"]


def test_summary(run: RunFolder) -> None:
    assert run.read_summary() == {}
    run.write_summary({"coverage": np.array([1.0, np.nan]), "path": run.path, "steps": np.int32(4)})
    assert run.read_summary() == {"coverage": [1.0, None], "path": str(run.path), "steps": 4}


def test_checkpoints_keep_policies_and_the_newest_resume(run: RunFolder) -> None:
    assert run.latest_checkpoint() is None
    with pytest.raises(RunError, match=r"has no complete checkpoint yet"):
        run.load_policy()
    for step in (500_000, 1_000_000, 2_000_000_000):
        save(run, step)
        check(RunFolder.open(run.path), step)
    assert run.checkpoint_steps() == [500_000, 1_000_000, 2_000_000_000]
    assert [path.parent.name for path in run.checkpoints_path.glob("*/resume")] == [
        "step_2000000000"
    ]
    with pytest.raises(
        RunError,
        match=r"holds a policy only: a run resumes from its newest checkpoint, step 2000000",
    ):
        run.load_resume(500_000)
    with pytest.raises(
        RunError, match=r"no checkpoint of step 7: it has steps 500000, 1000000, 2000000000\."
    ):
        run.load_policy(7)


def test_files_of_the_caller_travel_with_the_checkpoint(run: RunFolder) -> None:
    index = faiss.IndexHNSWFlat(4, 8)
    index.add(np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))

    def write_extra(folder: Path) -> None:
        (folder / "memory").mkdir()
        faiss.write_index(index, str(folder / "memory" / "seed_0.faiss"))

    save(run, 10, write_extra=write_extra)
    file = run.load_resume()[2] / "memory" / "seed_0.faiss"
    assert faiss.read_index(str(file)).ntotal == 50
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"seed_0\.faiss is damaged"):
        run.load_resume()


def test_an_environment_without_coverage(run: RunFolder) -> None:
    run.save_checkpoint(1, {"a": np.zeros(2)}, None, {}, {})
    assert run.load_resume()[0] == {}
    with pytest.raises(RunError, match=r"counts no coverage"):
        run.load_visits()


def test_a_saved_step_is_left_as_it_is(run: RunFolder) -> None:
    save(run, 5)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    save(run, 5)
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_leftovers_of_a_kill_are_ignored_and_removed(run: RunFolder) -> None:
    save(run, 5)
    leftover = run.checkpoints_path / ".step_000000009.tmp-1" / "resume"
    leftover.mkdir(parents=True)
    (leftover / "arrays.safetensors").write_bytes(b"half")
    (run.checkpoints_path / "step_000000010").mkdir()  # no manifest: not ours, not complete
    check(run, 5)
    save(run, 10)
    check(run, 10)
    assert sorted(path.name for path in run.checkpoints_path.iterdir()) == [
        "step_000000005",
        "step_000000010",
    ]


@pytest.mark.parametrize("name", ["policy.safetensors", "visits.safetensors", "manifest.json"])
@pytest.mark.parametrize("part", ["", "resume"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "removed"])
def test_damage_is_found_and_the_file_named(
    run: RunFolder, name: str, part: str, damage: str
) -> None:
    save(run, 1)
    save(run, 2)
    name = name if not part else {"manifest.json": name}.get(name, "arrays.safetensors")
    file = run.checkpoints_path / "step_000000002" / part / name
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        content[-5] ^= 1  # for a manifest: a digit of its checksum
        file.write_bytes(content)
    else:
        file.unlink()
    load = (
        run.load_resume
        if part
        else run.load_visits
        if name == "visits.safetensors"
        else run.load_policy
    )
    with pytest.raises(
        FileError, match=rf"{file}.*restore it from a copy.*policies of steps 1\)"
    ) as caught:
        load()
    assert str(caught.value).count("\n") == 0
    assert (run.load_policy(1)["actor/weight"] == 1).all()


def test_files_can_be_read_by_others(run: RunFolder) -> None:
    old = os.umask(0o022)
    try:
        folder = save(run, 1)
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o644}, modes


def test_reading_a_run_loads_no_jax() -> None:
    script = (
        "import sys, element_rl.runs.folder, element_rl.runs.kinds, element_rl.runs.launch; "
        "assert not {'jax', 'tensorboardX'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
