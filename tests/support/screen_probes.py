"""A tiny screen for tests of the on-policy loop, in a module that worker processes can import."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

NAME = "element-tests/Corridor-v0"


class Corridor(gymnasium.Env):
    """Nine places in a row, the agent a bright bar. The right end gives reward 1 and ends the
    episode; the start is seeded.

    `breaks_at`: it raises in this place. `kills_at`: it kills its process in this step of its life,
    once: then `flag` exists.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)
    coverage_axes = ("x", "y")
    coverage_bounds = ((0.0, 9.0), (0.0, 1.0))
    coverage_cells = (9, 2)

    def __init__(self, breaks_at: int = -1, kills_at: int = -1, flag: str = "") -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.breaks_at, self.kills_at, self.flag = breaks_at, kills_at, flag
        self.taken = 0  # steps, over all episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(0, 3))
        return self._view(), self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        if self.taken == self.kills_at and not Path(self.flag).exists():
            Path(self.flag).touch()
            os.kill(os.getpid(), 9)
        self.place = max(self.place + (1 if action else -1), 0)
        if self.place == self.breaks_at:
            raise RuntimeError("the emulator gave up")
        there = self.place >= 8
        return self._view(), float(there), there, False, self._info()

    def _view(self) -> np.ndarray:
        view = np.zeros((84, 84), np.uint8)
        view[:, self.place * 9 : self.place * 9 + 9] = 255
        return view

    def _info(self) -> dict[str, Any]:
        return {"position": np.array([self.place + 0.5, 0.5], np.float32)}


def register_probes() -> None:
    gymnasium.register(NAME, entry_point=Corridor, max_episode_steps=40)
