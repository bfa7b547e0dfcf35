"""Whole episodes of an A3C policy on a screen, for evaluators. No JAX, as their processes load none."""

from collections.abc import Mapping

import gymnasium
import numpy as np

from element_rl.agents.host_a3c import act, forward

Seed = tuple[int, int, int]


def screen_return(
    env: gymnasium.Env, parameters: Mapping[str, np.ndarray], seed: Seed, deterministic: bool = False
) -> tuple[float, int]:
    """Return and length of one episode: actions are drawn as in training, or the most likely ones are taken.

    It depends on the parameters and the seed, and on nothing else.
    """
    generator = np.random.default_rng(list(seed))
    frame, _ = env.reset(seed=int(generator.integers(2**31)))
    lstm = np.zeros((2, len(parameters["lstm_hidden"])), np.float32)
    total, length, done = 0.0, 0, False
    while not done:
        if deterministic:
            probabilities, _, lstm = forward(parameters, frame, lstm)
            action = int(np.argmax(probabilities))
        else:
            action, lstm = act(parameters, frame, lstm, float(generator.random()))
        frame, reward, terminated, truncated, _ = env.step(action)
        total, length, done = total + float(reward), length + 1, terminated or truncated
    return total, length
