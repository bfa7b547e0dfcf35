"""Tiny environments of vectors for tests of PPO's loop, in a module that worker processes can
import."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

CHOICE, BOX = "element-tests/Line-v0", "element-tests/Plane-v0"


class Line(gymnasium.Env):
    """A place on a line from −1 to 1, and the same squared. The right end gives reward 1 and ends
    the episode; the start is seeded.

    `kills_at`: it kills its process in this step of its life, once: then `flag` exists.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, box: bool = False, kills_at: int = -1, flag: str = "") -> None:
        self.observation_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)
        self.action_space: gymnasium.Space = gymnasium.spaces.Discrete(2)
        if box:
            self.action_space = gymnasium.spaces.Box(-0.2, 0.2, (1,), np.float32)
        self.box, self.kills_at, self.flag, self.taken = box, kills_at, flag, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-0.5, 0.5))
        return self._view(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        if self.taken == self.kills_at and not Path(self.flag).exists():
            Path(self.flag).touch()
            os.kill(os.getpid(), 9)
        moved = float(action[0]) if self.box else 0.2 * (2 * int(action) - 1)
        self.place = max(self.place + moved, -1.0)
        there = self.place >= 1.0
        return self._view(), float(there), there, False, {}

    def _view(self) -> np.ndarray:
        return np.array([self.place, self.place**2], np.float32)


class Plane(Line):
    """The same with actions of a Box."""

    def __init__(self, **options: Any) -> None:
        super().__init__(box=True, **options)


def register_probes() -> None:
    gymnasium.register(CHOICE, entry_point=Line, max_episode_steps=15)
    gymnasium.register(BOX, entry_point=Plane, max_episode_steps=15)


def forget_probes() -> None:
    for name in (CHOICE, BOX):
        gymnasium.registry.pop(name)
