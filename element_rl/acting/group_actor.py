"""One worker with several environments of one agent: all of them act for some steps, by one policy
that sees all their observations at once. No JAX.

An environment is reset as soon as its episode has ended. Everything random comes from the agent's
seed, the number of the environment and a counter, so neither random state has to be kept, nor does
it matter which worker has which environment:

    actions of the r-th rollout     default_rng([seed, env, r])
    reset of the e-th episode       SeedSequence([seed, env, 1_000_003, e])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from element_rl.acting.actors import parameter_key
from element_rl.acting.episode import RunningEpisode
from element_rl.acting.group_rollout import GroupPlace, GroupRollout, episode_seed
from element_rl.acting.host_ppo import drawn, in_bounds, said
from element_rl.acting.processes import Layout
from element_rl.envs.make import EnvMaker
from element_rl.envs.spec import EnvSpec

OF_STEPS = ("observations", "actions", "rewards", "positions", "terminated", "ended")
AT_ENDS = ("final", "final_position")
OF_ENVS = ("begins", "memory", "memory_after", "following", "following_position", "episodes")


@dataclass(frozen=True)
class GroupSettings:
    """What every worker has to know."""

    spec: EnvSpec
    make_env: EnvMaker
    num_envs: int  # of each agent
    num_workers: int  # that share them
    rollout_steps: int
    memory_size: int
    parameter_shapes: Mapping[str, tuple[int, ...]]  # empty: actions are uniformly random

    @property
    def actor(self) -> "type[GroupActor]":
        """What a worker serves."""
        return GroupActor

    def envs_of(self, worker: int) -> tuple[int, ...]:
        """The environments that a worker has."""
        shared = np.array_split(np.arange(self.num_envs), self.num_workers)
        return tuple(int(env) for env in shared[worker])

    def first_place(self, worker: int) -> GroupPlace:
        """Where a worker begins."""
        envs = len(self.envs_of(worker))
        empty = np.zeros(0, np.int32)
        if not self.spec.chooses:
            empty = np.zeros((0, self.spec.action_dim), np.float32)
        memory = np.zeros((envs, 2, self.memory_size), np.float32)
        return GroupPlace(0, np.zeros(envs, np.int64), (empty,) * envs, memory)

    def place_of(self, arrays: Mapping[str, np.ndarray]) -> GroupPlace:
        """The place that `GroupPlace.to_arrays` took apart."""
        return GroupPlace.of(arrays)

    def array_layout(self) -> Layout:
        """Shape and type of every array that a worker shares with the main process."""
        spec, envs = self.spec, len(self.envs_of(0))  # the first has most
        steps = (self.rollout_steps, envs)
        seen, place = spec.observation_shape, (spec.position_dim,)
        dtype = np.uint8 if spec.sees_frames else np.float32
        action = (steps, np.int32) if spec.chooses else ((*steps, spec.action_dim), np.float32)
        memory = ((envs, 2, self.memory_size), np.float32)
        layout: dict[str, tuple[tuple[int, ...], type]] = {
            "observations": ((*steps, *seen), dtype),
            "actions": action,
            "rewards": (steps, np.float32),
            "positions": ((*steps, *place), np.float32),
            "terminated": (steps, np.bool_),
            "ended": (steps, np.bool_),
            "final": ((*steps, *seen), dtype),
            "final_position": ((*steps, *place), np.float32),
            "begins": ((envs,), np.bool_),
            "memory": memory,
            "memory_after": memory,
            "following": ((envs, *seen), dtype),
            "following_position": ((envs, *place), np.float32),
            "episodes": ((envs,), np.int64),
        }
        for name, shape in self.parameter_shapes.items():
            layout[parameter_key(name)] = (shape, np.float32)
        return layout

    def delivered(self, arrays: Mapping[str, np.ndarray], facts: "GroupFacts") -> GroupRollout:
        """What a worker has left in its arrays, whose views it is."""
        envs = self.envs_of(facts.worker)
        parts = {name: arrays[name][: facts.steps, : len(envs)] for name in OF_STEPS + AT_ENDS}
        parts |= {name: arrays[name][: len(envs)] for name in OF_ENVS}
        return GroupRollout(envs=envs, seed=facts.seed, **parts)


@dataclass(frozen=True)
class GroupFacts:
    """What a worker says of the rollout that it has left in the arrays."""

    steps: int
    worker: int
    seed: int


class GroupActor:
    """Environments, and how far their episodes have come. The episodes outlive the rollouts."""

    def __init__(
        self,
        settings: GroupSettings,
        seed: int,
        worker: int,
        place: GroupPlace | None,
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """Begins where a worker was, by living its episodes again; at None with their first."""
        self.settings, self.seed, self.worker, self.arrays = settings, seed, worker, arrays
        self.envs = settings.envs_of(worker)
        place = place or settings.first_place(worker)
        self.rollouts, self.episodes = place.rollouts, place.episodes.copy()
        self.memory = place.memory.copy()
        self.parameters = {name: arrays[parameter_key(name)] for name in settings.parameter_shapes}
        self.running = [RunningEpisode(settings.spec, settings.make_env()) for _ in self.envs]
        for column, (running, actions) in enumerate(zip(self.running, place.actions, strict=True)):
            episode = int(self.episodes[column])
            running.live_again(episode, self._seed(column), in_bounds(actions))

    def act(self, steps: int) -> GroupFacts:
        """Take `steps` steps in every environment, into the arrays."""
        arrays, envs = self.arrays, len(self.envs)
        noise = self._noise(steps)
        arrays["begins"][:envs] = self._begin()
        arrays["memory"][:envs], arrays["episodes"][:envs] = self.memory, self.episodes
        for step in range(steps):
            for column, running in enumerate(self.running):
                arrays["observations"][step, column] = running.observation
                arrays["positions"][step, column] = running.position
            actions = self._chosen(arrays["observations"][step, :envs], noise[step])
            arrays["actions"][step, :envs] = actions
            stepped = in_bounds(actions)
            for column in range(envs):
                self._step(step, column, stepped[column])
        for column, running in enumerate(self.running):
            arrays["following"][column] = running.observation
            arrays["following_position"][column] = running.position
        arrays["memory_after"][:envs] = self.memory
        self._refuse_non_finite(steps)
        self.rollouts += 1
        return GroupFacts(steps, self.worker, self.seed)

    def close(self) -> None:
        for running in self.running:
            running.env.close()

    def _step(self, step: int, column: int, action: Any) -> None:
        arrays, running = self.arrays, self.running[column]
        reward, terminated, truncated = running.step(action)
        ended = bool(terminated or truncated)
        arrays["rewards"][step, column] = reward
        arrays["terminated"][step, column], arrays["ended"][step, column] = terminated, ended
        if ended:
            arrays["final"][step, column] = running.observation
            arrays["final_position"][step, column] = running.position
            self.episodes[column] += 1
            running.begin(self._seed(column))

    def _begin(self) -> Bool[np.ndarray, " N"]:
        return np.array([running.steps == 0 for running in self.running])

    def _chosen(
        self, observations: Shaped[np.ndarray, "N ..."], noise: Float[np.ndarray, "N _"]
    ) -> Shaped[np.ndarray, "N ..."]:
        spec = self.settings.spec
        if self.parameters:
            out = said(self.parameters, observations, self._begin(), self.memory)
            self.memory = out.memory
            return drawn(self.parameters, out.policy, noise)
        if spec.chooses:
            return (noise[:, 0] * spec.action_dim).astype(np.int32)
        return noise.astype(np.float32)

    def _noise(self, steps: int) -> Float[np.ndarray, "T N _"]:
        """Uniform in [0, 1) for choices; for a Box standard normal, or for random actions uniform
        in [−1, 1]."""
        spec = self.settings.spec
        each: list[np.ndarray] = []
        for env in self.envs:
            generator = np.random.default_rng([self.seed, env, self.rollouts])
            if spec.chooses:
                each.append(generator.random((steps, 1)))
            elif self.parameters:
                each.append(generator.standard_normal((steps, spec.action_dim), np.float32))
            else:
                each.append(generator.uniform(-1.0, 1.0, (steps, spec.action_dim)))
        return np.stack(each, axis=1)

    def _seed(self, column: int) -> int:
        return episode_seed(self.seed, self.envs[column], int(self.episodes[column]))

    def _refuse_non_finite(self, steps: int) -> None:
        """One pass at the end of a rollout costs nothing beside a test at every step."""
        arrays, envs = self.arrays, len(self.envs)
        given = {"a reward": arrays["rewards"][:steps, :envs]}
        if not self.settings.spec.sees_frames:
            given["an observation"] = arrays["observations"][:steps, :envs]
        for what, values in given.items():
            if not np.isfinite(values).all():
                name = self.settings.spec.name
                raise ValueError(f"{name} gave {what} that is no finite number")
