"""Run folders: whole after a kill at any moment, a full disk or a damaged file; exact after a round trip."""

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import faiss
import numpy as np
import pytest

from element_rl.files import FileError
from element_rl.runs import RunError, RunFolder

CONFIG = {"env": "Ant-v5", "reward": "element", "beta": 0.5, "steps": 1000, "seeds": 2}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


def save(run: RunFolder, step: int, size: int = 1000, **options) -> Path:
    """A checkpoint whose every number is its step."""
    policy = {"actor/weight": np.full((2, 3), step, np.float32)}
    visits = np.full((2, 100, 100), step, np.int32)
    resume = {"replay/observations": np.full(size, step, np.float32)}
    return run.save_checkpoint(step, policy, visits, resume, {"step": step}, **options)


def check(run: RunFolder, step: int) -> None:
    """Everything `save` wrote is there and verified."""
    arrays, metadata, folder = run.load_resume()
    assert (arrays["replay/observations"] == step).all()
    assert metadata == {"step": step}
    assert folder == run.path / "checkpoints" / f"step_{step:09d}" / "resume"
    for earlier in run.checkpoint_steps():
        assert (run.load_policy(earlier)["actor/weight"] == earlier).all()
        assert (run.load_visits(earlier) == earlier).all()
        assert run.load_metadata(earlier) == {"step": earlier}


# Creating and opening


def test_create_then_open_gives_the_same_config(tmp_path: Path) -> None:
    config = CONFIG | {"out": tmp_path, "bounds": ((-1.0, 1.0), (0, 2)), "clip": np.inf, "width": np.int64(3)}
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


# One process at a time; the summary


def row(step: int, seed: int, **values) -> dict:
    return {"step": step, "seed": seed, **values}


def test_two_processes_do_not_train_in_one_folder(run: RunFolder) -> None:
    code = (
        f"from element_rl.runs import RunFolder\nwith RunFolder.open({str(run.path)!r}).exclusively():\n    print('in')"
    )
    with run.exclusively():
        refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "Another process is training in" in refused.stderr
        assert refused.stdout == ""
        with (
            pytest.raises(RunError, match="wait for it, or choose another --out"),
            RunFolder.open(run.path).exclusively(),
        ):
            pass
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "in\n"


def test_summary(run: RunFolder) -> None:
    assert run.read_summary() == {}
    run.write_summary({"coverage": np.array([1.0, np.nan]), "path": run.path, "steps": np.int32(4)})
    assert run.read_summary() == {"coverage": [1.0, None], "path": str(run.path), "steps": 4}


# Checkpoints


def test_checkpoints_keep_policies_and_the_newest_resume(run: RunFolder) -> None:
    assert run.latest_checkpoint() is None
    with pytest.raises(RunError, match=r"has no complete checkpoint yet"):
        run.load_policy()
    for step in (500_000, 1_000_000, 2_000_000_000):
        save(run, step)
        check(RunFolder.open(run.path), step)
    assert run.checkpoint_steps() == [500_000, 1_000_000, 2_000_000_000]
    assert [path.parent.name for path in run.checkpoints_path.glob("*/resume")] == ["step_2000000000"]
    with pytest.raises(RunError, match=r"holds a policy only: a run resumes from its newest checkpoint, step 2000000"):
        run.load_resume(500_000)
    with pytest.raises(RunError, match=r"no checkpoint of step 7: it has steps 500000, 1000000, 2000000000\."):
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
    assert sorted(path.name for path in run.checkpoints_path.iterdir()) == ["step_000000005", "step_000000010"]


@pytest.mark.parametrize("name", ["policy.safetensors", "visits.safetensors", "manifest.json"])
@pytest.mark.parametrize("part", ["", "resume"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "removed"])
def test_damage_is_found_and_the_file_named(run: RunFolder, name: str, part: str, damage: str) -> None:
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
    if (name, part, damage) == ("manifest.json", "", "removed"):  # then it never was a checkpoint
        assert run.latest_checkpoint() == 1
        return
    load = run.load_resume if part else run.load_visits if name == "visits.safetensors" else run.load_policy
    with pytest.raises(FileError, match=rf"{file}.*restore it from a copy.*policies of steps 1\)") as caught:
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


# Kills

SAVING = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import numpy as np
    from element_rl.runs import RunFolder

    run = RunFolder.open(sys.argv[1])
    step = run.latest_checkpoint() or 0
    if step:
        assert (run.load_resume()[0]["replay/observations"] == step).all()
    run.truncate_metrics(step)
    print("ready", flush=True)
    while True:
        step += 1
        run.append_metrics([{"step": step, "seed": seed, "coverage": step} for seed in range(2)])
        run.save_checkpoint(
            step,
            {"actor/weight": np.full((2, 3), step, np.float32)},
            np.full((2, 100, 100), step, np.int32),
            {"replay/observations": np.full(500_000, step, np.float32)},
            {"step": step},
            lambda folder: (folder / "memory.faiss").write_bytes(bytes([step % 256]) * 500_000),
        )
    """
)


def test_killed_at_random_moments(run: RunFolder) -> None:
    moment = random.Random(0)
    steps = [0]
    while len(steps) <= 12 or (steps[-1] < 3 and len(steps) < 200):  # a slow machine saves little between two kills
        command = [sys.executable, "-c", SAVING, str(run.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(moment.uniform(0.01, 0.3))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        survivor = RunFolder.open(run.path)
        latest = survivor.latest_checkpoint()
        if latest is not None:
            check(survivor, latest)
            logged = survivor.read_metrics()["step"]
            np.testing.assert_array_equal(logged[: 2 * latest], np.repeat(np.arange(1, latest + 1), 2))
        steps.append(latest or 0)
    assert steps == sorted(steps)
    assert steps[-1] >= 3


EVERY_MOMENT = textwrap.dedent(
    """
    import os, shutil, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from element_rl.runs import RunFolder
    from test_runs import check, row, save

    original, survivors = Path(sys.argv[1]), []
    for moment in range(1, 1000):
        folder = original.with_name(f"copy_{moment}")
        shutil.copytree(original, folder)
        if (child := os.fork()) == 0:
            happened = 0
            def die_at_the_moment(event, arguments):
                global happened
                happened += event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod")
                if happened == moment:
                    os._exit(9)
            run = RunFolder.open(folder)
            sys.addaudithook(die_at_the_moment)
            run.append_metrics([row(2, 0, coverage=2)])
            save(run, 2)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        run = RunFolder.open(folder)
        check(run, run.latest_checkpoint())
        survivors.append(run.latest_checkpoint())
        run.truncate_metrics(run.latest_checkpoint())
        save(run, 3)
        check(run, 3)
        assert not list(run.checkpoints_path.glob(".*")), list(run.checkpoints_path.iterdir())
        assert len(list(run.checkpoints_path.glob("*/resume"))) == 1
        if status == 0:
            break
    print(*survivors)
    """
)


def test_killed_before_every_file_operation_of_a_checkpoint(run: RunFolder) -> None:
    """The process ends, for real, at the first file operation, then at the second, and so on to the last."""
    run.append_metrics([row(1, 0, coverage=1)])
    save(run, 1)
    command = [sys.executable, "-c", EVERY_MOMENT, str(run.path), str(Path(__file__).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    survivors = [int(step) for step in result.stdout.split()]
    assert len(survivors) > 30
    assert survivors == sorted(survivors)  # the old checkpoint until the new one is complete, never neither
    assert set(survivors) == {1, 2}


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_leaves_the_previous_state(small_disk: Path) -> None:
    run = RunFolder.create(small_disk / "run", CONFIG)
    run.append_metrics([row(1, 0, coverage=1)])
    save(run, 1)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    with pytest.raises(
        FileError, match=r"step_000000002/resume/arrays\.safetensors could not .*No space left"
    ) as caught:
        save(run, 2, size=10**6)
    assert "4,080,024 bytes are needed" in str(caught.value)
    with pytest.raises(FileError, match=r"step_000000002 could not be written \(No space left on device"):
        save(run, 2, write_extra=write_large_index)
    with pytest.raises(FileError, match=r"summary\.json could not be written \(No space left"):
        run.write_summary({"text": "x" * 2_000_000})
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    check(run, 1)


def write_large_index(folder: Path) -> None:
    index = faiss.IndexFlatL2(8)
    index.add(np.zeros((50_000, 8), np.float32))
    faiss.write_index(index, str(folder / "memory.faiss"))


def test_full_disk_never_cuts_a_row_short(small_disk: Path) -> None:
    run = RunFolder.create(small_disk / "run", CONFIG)
    rows = [row(step, 0, coverage=step) for step in range(100)]
    (small_disk / "filler").write_bytes(bytes(900_000))

    def fill_the_disk() -> None:
        for _ in range(1000):
            run.append_metrics(rows)

    with pytest.raises(FileError, match=r"(metrics\.csv|tfevents\.\d+) could not be written \(No space left"):
        fill_the_disk()
    assert len(run.read_metrics()["step"]) % 100 == 0
    assert run.metrics_path.read_text().endswith("\n")
    for file in run.path.glob("events.*"):
        assert (number_of_records(file) - 1) % 100 == 0


def number_of_records(file: Path) -> int:
    """Records of an events file, all of them whole."""
    data, number = file.read_bytes(), 0
    while data:
        length = 16 + struct.unpack("<Q", data[:8])[0]
        assert len(data) >= length
        data, number = data[length:], number + 1
    return number


def test_a_limit_on_file_size_is_reported_too(run: RunFolder) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        import numpy as np
        from element_rl.files import FileError
        from element_rl.runs import RunFolder
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            RunFolder.open(sys.argv[1]).save_checkpoint(2, {}, None, {"a": np.zeros(10**6)}, {})
        except FileError as error:
            print(error)
        """
    )
    save(run, 1)
    result = subprocess.run([sys.executable, "-c", script, str(run.path)], capture_output=True, text=True, check=True)
    assert "arrays.safetensors could not be written (File too large; 8,000,000 bytes are needed" in result.stdout
    check(run, 1)
    assert [path.name for path in run.checkpoints_path.iterdir()] == ["step_000000001"]


def test_other_failures_leave_nothing_behind(run: RunFolder) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    save(run, 1)
    with pytest.raises(KeyboardInterrupt):
        save(run, 2, write_extra=fail)
    assert [path.name for path in run.checkpoints_path.iterdir()] == ["step_000000001"]
    check(run, 1)


def test_reading_a_run_loads_no_jax() -> None:
    script = "import sys, element_rl.runs; assert 'jax' not in sys.modules and 'tensorboardX' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
