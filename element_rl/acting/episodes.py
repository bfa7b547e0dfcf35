"""An episode of a policy on a robot, with all that happened in it. Nothing here imports JAX:
processes that evaluate run it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.host_policy import policy_action
from element_rl.envs.robots import EnvSpec, position_of


@dataclass(frozen=True)
class Episode:
    """What one policy did in one episode of T steps."""

    observations: Float[np.ndarray, "M O"]  # M = T + 1
    positions: Float[np.ndarray, "M C"]
    total: float  # sum of its rewards


def run_episode(
    spec: EnvSpec,
    env: Any,
    parameters: Mapping[str, np.ndarray],
    seed: Sequence[int],
    deterministic: bool,
    render: Callable[[], None] | None = None,
) -> Episode:
    """Acts until the episode ends; `render` is called after every step."""
    generator = np.random.default_rng(list(seed))
    low, high = np.asarray(spec.action_low), np.asarray(spec.action_high)
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    observations, positions, total = [observation], [position_of(spec, observation, info, env)], 0.0
    done = False
    while not done:
        noise = generator.standard_normal(spec.action_dim, dtype=np.float32) * (
            0.0 if deterministic else 1.0
        )
        action = policy_action(parameters, observation.astype(np.float32), noise.astype(np.float32))
        observation, reward, terminated, truncated, info = env.step(
            low + (action + 1) / 2 * (high - low)
        )
        observations.append(observation)
        positions.append(position_of(spec, observation, info, env))
        total += float(reward)
        done = terminated or truncated
        if render is not None:
            render()
    return Episode(np.asarray(observations, np.float32), np.asarray(positions, np.float32), total)


def run_episodes(
    spec: EnvSpec,
    samples: int,
    env: Any,
    parameters: Mapping[str, np.ndarray],
    seed: Sequence[int],
    deterministic: bool,
) -> list[Float[np.ndarray, "_ C"]]:
    """Positions of episode after episode until so many steps are taken; the last number of `seed`
    counts the episodes."""
    *policy, first = seed
    paths: list[np.ndarray] = []
    while samples > 0:
        positions = run_episode(
            spec, env, parameters, [*policy, first + len(paths)], deterministic
        ).positions
        paths.append(positions[: samples + 1])
        samples -= len(paths[-1]) - 1
    return paths


def padded_paths(
    paths: Sequence[Float[np.ndarray, "_ C"]], steps: int
) -> Float[np.ndarray, "E L C"]:
    """Positions of episodes of different lengths in one array of L = `steps` + 1, NaN after the end
    of each."""
    padded = np.full((len(paths), steps + 1, paths[0].shape[1]), np.nan, np.float32)
    for index, path in enumerate(paths):
        padded[index, : len(path)] = path
    return padded
