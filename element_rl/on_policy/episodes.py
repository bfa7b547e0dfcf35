"""Whole episodes of a policy on a screen, for evaluators. No JAX, as their processes load none."""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np
from jaxtyping import Float, Int, UInt8

from element_rl.agents.host_a3c import act, forward
from element_rl.agents.host_values import action_values

Parameters = Mapping[str, np.ndarray]
Seed = tuple[int, int, int]


@dataclass(frozen=True)
class ScreenEpisode:
    """What one policy did in one episode."""

    frames: UInt8[np.ndarray, "M H W"]  # M = T + 1
    positions: Float[np.ndarray, "M 2"]
    actions: Int[np.ndarray, " T"]
    total: float  # sum of its rewards


def screen_return(
    env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool = False
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


def run_screen_episode(env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool) -> ScreenEpisode:
    """The episode of `screen_return`, or of `evaluators.episode_return`, with the same seed, and all that happened in it.

    Parameters are an A3C policy's, or the values of an offline agent, of which the highest is taken, never drawn; without any,
    actions are uniformly random.
    """
    generator = np.random.default_rng(list(seed))
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    lstm = np.zeros((2, len(parameters.get("lstm_hidden", ()))), np.float32)
    frames, positions, actions, total, done = [_newest(observation)], [info["position"]], [], 0.0, False
    while not done:
        if not parameters:
            action = int(generator.integers(env.action_space.n))
        elif "lstm_hidden" not in parameters:
            action = int(np.argmax(action_values(parameters, observation)))
        elif deterministic:
            probabilities, _, lstm = forward(parameters, observation, lstm)
            action = int(np.argmax(probabilities))
        else:
            action, lstm = act(parameters, observation, lstm, float(generator.random()))
        observation, reward, terminated, truncated, info = env.step(action)
        frames.append(_newest(observation))
        positions.append(info["position"])
        actions.append(action)
        total, done = total + float(reward), terminated or truncated
    return ScreenEpisode(np.stack(frames), np.stack(positions), np.array(actions, np.int32), total)


def _newest(observation: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "H W"]:
    """The frame, or the last of a stack of them."""
    return (observation if observation.ndim == 2 else observation[-1]).copy()
