"""`element evaluate` on screens: A3C's policies and offline values act as they do where they are
trained and judged."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.small_rooms import trained_rooms

from element_rl.acting.episode import record_episode
from element_rl.acting.evaluator import Evaluator
from element_rl.acting.policies import policy_of
from element_rl.agents.discrete_cql import DiscreteCQLConfig
from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.envs.make import describe, make_env
from element_rl.evaluate.checkpoints import evaluate
from element_rl.runs.folder import RunFolder
from element_rl.training.offline import OfflineConfig, create_offline_run, train_offline

OPTIONS = {"goal_distance": 4, "max_episode_steps": 15}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained_rooms(tmp_path_factory.mktemp("runs") / "rooms", 3, 40, OPTIONS)


@pytest.mark.parametrize("deterministic", [True, False])
def test_policies_of_an_on_policy_run(run: RunFolder, tmp_path: Path, deterministic: bool) -> None:
    rows = evaluate(run, episodes=2, deterministic=deterministic, out=tmp_path, video=deterministic)
    assert [row["step"] for row in rows] == [20, 40]
    assert json.loads((tmp_path / "evaluation.json").read_text())["checkpoints"] == rows
    seeds = [[(3 + agent, 40, episode) for episode in range(2)] for agent in range(2)]
    with Evaluator("Rooms-v0", OPTIONS, 0) as evaluator:
        evaluator.start(run.load_policy(40), seeds, deterministic)
        returns, lengths = evaluator.wait()
    assert rows[-1]["extrinsic_return"] == returns.mean()
    assert rows[-1]["episode_length"] == lengths.mean()
    assert rows[-1]["episodes"] == 4
    assert 0 < rows[-1]["episodic_entropy"] < np.log2(15)
    positions = load_file(tmp_path / "trajectories.safetensors")["step_000000040/positions"]
    assert positions.shape == (4, 16, 2)
    np.testing.assert_array_equal(np.isfinite(positions[..., 0]).sum(axis=1), lengths.ravel() + 1)
    seen = positions[np.isfinite(positions).all(axis=-1)]
    assert rows[-1]["coverage"] == len(np.unique(seen, axis=0))
    assert (tmp_path / "step_000000040.mp4").exists() == deterministic


def test_an_evaluation_does_not_depend_on_processes(run: RunFolder, tmp_path: Path) -> None:
    for workers in (0, 3):
        evaluate(run, episodes=2, out=tmp_path / str(workers), workers=workers)
    for name in ("evaluation.json", "trajectories.safetensors"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()


def test_policies_learned_offline_from_it(run: RunFolder, tmp_path: Path) -> None:
    collect(
        CollectConfig(run.path, "rooms/test-v0", steps=60, workers=0, out=tmp_path, entropy=False)
    )
    config = OfflineConfig(
        ("rooms/test-v0",),
        root=str(tmp_path),
        steps=4,
        seed=5,
        by_agent=True,
        frame_stack=2,
        evaluate_every=4,
        episodes=2,
        workers=0,
        discrete_cql=DiscreteCQLConfig(hidden_sizes=(8,), batch_size=8),
    )
    offline = create_offline_run(config, tmp_path / "run")
    train_offline(config, offline)
    (row,) = evaluate(offline, episodes=2, deterministic=True, checkpoint=4)
    assert row["extrinsic_return"] == offline.read_metrics()["extrinsic_return"].mean()
    assert row["episode_length"] == offline.read_metrics()["episode_length"].mean()
    assert np.isnan(row["episodic_entropy"])  # there is no encoder to measure it with


def test_no_parameters_are_random_actions() -> None:
    env = make_env("Rooms-v0", max_episode_steps=200)
    spec, policy = describe("Rooms-v0", max_episode_steps=200), policy_of({}, env.action_space)
    first, again, other = (
        record_episode(spec, env, policy, (0, 0, seed), False) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.observations, again.observations)
    assert (np.bincount(first.actions, minlength=5) > 15).all()
    assert first.actions.tolist() != other.actions.tolist()
