"""Run folders such as commands leave behind, with invented but plausible numbers."""

from pathlib import Path

import numpy as np

from element_rl.runs.folder import RunFolder
from element_rl.storage.files import write_arrays

BOUNDS = {"coverage_bounds": [[-25, 25], [-25, 25]], "coverage_axes": ["x", "y"]}
STEPS = np.arange(10_000, 500_001, 10_000)


def make_run(
    path: Path,
    reward: str = "element",
    seeds: int = 3,
    speed: float = 1.0,
    rows: bool = True,
    **config,
) -> RunFolder:
    """A run such as `element explore Ant-v5` leaves behind."""
    run = RunFolder.create(
        path, {"env": "Ant-v5", "reward": reward, "seeds": seeds, **BOUNDS} | config
    )
    random = np.random.default_rng(len(reward))
    walks = [
        random.normal(scale=0.35 * speed, size=(len(STEPS), 40, 60, 2)).cumsum(axis=2)
        for _ in range(seeds)
    ]
    visits = np.zeros((seeds, len(STEPS), 100, 100), np.int32)
    for seed, walk in enumerate(walks):
        for position, points in enumerate(
            walk * np.linspace(0.2, 1, len(STEPS))[:, None, None, None]
        ):
            visits[seed, position] = np.histogram2d(
                *points.reshape(-1, 2).T, bins=100, range=BOUNDS["coverage_bounds"]
            )[0]
    visits = visits.cumsum(axis=1, dtype=np.int32)
    if rows:
        run.append_metrics(
            [metrics(step, seed, visits, random) for step in STEPS for seed in range(seeds)]
        )
    run.save_checkpoint(250_000, {}, visits[:, 24], {}, {})
    run.save_checkpoint(500_000, {}, visits[:, -1], {}, {})
    return run


def metrics(step: int, seed: int, visits: np.ndarray, random: np.random.Generator) -> dict:
    position = step // 10_000 - 1
    early = step < 30_000  # no episode has ended, nothing is remembered yet
    return {
        "step": step,
        "seed": seed,
        "episode_length": np.nan
        if early
        else 150 + 800 * (1 - np.exp(-step / 2e5)) + random.normal(scale=30),
        "episodic_entropy": np.nan
        if early
        else 3 + 3 * (1 - np.exp(-step / 1.5e5)) + random.normal(scale=0.1),
        "coverage": int((visits[seed, position] > 0).sum()),
        "memory_size": 0 if step < 1e5 else (step // 100_000) * 10_000,
        "reward_episodic": None if early else 0.4 + 0.3 * step / 5e5 + random.normal(scale=0.02),
        "reward_lifelong": None
        if step < 1e5
        else 0.5 - 0.2 * step / 5e5 + random.normal(scale=0.03),
    }


def add_evaluation(run: RunFolder, checkpoints: int = 5) -> None:
    random = np.random.default_rng(0)
    arrays = {}
    for position, step in enumerate(np.linspace(100_000, 500_000, checkpoints).astype(int)):
        turns = random.normal(scale=0.05, size=(6, 300)).cumsum(axis=1) + random.uniform(
            0, 6.3, size=(6, 1)
        )
        moves = np.stack([np.cos(turns), np.sin(turns)], axis=-1) * (
            0.01 + 0.05 * position / checkpoints
        )
        positions = moves.cumsum(axis=1)
        positions[0, 200:] = np.nan
        arrays[f"step_{step:09d}/positions"] = positions.astype(np.float32)
    write_arrays(run.evaluation_path / "trajectories.safetensors", arrays)
