"""A small world for the tests: numbers that drift, episodes that die or run out of time."""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from support.small_rewards import SMALL_REWARDS

OBSERVATIONS = spaces.Box(-np.inf, np.inf, (4,))
ACTIONS = spaces.Box(-1.0, 1.0, (2,))
# windows within a few steps, networks small enough for a test
SMALL = SMALL_REWARDS | {"element": {"update_interval": 40, "update_steps": 30}}


class Walk(NamedTuple):
    """T steps of E environments."""

    before: np.ndarray
    action: np.ndarray
    after: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations, actions and next observations by the number of the transition."""
        return tuple(part.reshape(-1, part.shape[2]) for part in self[:3])  # type: ignore[return-value]


def walk(steps: int, num_envs: int, seed: int = 0, dying: float = 0.08, limit: int = 12) -> Walk:
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[], [], [], [], []]
    place, age = rng.normal(size=(num_envs, 4)), np.zeros(num_envs, int)
    for _ in range(steps):
        after = place + 0.3 * rng.normal(size=place.shape)
        age += 1
        terminated = rng.random(num_envs) < dying
        truncated = ~terminated & (age >= limit)
        chosen = rng.uniform(-1, 1, (num_envs, 2))
        for part, row in zip(parts, (place, chosen, after, terminated, truncated), strict=True):
            part.append(row)
        ended = terminated | truncated
        place = np.where(ended[:, None], rng.normal(size=place.shape), after)
        age[ended] = 0
    return Walk(*(np.stack(part) for part in parts))
