"""A dataset recorded here trains d3rlpy's agent, by the example that users are shown."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from element_rl.datasets.recorder import VectorRecorder

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_with_d3rlpy.py"


@pytest.mark.skipif(importlib.util.find_spec("d3rlpy") is None, reason="d3rlpy is not installed")
def test_a_dataset_recorded_here_trains_an_agent_of_d3rlpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    envs = gymnasium.make_vec(
        "Pendulum-v1", num_envs=2, vectorization_mode="sync", max_episode_steps=40
    )
    with VectorRecorder(envs, "pendulum/recorded-v0") as recorder:
        recorder.action_space.seed(0)
        recorder.reset(seed=0)
        for _ in range(130):
            recorder.step(recorder.action_space.sample())
        recorder.finish()
    environment = os.environ | {"MINARI_DATASETS_PATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLE), "pendulum/recorded-v0", "5"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, *_, last = [
        line for line in result.stdout.splitlines() if line.startswith(("pendulum", "One episode"))
    ]
    assert first.startswith("pendulum/recorded-v0:")
    assert "8 episodes" in first  # six that ended, two cut at the end
    assert last.startswith("One episode with the trained policy: return -")
