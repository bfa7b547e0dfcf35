"""Episodes in processes of their own are those that `element evaluate` runs."""

import numpy as np
import pytest

from element_rl.acting.episodes import run_episode
from element_rl.acting.evaluators import Evaluator
from element_rl.envs.robots import describe, make_env


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
        expected = [run_episode(spec, env, policy, seed, deterministic).total for seed in own]
        np.testing.assert_allclose(returns[agent], expected, rtol=1e-12)
    env.close()
    assert (lengths == 20).all()


def test_a_worker_that_dies_is_reported() -> None:
    with Evaluator("Pendulum-v1", {}, 1) as evaluator:
        evaluator.start(
            {"weight_0": np.zeros((1, 3, 2)), "bias_0": np.zeros((1, 2))},
            [[(0, 0, e) for e in range(200)]],
        )
        for process in evaluator._pool._processes.values():
            process.kill()
        with pytest.raises(
            ValueError, match=r"died, perhaps for want of memory: try again with fewer --workers"
        ):
            evaluator.wait()
