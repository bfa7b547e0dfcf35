"""A world in which one falls: two beginnings, and what a return is worth that goes on after a
fall."""

from typing import Any

import gymnasium
import numpy as np

NAME = "element-tests/Falling-v0"


class Falling(gymnasium.Env):
    """Observes (beginning, step). From the first beginning the second step is a fall that pays 1,
    from the second the first step is one that pays nothing. Actions do nothing."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.second, self.steps = float(self.np_random.integers(2)), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        falls = self.steps == 2 - self.second
        return self._seen(), float(falls and not self.second), bool(falls), False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.second, self.steps], np.float32)


def register() -> None:
    gymnasium.register(NAME, entry_point=Falling, max_episode_steps=5)


OBSERVATIONS = np.array([[0, 0], [0, 1], [1, 0]], np.float32)  # where one can act


def values_of_the_stream(discount: float) -> np.ndarray:
    """With m the mean value of both beginnings: v(0, 1) = 1 + γ m, v(0, 0) = γ v(0, 1),
    v(1, 0) = γ m, so that m = γ (1 + γ m) / 2 + γ m / 2."""
    mean = discount / (2 - discount - discount**2)
    return np.array([discount * (1 + discount * mean), 1 + discount * mean, discount * mean])


def values_to_the_fall(discount: float) -> np.ndarray:
    return np.array([discount, 1.0, 0.0])
