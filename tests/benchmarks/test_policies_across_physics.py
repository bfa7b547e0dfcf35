"""The comparison of physics takes a run and tells what its policies do in both."""

from pathlib import Path

import numpy as np

from benchmarks.policies_across_physics import Settings, main
from element_rl.agents.sac import SACConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run


def test_policies_do_in_the_point_maze_what_they_do_in_its_twin(tmp_path: Path) -> None:
    config = ExploreConfig(
        "PointMaze-v0",
        steps=800,
        seeds=3,
        replay_size=2_000,
        random_seeds=0,
        workers=0,
        env_options=("max_episode_steps=60",),
        sac=SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=200),
    )
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    settings = Settings(run.path, physics="jax", envs=2, episodes=4, scan=30)
    found = main(settings)
    assert found.keys() == {"host", "jax"}
    for name, one in found["host"].items():
        other = found["jax"][name]
        assert one.shape == other.shape == (3,)
        assert np.isfinite(other).all()
    np.testing.assert_array_equal(found["jax"]["length"], 60)
    np.testing.assert_array_equal(found["host"]["length"], 60)
    # the same policies: they differ less between the physics than chance would have it
    np.testing.assert_allclose(found["jax"]["entropy"], found["host"]["entropy"], rtol=0.5)
