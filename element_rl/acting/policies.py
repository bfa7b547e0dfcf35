"""Stored policies as objects that act, in NumPy: what a run's checkpoint holds, and random actions.

    policy = policy_of(parameters, env.action_space)
    policy.begin()                                          # at every reset
    policy.act(observation, generator, deterministic)       # what the environment is stepped with

`policy_of` is the one place that decides by its arrays what a stored policy is. The policies of
many agents, frozen for a chunk of steps, act in `actors` and `rollout_actor`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Float, Shaped

from element_rl.acting import host_ppo
from element_rl.acting.host_a3c import act, forward
from element_rl.acting.host_policy import chooses, is_told, policy_action, with_place
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
    if host_ppo.is_ppo(parameters):
        return PPOPolicy(parameters, space)
    if isinstance(space, gymnasium.spaces.Box) or chooses(parameters):
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
    """A policy on vectors that explorers learn: SAC's, TD3's, DQN's (`host_policy`)."""

    def __init__(self, parameters: Parameters, space: gymnasium.Space) -> None:
        self._parameters, self._chooses, self._shape = parameters, chooses(parameters), space.shape
        self._to_environment: Callable[[np.ndarray], Any]
        if isinstance(space, gymnasium.spaces.Box):
            self._to_environment = action_scale(space)
        else:
            assert isinstance(space, gymnasium.spaces.Discrete)
            first = int(space.start)
            self._to_environment = lambda action: first + int(np.argmax(action))

    def begin(self) -> None:
        pass

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        observation = np.asarray(observation, np.float32)
        noise = self._noise(generator, deterministic)
        return self._to_environment(policy_action(self._parameters, observation, noise))

    def _noise(
        self, generator: np.random.Generator, deterministic: bool
    ) -> Float[np.ndarray, " noise"]:
        if self._chooses:  # at 1 a uniform never says to draw the action
            return np.ones(2) if deterministic else generator.random(2)
        if deterministic:
            return np.zeros(self._shape, np.float32)
        return generator.standard_normal(self._shape, dtype=np.float32)


class ToldPolicy:
    """The same of a policy that is told where the agent is: `hear` comes before every `act`."""

    def __init__(self, parameters: Parameters, space: gymnasium.Space) -> None:
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


class PPOPolicy:
    """PPO's policy (`host_ppo`) of vectors or frames, choices or a Box."""

    def __init__(self, parameters: Parameters, space: gymnasium.Space) -> None:
        self._parameters, self._space = parameters, space
        self._scale = action_scale(space) if isinstance(space, gymnasium.spaces.Box) else None
        self.begin()

    def begin(self) -> None:
        self._memory = np.zeros((1, 2, host_ppo.memory_units(self._parameters)), np.float32)

    def act(self, observation: Any, generator: np.random.Generator, deterministic: bool) -> Any:
        seen, goes_on = np.asarray(observation)[None], np.zeros(1, bool)
        said = host_ppo.said(self._parameters, seen, goes_on, self._memory)
        self._memory = said.memory
        if deterministic:
            action = host_ppo.likeliest(self._parameters, said.policy)[0]
        else:
            action = host_ppo.drawn(self._parameters, said.policy, self._noise(generator))[0]
        if self._scale is not None:
            return self._scale(host_ppo.in_bounds(action))
        assert isinstance(self._space, gymnasium.spaces.Discrete)
        return int(self._space.start) + int(action)

    def _noise(self, generator: np.random.Generator) -> Float[np.ndarray, "1 N"]:
        if host_ppo.chooses(self._parameters):
            return generator.random((1, 1))
        return generator.standard_normal((1, *(self._space.shape or ())), np.float32)


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
