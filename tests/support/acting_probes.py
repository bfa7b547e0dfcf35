"""Policies and environments for the collector's tests, in a module that worker processes can
import; and what is compared of chunks."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from element_rl.acting.actors import RECORD_FIELDS
from element_rl.acting.collector import Chunk

Records = dict[str, np.ndarray]


def records_of(chunk: Chunk, row: int) -> Records:
    """A copy of what one environment did."""
    return {field: getattr(chunk, field)[row, : chunk.count[row]].copy() for field in RECORD_FIELDS}


def assert_same_records(records: Records, expected: Records) -> None:
    for field in RECORD_FIELDS:
        np.testing.assert_array_equal(
            records[field], expected[field].astype(records[field].dtype), err_msg=field
        )


def linear_policy(parameters: Any, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.tanh(observation @ parameters["weight"] + parameters["bias"] + 0.3 * noise)


def policy_without_jax(parameters: Any, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    assert "jax" not in sys.modules
    return linear_policy(parameters, observation, noise)


def diverged_policy(parameters: Any, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return noise * np.float32(np.nan)


class Counter(gymnasium.Env):
    """Observes (steps taken in this episode, the action it got); goes wrong on demand at step
    ``at``."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(np.array([0.5], np.float32), np.array([2.0], np.float32))

    def __init__(self, wrong: str = "nothing", at: int = 3) -> None:
        self.wrong, self.at = wrong, at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action: np.ndarray) -> Any:
        if not self.action_space.contains(action):
            raise RuntimeError(f"action {action!r} is outside {self.action_space}")
        self.steps += 1
        observation, reward, terminated = (
            np.array([self.steps, action[0]]),
            float(self.steps),
            False,
        )
        if self.steps == self.at:
            match self.wrong:
                case "observation":
                    observation[1] = np.nan
                case "reward":
                    reward = np.inf
                case "crash":
                    raise OSError("the simulator burned down")
                case "hang":
                    time.sleep(1000)
                case "termination":
                    terminated = True
        return observation, reward, terminated, False, {}


def register_probes() -> None:
    gymnasium.register("element-tests/Counter-v0", entry_point=Counter, max_episode_steps=5)
    gymnasium.register("element-tests/Endless-v0", entry_point=Counter)


class Counting:
    """What a worker serves in tests: it counts, in an array that it shares, and fails when told."""

    def __init__(self, first: int, arrays: Mapping[str, np.ndarray]) -> None:
        if first < 0:
            raise ValueError("it counts from 0")
        self.arrays = arrays
        self.arrays["count"][:] = first

    def add(self, number: int) -> int:
        self.arrays["count"] += number
        return int(self.arrays["count"][0])

    def fail(self) -> None:
        raise OSError("the counter is stuck")

    def leave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        self.arrays["count"][:] = -1
