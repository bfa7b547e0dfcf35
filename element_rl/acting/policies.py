"""Stored policies as objects that act, in NumPy: what a run's checkpoint holds, and random actions.

    policy = policy_of(parameters, env.action_space)
    policy.begin()                                          # at every reset
    policy.act(observation, generator, deterministic)       # what the environment is stepped with

`policy_of` is the one place that decides by its arrays what a stored policy is. The policies of
many agents, frozen for a chunk of steps, act in `actors` and `rollout_actor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Float, Shaped

from element_rl.acting.host_a3c import act, forward
from element_rl.acting.host_policy import is_told, policy_action, with_place
from element_rl.acting.host_values import action_values

Parameters = Mapping[str, np.ndarray]


class ActionScale:
    """From a policy's actions in [-1, 1] to the bounds of a Box."""

    def __init__(
        self, low: Sequence[float] | np.ndarray, high: Sequence[float] | np.ndarray, dtype: Any
    ) -> None:
        # In float64, so that ±1 is exactly the bound and a robot with bounds ±1 gets exactly the
        # policy's action.
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        self._centre, self._half_range, self._dtype = (low + high) / 2, (high - low) / 2, dtype

    def __call__(self, action: Float[np.ndarray, "*batch A"]) -> Shaped[np.ndarray, "*batch A"]:
        if not np.isfinite(action).all():
            raise ValueError(
                "The policy's action is no finite number: what it learned from has diverged; "
                "choose smaller learning rates or a smaller scale of the reward"
            )
        return (action * self._half_range + self._centre).astype(self._dtype)


def action_scale(space: gymnasium.spaces.Box) -> ActionScale:
    """The scale of an environment's own actions."""
    return ActionScale(space.low, space.high, space.dtype)


@runtime_checkable
class Policy(Protocol):
    """What acts in an episode."""

    def begin(self) -> None:
        """Forget the episode before."""

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        """The action at an observation; only what is random uses the generator."""


def policy_of(parameters: Parameters, space: gymnasium.Space) -> Policy:
    """One agent's stored policy by its arrays, or random actions where there are none."""
    if not parameters:
        return RandomPolicy(space)
    if isinstance(space, gymnasium.spaces.Box):
        return (ToldPolicy if is_told(parameters) else VectorPolicy)(parameters, space)
    assert isinstance(space, gymnasium.spaces.Discrete)
    return (RecurrentPolicy if "lstm_hidden" in parameters else ValuePolicy)(parameters, space)


@dataclass
class RandomPolicy:
    """Uniformly random actions, each of them held for some steps."""

    space: gymnasium.Space
    hold_steps: int = 1
    _steps: int = 0
    _action: Any = None

    def begin(self) -> None:
        self._steps = 0

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        if self._steps % self.hold_steps == 0:
            self._action = self._drawn(generator)
        self._steps += 1
        return self._action

    def _drawn(self, generator: np.random.Generator) -> Any:
        if isinstance(self.space, gymnasium.spaces.Discrete):
            return int(self.space.start) + int(generator.integers(self.space.n))
        assert isinstance(self.space, gymnasium.spaces.Box)
        uniform = generator.uniform(-1.0, 1.0, self.space.shape).astype(np.float32)
        return action_scale(self.space)(uniform)


class VectorPolicy:
    """A policy on vectors with continuous actions: SAC's, TD3's (`host_policy`)."""

    def __init__(self, parameters: Parameters, space: gymnasium.spaces.Box) -> None:
        self._parameters, self._shape, self._scale = parameters, space.shape, action_scale(space)

    def begin(self) -> None:
        pass

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        noise = np.zeros(self._shape, np.float32)
        if not deterministic:
            noise = generator.standard_normal(self._shape, dtype=np.float32)
        return self._scale(
            policy_action(self._parameters, np.asarray(observation, np.float32), noise)
        )


class ToldPolicy:
    """The same of a policy that is told where the agent is: `hear` comes before every `act`."""

    def __init__(self, parameters: Parameters, space: gymnasium.spaces.Box) -> None:
        self._parameters, self._policy = parameters, VectorPolicy(parameters, space)
        self._position: np.ndarray | None = None

    def begin(self) -> None:
        self._position = None

    def hear(self, position: Float[np.ndarray, " C"]) -> None:
        self._position = position

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        if self._position is None:
            raise ValueError(
                "This policy is told where the agent is (--tell-position both): say it before it "
                "acts."
            )
        seen = with_place(self._parameters, np.asarray(observation), self._position)
        return self._policy.act(seen, generator, deterministic)


@dataclass
class RecurrentPolicy:
    """A3C's policy: actions are drawn as in training, or the most likely ones are taken."""

    parameters: Parameters
    space: gymnasium.spaces.Discrete
    _lstm: np.ndarray = field(init=False)

    def begin(self) -> None:
        self._lstm = np.zeros((2, len(self.parameters["lstm_hidden"])), np.float32)

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> int:
        if deterministic:
            probabilities, _, self._lstm = forward(self.parameters, observation, self._lstm)
            action = int(np.argmax(probabilities))
        else:
            uniform = float(generator.random())
            action, self._lstm = act(self.parameters, observation, self._lstm, uniform)
        return int(self.space.start) + action


@dataclass
class ValuePolicy:
    """Values of offline agents: the action of the highest one is taken, never drawn."""

    parameters: Parameters
    space: gymnasium.spaces.Discrete

    def begin(self) -> None:
        pass

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> int:
        values = action_values(self.parameters, np.asarray(observation))
        return int(self.space.start) + int(np.argmax(values))
