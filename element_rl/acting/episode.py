"""Episodes: one of a stored policy from its reset to its end, and one that runs for as long as an
agent learns. Nothing here imports JAX: processes that act run it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, Shaped

from element_rl.acting.policies import Policy, ToldPolicy, action_scale
from element_rl.envs.spec import EnvSpec, position_of


@dataclass(frozen=True)
class Episode:
    """What one policy did in one episode of T steps."""

    observations: Shaped[np.ndarray, "M ..."]  # M = T + 1; of a stack of frames the newest
    positions: Float[np.ndarray, "M C"]
    actions: Shaped[np.ndarray, "T ..."]  # as the environment was stepped with them
    total: float  # sum of its rewards


class Step(NamedTuple):
    """An observation, and what led to it."""

    observation: Any
    info: Mapping[str, Any]
    action: Any = None  # none at the reset
    reward: float = 0.0  # of the environment


def episode_steps(
    env: gymnasium.Env,
    policy: Policy,
    seed: Sequence[int],
    deterministic: bool,
    spec: EnvSpec | None = None,
) -> Iterator[Step]:
    """The reset and every step of an episode, taken when they are asked for. All depends on the
    policy and the seed, and on nothing else. `spec` is needed for policies that are told where the
    agent is."""
    generator = np.random.default_rng(list(seed))
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    policy.begin()
    yield Step(observation, info)
    done = False
    while not done:
        if isinstance(policy, ToldPolicy) and spec is not None:
            policy.hear(position_of(spec, observation, info, env))
        action = policy.act(observation, generator, deterministic)
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        yield Step(observation, info, action, float(reward))


def run_episode(
    env: gymnasium.Env,
    policy: Policy,
    seed: Sequence[int],
    deterministic: bool,
    watch: Callable[[Step], None] = lambda step: None,
    spec: EnvSpec | None = None,
) -> tuple[float, int]:
    """Acts until the episode ends; its return and length. The watcher is told of the reset and of
    every step."""
    total, length = 0.0, -1  # the reset is no step
    for step in episode_steps(env, policy, seed, deterministic, spec):
        total, length = total + step.reward, length + 1
        watch(step)
    return total, length


def record_episode(
    spec: EnvSpec, env: gymnasium.Env, policy: Policy, seed: Sequence[int], deterministic: bool
) -> Episode:
    """The same episode, with all that happened in it."""
    dtype = np.uint8 if spec.sees_frames else np.float32
    stacked = len(env.observation_space.shape or ()) > len(spec.observation_shape)
    observations, positions, actions = [], [], []

    def keep(step: Step) -> None:
        newest = step.observation[-1] if stacked else step.observation
        observations.append(np.array(newest, dtype))
        positions.append(position_of(spec, step.observation, step.info, env))
        if step.action is not None:
            actions.append(step.action)

    total, _ = run_episode(env, policy, seed, deterministic, keep, spec)
    return Episode(np.stack(observations), np.stack(positions), np.asarray(actions), total)


def record_paths(
    spec: EnvSpec,
    samples: int,
    env: gymnasium.Env,
    policy: Policy,
    seed: Sequence[int],
    deterministic: bool,
) -> list[Float[np.ndarray, "_ C"]]:
    """Positions of episode after episode until so many steps are taken; the last number of `seed`
    counts the episodes."""
    *others, first = seed
    paths: list[np.ndarray] = []
    while samples > 0:
        numbered = [*others, first + len(paths)]
        positions = record_episode(spec, env, policy, numbered, deterministic).positions
        paths.append(positions[: samples + 1])
        samples -= len(paths[-1]) - 1
    return paths


def padded_paths(
    paths: Sequence[Float[np.ndarray, "_ C"]], steps: int
) -> Float[np.ndarray, "E L C"]:
    """Positions of episodes of different lengths in one array of L = `steps` + 1, NaN after the end
    of each."""
    padded = np.full((len(paths), steps + 1, paths[0].shape[1]), np.nan, np.float32)
    for index, path in enumerate(paths):
        padded[index, : len(path)] = path
    return padded


class RunningEpisode:
    """An environment, and how far the agent's episode in it has come.

    An episode depends on the seed of its reset and on its actions alone. So it can be lived again,
    by another process or on another day, and no environment is ever stored.
    """

    observation: np.ndarray
    position: np.ndarray

    def __init__(self, spec: EnvSpec, env: gymnasium.Env) -> None:
        self.spec, self.env = spec, env
        self.steps = 0
        space = env.action_space
        self._to_environment = (
            action_scale(space) if isinstance(space, gymnasium.spaces.Box) else chosen
        )

    def begin(self, seed: int) -> None:
        self.observation, info = self.env.reset(seed=seed)
        self.position = position_of(self.spec, self.observation, info, self.env)
        self.steps = 0

    def step(self, action: Any) -> tuple[float, bool, bool]:
        """Reward, terminated and truncated; actions of a Box are on the policy's scale, choices
        are numbers or one-hot vectors."""
        self.observation, reward, terminated, truncated, info = self.env.step(
            self._to_environment(action)
        )
        self.position = position_of(self.spec, self.observation, info, self.env)
        self.steps += 1
        return float(reward), bool(terminated), bool(truncated)

    def live_again(self, number: int, seed: int, actions: Shaped[np.ndarray, "T ..."]) -> None:
        """Be where episode `number` was, by resetting to its seed and taking its actions again."""
        self.begin(seed)
        for action in actions:
            _, terminated, truncated = self.step(action)
            if terminated or truncated:
                raise ValueError(
                    f"episode {number} ended after {self.steps} of its {len(actions)} recorded "
                    f"actions, so they were not recorded in this {self.spec.name}"
                )


def chosen(action: Any) -> int:
    """The number of a choice, which may be given as a one-hot vector."""
    return int(np.argmax(action)) if np.ndim(action) else int(action)
