"""One worker in its environment: it acts for some steps of one episode with the parameters it is
given. No JAX.

Everything random comes from the agent's seed, the worker's number and a counter, so no random state
has to be kept:

    actions of the r-th rollout     default_rng([seed, worker, r])
    reset of the e-th episode       SeedSequence([seed, worker, 1_000_003, e])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from element_rl.acting.host_a3c import act
from element_rl.acting.rollout import Place
from element_rl.envs.screens import ScreenSpec, make_screen

_EPISODE_STREAM = 1_000_003

Facts = tuple[int, bool, bool, bool, int]
"""Of a rollout in the arrays: its length, whether it begins an episode, terminated, truncated, and
the episode's seed."""


@dataclass(frozen=True)
class Surroundings:
    """What every worker has to know."""

    spec: ScreenSpec
    # workers do not run the user's code that registered it
    registration: gymnasium.envs.registration.EnvSpec
    env_options: Mapping[str, Any]
    local_steps: int
    hidden_size: int
    parameter_shapes: Mapping[str, tuple[int, ...]]  # empty: actions are uniformly random

    def array_layout(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Shape and type of every array that a worker shares with the main process."""
        frames = self.local_steps + 1
        return {
            "frames": ((frames, *self.spec.frame_shape), np.uint8),
            "actions": ((self.local_steps,), np.int32),
            "rewards": ((self.local_steps,), np.float32),
            "positions": ((frames, 2), np.float32),
            "lstm": ((2, self.hidden_size), np.float32),
            "lstm_after": ((2, self.hidden_size), np.float32),
            **{
                parameter_key(name): (shape, np.float32)
                for name, shape in self.parameter_shapes.items()
            },
        }


def parameter_key(name: str) -> str:
    return f"parameter/{name}"


class Actor:
    """An environment, and how far its episode has come. Its episode outlives the rollouts."""

    def __init__(
        self, surroundings: Surroundings, seed: int, worker: int, arrays: Mapping[str, np.ndarray]
    ) -> None:
        gymnasium.registry.setdefault(surroundings.registration.id, surroundings.registration)
        self.surroundings, self.seed, self.worker, self.arrays = surroundings, seed, worker, arrays
        self.env = make_screen(surroundings.registration.id, **surroundings.env_options)
        self.parameters = {
            name: arrays[parameter_key(name)] for name in surroundings.parameter_shapes
        }
        self.rollouts = self.episode = 0
        self.lstm = np.zeros((2, surroundings.hidden_size), np.float32)
        self._frame: np.ndarray | None = None  # None: the next rollout begins with a reset

    def act(self, steps: int) -> Facts:
        """Take `steps` steps, or as many as the episode has left, into the arrays."""
        arrays, begins = self.arrays, self._frame is None
        if begins:
            self._reset()
        uniforms = np.random.default_rng([self.seed, self.worker, self.rollouts]).random(steps)
        arrays["lstm"][:] = self.lstm
        arrays["frames"][0], arrays["positions"][0] = self._frame, self._position
        count, terminated, truncated = 0, False, False
        while count < steps and not (terminated or truncated):
            action = self._chosen(float(uniforms[count]))
            reward, terminated, truncated = self._step(action)
            arrays["actions"][count], arrays["rewards"][count] = action, reward
            count += 1
            arrays["frames"][count], arrays["positions"][count] = self._frame, self._position
        if not np.isfinite(arrays["rewards"][:count]).all():
            raise ValueError(
                f"{self.surroundings.spec.name} gave a reward that is no finite number"
            )
        arrays["lstm_after"][:] = self.lstm
        facts = (
            count,
            begins,
            bool(terminated),
            bool(truncated),
            episode_seed(self.seed, self.worker, self.episode),
        )
        self.rollouts += 1
        if terminated or truncated:
            self.episode, self._frame = self.episode + 1, None
        return facts

    def go_to(self, place: Place) -> None:
        """Be where a worker was, by resetting to its episode and taking its actions again."""
        self.rollouts, self.episode, self._frame = place.rollouts, place.episode, None
        if not len(place.actions):
            return
        self._reset()
        for step, action in enumerate(place.actions):
            _, terminated, truncated = self._step(int(action))
            if terminated or truncated:
                raise ValueError(
                    f"episode {place.episode} ended after {step + 1} of its {len(place.actions)} "
                    "recorded actions, so they "
                    f"were not recorded in this {self.surroundings.spec.name}"
                )
        self.lstm = place.lstm.copy()

    def close(self) -> None:
        self.env.close()

    def _chosen(self, uniform: float) -> int:
        if not self.parameters:
            return int(uniform * self.surroundings.spec.actions)
        assert self._frame is not None
        action, self.lstm = act(self.parameters, self._frame, self.lstm, uniform)
        return action

    def _reset(self) -> None:
        self._frame, info = self.env.reset(seed=episode_seed(self.seed, self.worker, self.episode))
        self._position = info["position"]
        self.lstm = np.zeros_like(self.lstm)

    def _step(self, action: int) -> tuple[float, bool, bool]:
        self._frame, reward, terminated, truncated, info = self.env.step(action)
        self._position = info["position"]
        return float(reward), terminated, truncated


def episode_seed(agent_seed: int, worker: int, episode: int) -> int:
    """What a worker's environment is reset with for an episode."""
    return int(
        np.random.SeedSequence([agent_seed, worker, _EPISODE_STREAM, episode]).generate_state(1)[0]
    )
