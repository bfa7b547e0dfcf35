"""An environment that hangs: a signal ends the run at a checkpoint, and a time-out names the
worker."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from element_rl.runs.folder import RunFolder

WORLD = """
    import multiprocessing
    import time
    from pathlib import Path
    import gymnasium
    import numpy as np

    class Hanging(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)
        taken = 0
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.shown(), {}
        def step(self, action):
            self.taken += 1
            if self.taken > 25 and multiprocessing.parent_process() is not None:
                Path("hangs").touch()
                time.sleep(1000)
            return self.shown(), 0.0, False, False, {}
        def shown(self):
            return self.np_random.integers(0, 255, (84, 84), np.uint8)

    gymnasium.register("Hanging-v0", Hanging, max_episode_steps=100)
"""


def command(*more: str) -> list[str]:
    settings = ("--a3c.channels", "2", "2", "--a3c.hidden-size", "8", "--a3c.local-steps", "10")
    run = ("--steps", "200", "--workers", "1", "--reward", "extrinsic", "--no-figures")
    options = (*run, "--out", "run", "--random-seeds", "0", "--state-dim", "3", *settings)
    return [
        *(sys.executable, "-m", "element_rl.cli", "on-policy", "hanging_world:Hanging-v0"),
        *(*options, *more),
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "hanging_world.py").write_text(textwrap.dedent(WORLD))
    return tmp_path


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}


def test_sigterm_ends_a_run_whose_environment_hangs(place: Path) -> None:
    with subprocess.Popen(command(), cwd=place, env=environment()) as process:
        deadline = time.monotonic() + 120
        while not (place / "hangs").exists() and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert RunFolder.open(place / "run").latest_checkpoint() == 20  # two rollouts were delivered


def test_a_worker_that_hangs_is_named(place: Path) -> None:
    more = ("--env-timeout", "4", "--restarts", "0")
    done = subprocess.run(
        command(*more), cwd=place, env=environment(), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 2, done.stderr
    assert "Worker 0 of agent 0 failed once, the last time because its environment did" in (
        done.stderr
    )
    assert "(--env-timeout)" in done.stderr
