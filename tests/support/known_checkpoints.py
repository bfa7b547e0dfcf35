"""Checkpoints whose every number is their step, and the proof that all of it is there."""

from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.folder import RunFolder

CONFIG = {"env": "Ant-v5", "reward": "element", "beta": 0.5, "steps": 1000, "seeds": 2}


def save(run: RunFolder, step: int, size: int = 1000, **options: Any) -> Path:
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


def row(step: int, seed: int, **values: Any) -> dict[str, Any]:
    return {"step": step, "seed": seed, **values}
