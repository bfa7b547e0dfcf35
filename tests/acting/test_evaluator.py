"""Episodes in processes of their own are those that `element evaluate` runs."""

import os
import signal

import numpy as np
import pytest

from element_rl.acting.episode import record_episode
from element_rl.acting.evaluator import Evaluator
from element_rl.acting.policies import policy_of
from element_rl.commands.summaries import evaluation_table
from element_rl.envs.make import describe, make_env


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_evaluation_is_the_episode_of_evaluate(workers: int, deterministic: bool) -> None:
    rng = np.random.default_rng(0)
    parameters = {
        "weight_0": rng.normal(size=(2, 3, 2)).astype(np.float32),
        "bias_0": np.zeros((2, 2), np.float32),
    }
    seeds = [[(agent, 7, episode) for episode in range(2)] for agent in range(2)]
    with Evaluator("Pendulum-v1", {"max_episode_steps": 20}, workers) as evaluator:
        evaluator.start(parameters, seeds, deterministic)
        returns, lengths = evaluator.wait()
    env, spec = (
        make_env("Pendulum-v1", max_episode_steps=20),
        describe("Pendulum-v1", max_episode_steps=20),
    )
    for agent, own in enumerate(seeds):
        policy = {name: array[agent] for name, array in parameters.items()}
        acting = policy_of(policy, env.action_space)
        episodes = [record_episode(spec, env, acting, seed, deterministic) for seed in own]
        np.testing.assert_array_equal(returns[agent], [episode.total for episode in episodes])
    env.close()
    assert (lengths == 20).all()


def test_a_worker_that_dies_is_reported() -> None:
    with Evaluator("Pendulum-v1", {}, 1) as evaluator:
        evaluator.start(
            {"weight_0": np.zeros((1, 3, 2)), "bias_0": np.zeros((1, 2))},
            [[(0, 0, e) for e in range(200)]],
        )
        for worker in evaluator._workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(
            ValueError, match=r"died, perhaps for want of memory: try again with fewer --workers"
        ):
            evaluator.wait()


def test_counts_are_printed_as_counts(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"step": 1_000, "episodes": 5, "episode_length": 100.0, "coverage": 1_234}
    numbers = {"extrinsic_return": 7.0, "episodic_entropy": float("nan")}
    evaluation_table([row | numbers, row | numbers | {"episode_length": 99.6, "coverage": None}])
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert cells == [
        ["1,000", "5", "7.00", "100", "–", "1,234"],
        ["1,000", "5", "7.00", "99.6", "–", "–"],
    ]
