"""A tracked run that is stopped, or killed: it ends as every run does, no process of a tracker is
left, and resumed it goes on in the same tracked run, each step once."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.trackers import (
    NAMES,
    environment,
    expected,
    gone,
    identity,
    marked,
    mlflow_client,
    mlflow_logged,
    trackio_logged,
    wandb_logged,
    wandb_records,
    without_results,
)

from element_rl.cli import main
from element_rl.runs.folder import RunFolder
from element_rl.tracking.follower import Ending, Follower, Order

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks in /proc")
MARK = "TRACKED_IN_A_TEST"
READERS = (wandb_logged, trackio_logged, mlflow_logged)


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_ends_a_tracked_run_as_every_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = [
        *("explore", "PointMaze", "--env-options", "max_episode_steps=50", "--log-every", "50"),
        *("--replay-size", "2500", "--sac.hidden-sizes", "8", "--sac.batch-size", "8"),
        *("--workers", "0", "--chunk-steps", "50", "--random-seeds", "0", "--no-figures"),
        *("--steps", "1000000", "--checkpoint-every", "500000", "--out", str(out)),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "element_rl.cli", *arguments, "--track", *NAMES],
        env=marked({}, str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    states = [out / "tracking" / f"{name}.json" for name in NAMES]
    wait_for(lambda: all(path.exists() and '"step"' in path.read_text() for path in states))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == "\nStopping: the checkpoint is written first; once more to end at once.\n"
    assert f"Continue with: element explore --resume {out} --track wandb trackio mlflow" in printed
    assert gone(MARK, str(tmp_path), 5.0) == []
    run = RunFolder.open(out)
    stopped = run.latest_checkpoint()
    before = {name: identity(run, name) for name in NAMES}
    assert mlflow_client(run).get_run(before["mlflow"]).info.status == "KILLED"

    resumed = ["explore", "--resume", str(out), "--steps", str(stopped + 200), "--no-figures"]
    assert main([*resumed, "--track", *NAMES]) == 0
    assert {name: identity(run, name) for name in NAMES} == before
    for logged in READERS:
        assert without_results(logged(run)) == expected(run), logged.__name__
    begun = [record["run"] for record in wandb_records(run) if record["type"] == "run"]
    assert {record["run_id"] for record in begun} == {before["wandb"]}
    assert len(begun) == 2  # files, which wandb sync puts together


KILLED = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from element_rl.runs.folder import RunFolder
    from element_rl.tracking.processes import TrackedRun, tracked
    from element_rl.tracking.settings import Tracking

    run = RunFolder.create(sys.argv[1], {"kind": "explore", "env": "Ant-v5", "settings": {}})
    with tracked(Tracking(("wandb", "mlflow")), [TrackedRun(run.path)]):
        for step in range(1, 10**6):
            run.append_metrics([{"step": step, "seed": 0, "coverage": step / 7}])
            time.sleep(0.2)
    """
)


def test_trackers_of_a_killed_run_end_by_themselves(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)], env=marked({}, str(tmp_path))
    )
    states = [out / "tracking" / f"{name}.json" for name in ("wandb", "mlflow")]
    wait_for(lambda: all(path.exists() and '"step"' in path.read_text() for path in states))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(MARK, str(tmp_path), 30.0) == []
    run = RunFolder.open(out)
    for logged in (wandb_logged, mlflow_logged):  # all of it, to the last row
        assert logged(run) == expected(run)


def test_a_library_that_hangs_is_not_left_behind_by_a_killed_run(tmp_path: Path) -> None:
    (tmp_path / "broken" / "wandb").mkdir(parents=True)
    hanging = f"""if True:
        import time, __main__
        __main__.ORPHANED = 1.0
        open({str(tmp_path / "hangs")!r}, "w").close()
        time.sleep(600)"""
    (tmp_path / "broken" / "wandb" / "__init__.py").write_text(hanging)
    paths = os.pathsep.join([str(tmp_path / "broken"), os.environ.get("PYTHONPATH", "")])
    script = KILLED.replace('"wandb", "mlflow"', '"wandb",')
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        env=marked({"PYTHONPATH": paths}, str(tmp_path)),
    )
    wait_for((tmp_path / "hangs").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(MARK, str(tmp_path), 40.0) == []


class Listed:
    """A tracker that lists what it is told."""

    def __init__(self) -> None:
        self.told: list = []

    def begin(self, facts, stored, remember) -> None:
        self.told.append(facts.name)

    def log(self, step, values) -> None:
        self.told.append(step)

    def send(self, files) -> None:
        self.told.append("files")

    def finish(self, outcome) -> str:
        self.told.append(outcome)
        return "nowhere"


@pytest.mark.parametrize("begins", [True, False])
def test_a_run_may_begin_and_end_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    folder, tracker = tmp_path / "run", Listed()
    monkeypatch.setattr(os, "dup2", lambda *descriptors: None)  # the output here is the test's

    class Over(Ending):
        """By the time that it is waited for, the run has come and gone."""

        def wait(self, timeout: float | None = None) -> bool:
            if begins:
                run = RunFolder.create(folder, {"settings": {"reward": "rnd"}})
                run.append_metrics([{"step": 10, "seed": 0, "coverage": 3.0}])
            self.outcome = "finished"
            self.set()
            return True

    order = Order("wandb", str(folder), "run", None, str(folder), False, os.getpid())
    Follower(order, tracker).follow(Over())
    assert tracker.told == (["run", 10, "files", "finished"] if begins else [])
