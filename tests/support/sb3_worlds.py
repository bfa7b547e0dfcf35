"""Worlds of a few steps for the tests of the Stable-Baselines3 plug-in."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import jax
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

torch.set_num_threads(1)  # tiny networks; threads that wait for each other are slower than one
SMALL = {"net_arch": [8]}


class Walk(gymnasium.Env):
    """A walk in three dimensions. Some episodes terminate (beyond 1.5 along the first axis), the
    others run out of time."""

    def __init__(
        self,
        steps: int = 9,
        stride: float = 0.4,
        reward_scale: float = 1.0,
        dictionary: bool = False,
        discrete: bool = False,
    ) -> None:
        box = spaces.Box(-20.0, 20.0, (3,), np.float32)
        parts: dict[str, spaces.Space] = {"place": box, "phase": spaces.Discrete(3)}
        self.observation_space = spaces.Dict(parts) if dictionary else box
        self.action_space = (
            spaces.Discrete(3) if discrete else spaces.Box(-2.0, 2.0, (2,), np.float32)
        )
        self.steps, self.stride, self.reward_scale = steps, stride, reward_scale

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        self.place = self.np_random.normal(size=3).astype(np.float32) * np.float32(0.3)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        move = np.array([action[0], action[1], 1.0]) if np.ndim(action) else np.eye(3)[action]
        noise = 0.1 * self.np_random.normal(size=3)
        self.place = np.clip(self.place + self.stride * move + noise, -20.0, 20.0).astype(
            np.float32
        )
        self.time += 1
        terminated = bool(self.place[0] > 1.5)
        reward = self.reward_scale * float(self.place[0])
        return (
            self._observation(),
            reward,
            terminated,
            self.time >= self.steps,
            {"x": float(self.place[0])},
        )

    def _observation(self) -> Any:
        if isinstance(self.observation_space, spaces.Dict):
            return {"place": self.place.copy(), "phase": self.time % 3}
        return self.place.copy()


def walks(number: int, seed: int = 0, **options: Any) -> DummyVecEnv:
    envs = DummyVecEnv([lambda: Walk(**options)] * number)
    envs.seed(seed)
    return envs


def algorithm(name: str) -> Any:
    """A class of Stable-Baselines3 or SB3-Contrib by its name; of SBX by "sbx-NAME"."""
    if name.startswith("sbx-"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its dependencies, when they are first loaded
            import sbx
        return getattr(sbx, name.removeprefix("sbx-"))
    return getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)


@contextmanager
def foreign_code() -> Iterator[None]:
    """SBX adds arrays of different ranks, which this library's tests do not let pass."""
    with jax.numpy_rank_promotion("allow"):
        yield


def parameters_of(model: Any) -> np.ndarray:
    """All parameters of a model of Stable-Baselines3 or of SBX, target networks included, as one
    vector."""
    if type(model).__module__.startswith("sbx"):
        states = [value for value in vars(model.policy).values() if hasattr(value, "params")]
        leaves = jax.tree.leaves(
            [(state.params, getattr(state, "target_params", ())) for state in states]
        )
        return np.concatenate([np.asarray(leaf).ravel() for leaf in leaves])
    return np.concatenate(
        [value.detach().numpy().ravel() for value in model.policy.state_dict().values()]
    )
