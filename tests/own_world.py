"""Environments of a package that nothing but their names imports: a walk in a plane, a screen, and
some that fail. It stands here, not in `support`, as a user's own package does: at the top of the
path."""

import sys
from typing import Any

import gymnasium
import numpy as np

START = (3.0, 4.0)
WALK, SCREEN = "own_world:OwnWalk-v0", "own_world:own/Screen-v0"


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steps of up to 0.1 from about START, without any border; the observation does not tell where
    it is."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.array(START) + self.np_random.uniform(-0.05, 0.05, 2)
        return self._told()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + 0.1 * np.asarray(action, np.float64)
        observation, info = self._told()
        return observation, float(self.place[0]), False, False, info

    def _told(self) -> tuple[np.ndarray, dict[str, Any]]:
        x, y = self.place.tolist()
        return np.array([np.sin(x), np.cos(y), 1.0], np.float32), {
            "x_position": x,
            "y_position": y,
            "height": 2.0,
        }


class Screen(gymnasium.Env[np.ndarray, int]):
    """A black image."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros((84, 84), np.uint8), 0.0, False, False, {}


class Failing(Walk):
    """Fails where it is told to."""

    def __init__(self, when: str = "made") -> None:
        super().__init__()
        self.when = when
        if when == "made":
            raise AttributeError("module 'mujoco' has no\nattribute 'MjOld'.")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self.when == "reset":
            raise RuntimeError("no simulator")
        return super().reset(seed=seed)


class Hall(gymnasium.Env[dict[str, Any], np.ndarray]):
    """Six rooms in a row, and a place in each: with the first number one goes on or back, with the
    second one moves the place. The last room ends the episode with reward 1."""

    def __init__(self) -> None:
        place = gymnasium.spaces.Box(-1.0, 1.0, (1, 2), np.float64)
        self.observation_space = gymnasium.spaces.Dict(
            place=place, room=gymnasium.spaces.Discrete(6)
        )
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.room = self.np_random.uniform(-0.1, 0.1, (1, 2)), 0
        return self._told(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.room = max(self.room + (1 if action[0] else -1), 0)
        self.place = np.clip(self.place + 0.2 * (action[1] - 1), -1.0, 1.0)
        ends = self.room == 5
        return self._told(), float(ends), ends, False, {}

    def _told(self) -> dict[str, Any]:
        return {"place": self.place.copy(), "room": self.room}


class Spaces(gymnasium.Env[Any, Any]):
    """Has the spaces it is given."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def forget() -> None:
    """Leaves this process as one that has not heard of these environments."""
    sys.modules.pop("own_world", None)
    for name in [
        name for name, spec in gymnasium.registry.items() if "own_world" in str(spec.entry_point)
    ]:
        del gymnasium.registry[name]


gymnasium.register("OwnWalk-v0", "own_world:Walk", max_episode_steps=50)
gymnasium.register("own/Screen-v0", "own_world:Screen", max_episode_steps=20)
gymnasium.register("OwnFailing-v0", "own_world:Failing", max_episode_steps=20)
gymnasium.register("OwnHall-v0", "own_world:Hall", max_episode_steps=20)
gymnasium.register("OwnSpaces-v0", "own_world:Spaces", max_episode_steps=20)
