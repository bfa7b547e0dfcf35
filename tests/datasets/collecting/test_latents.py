"""Datasets of agents that were told a latent hold what the task shows, and name the task."""

from pathlib import Path

import minari
import numpy as np
import pytest

from element_rl.agents.sac import SACConfig
from element_rl.commands.collect import main
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run

RLE = ExploreConfig(
    "PointMaze-v0",
    "rle",
    ("feature_sizes=[16]",),
    steps=80,
    replay_size=400,
    chunk_steps=40,
    random_seeds=0,
    workers=0,
    env_options=("max_episode_steps=20",),
    sac=SACConfig(hidden_sizes=(16,), batch_size=16, learn_start=100),
)


def test_a_dataset_is_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acted or replayed; its environment, stepped with its actions, shows the same."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    run = create_run(RLE, tmp_path / "run")
    explore(RLE, run)
    for name, how in (
        ("acted-v0", ["--steps", "40", "--workers", "0"]),
        ("kept-v0", ["--from-replay"]),
    ):
        assert main([str(run.path), "--dataset", name, *how]) == 0
        dataset = minari.load_dataset(name)
        assert dataset.spec.observation_space.shape == (2,)
        env = dataset.recover_environment()
        assert env.observation_space.shape == (2,)
        for episode in dataset.iterate_episodes():
            assert episode.observations.shape == (len(episode.actions) + 1, 2)
        if name == "acted-v0":
            entry = next(iter(dataset.storage.get_episode_metadata([0])))
            seen = [env.reset(seed=int(entry["seed"]))[0]]
            first = next(iter(dataset.iterate_episodes()))
            seen += [env.step(action)[0] for action in first.actions]
            np.testing.assert_allclose(first.observations, np.stack(seen), atol=1e-6)
        env.close()
