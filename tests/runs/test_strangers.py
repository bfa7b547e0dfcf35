"""Folders that others made, or make at the same moment: links, pipes, names, and who is first."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.known_checkpoints import check, row, save

from element_rl.doctor.run_folder import check_files
from element_rl.plots import plot_run
from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.files import FileError, write_text

TAKING = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from element_rl.runs.folder import RunError, RunFolder

    for attempt in range(int(sys.argv[2])):
        path, gate = Path(sys.argv[1]) / f"run{attempt}", time.monotonic() + 0.05
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                while time.monotonic() < gate:  # all at the same moment
                    pass
                try:
                    run = RunFolder.create(path, {"settings": {"number": number}})
                except RunError:
                    os._exit(3)
                with run.exclusively():
                    run.append_metrics([{"step": 1, "seed": number}])
                os._exit(0)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        run = RunFolder.open(path)
        assert sorted(codes) == [0, 3, 3, 3], codes
        winner = codes.index(0)
        assert run.config["settings"]["number"] == winner
        assert run.read_metrics()["seed"].tolist() == [winner]
    """
)


def test_of_processes_that_begin_at_once_one_has_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKING, str(tmp_path), "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_of_a_process_that_died_before_its_config_can_be_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.tmp-1-ab").write_text("{")
    run = RunFolder.create(tmp_path / "run", {"settings": {}})
    with run.exclusively():
        assert RunFolder.open(run.path).config == {"settings": {}}


def test_a_checkpoint_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    """Its `resume/` would be removed with the next checkpoint, as that of older ones is."""
    other, own = (RunFolder.create(tmp_path / name, {}) for name in ("other", "own"))
    save(other, 5)
    own.checkpoints_path.mkdir()
    (own.checkpoints_path / "step_000000005").symlink_to(other.checkpoints_path / "step_000000005")
    save(own, 10)
    check(own, 10)
    check(other, 5)
    assert (other.checkpoints_path / "step_000000005" / "resume").is_dir()


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    other, own = (RunFolder.create(tmp_path / name, {}) for name in ("other", "own"))
    save(other, 5)
    other.append_metrics([row(5, 0)])
    before = other.metrics_path.read_bytes()
    own.checkpoints_path.symlink_to(other.checkpoints_path)
    own.metrics_path.symlink_to(other.metrics_path)
    with pytest.raises(RunError, match=r"is a link to .*other/checkpoints, and a run writes into"):
        save(own, 10)
    with pytest.raises(FileError, match=r"metrics\.csv could not be written \(it is a link to"):
        own.append_metrics([row(1, 0)])
    check(other, 5)
    assert other.metrics_path.read_bytes() == before


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(FileError, match="it is a device, a pipe or a socket"):
            write_text(path, "text")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_name_with_dollars_is_text(tmp_path: Path) -> None:
    runs = []
    for name in (r"x$\frac{$y", "$_$"):
        config = {"env": r"$\nothing{$", "reward": r"$\frac{$", "settings": {}}
        run = RunFolder.create(tmp_path / name, config)
        run.append_metrics([row(step, 0, coverage=step) for step in (1, 2)])
        runs.append(run)
    assert len(plot_run(runs, tmp_path / "figures", lambda text: None)) >= 2


def test_damage_is_no_reason_to_leave_a_figure_out(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "a", "reward": "b"})
    run.append_metrics([row(1, 0, coverage=1)])
    save(run, 1)
    save(run, 2)
    assert check_files(run).status == "ok"
    (run.checkpoints_path / "step_000000001" / "manifest.json").unlink()
    with pytest.raises(FileError, match=r"step_000000001/manifest\.json does not exist"):
        plot_run([run], say=lambda text: None)
    with pytest.raises(FileError, match=r"step_000000001/manifest\.json does not exist"):
        run.load_policy(1)
    file = run.checkpoints_path / "step_000000002" / "visits.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    found = check_files(run)
    assert found.status == "fail"
    assert len(found.values["files"]) == 2
