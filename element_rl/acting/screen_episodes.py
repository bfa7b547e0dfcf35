"""Whole episodes of a policy on a screen, for evaluators. No JAX, as their processes load none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, Int, UInt8

from element_rl.acting.host_a3c import act, forward
from element_rl.acting.host_values import action_values

Parameters = Mapping[str, np.ndarray]
Seed = tuple[int, int, int]


@dataclass(frozen=True)
class ScreenEpisode:
    """What one policy did in one episode."""

    frames: UInt8[np.ndarray, "M H W"]  # M = T + 1
    positions: Float[np.ndarray, "M 2"]
    actions: Int[np.ndarray, " T"]
    total: float  # sum of its rewards


class Moment(NamedTuple):
    """An observation, and what led to it."""

    observation: UInt8[np.ndarray, "..."]
    info: dict[str, Any]
    action: int | None = None  # none before the first
    reward: float = 0.0


def screen_return(
    env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool = False
) -> tuple[float, int]:
    """Return and length of one episode."""
    rewards = [moment.reward for moment in _moments(env, parameters, seed, deterministic)]
    return sum(rewards), len(rewards) - 1


def run_screen_episode(
    env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool
) -> ScreenEpisode:
    """The same episode, with all that happened in it; also of offline agents, whose returns are
    `evaluators.episode_return`."""
    frames, positions, actions, total = [], [], [], 0.0
    for moment in _moments(env, parameters, seed, deterministic):
        frames.append(_newest(moment.observation))
        positions.append(moment.info["position"])
        total += moment.reward
        if moment.action is not None:
            actions.append(moment.action)
    return ScreenEpisode(np.stack(frames), np.stack(positions), np.array(actions, np.int32), total)


def _moments(
    env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool
) -> Iterator[Moment]:
    """From the reset to the end of an episode, which depends on the parameters and the seed, and on
    nothing else.

    Of an A3C policy actions are drawn as in training, or the most likely ones are taken. Of the
    values of an offline agent the highest is taken, never drawn. Without parameters actions are
    uniformly random.
    """
    generator = np.random.default_rng(list(seed))
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    lstm = np.zeros((2, len(parameters.get("lstm_hidden", ()))), np.float32)
    yield Moment(observation, info)
    done = False
    while not done:
        if not parameters:
            assert isinstance(env.action_space, gymnasium.spaces.Discrete)
            action = int(generator.integers(env.action_space.n))
        elif "lstm_hidden" not in parameters:
            action = int(np.argmax(action_values(parameters, observation)))
        elif deterministic:
            probabilities, _, lstm = forward(parameters, observation, lstm)
            action = int(np.argmax(probabilities))
        else:
            action, lstm = act(parameters, observation, lstm, float(generator.random()))
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        yield Moment(observation, info, action, float(reward))


def _newest(observation: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "H W"]:
    """The frame, or the last of a stack of them."""
    return (observation if observation.ndim == 2 else observation[-1]).copy()
