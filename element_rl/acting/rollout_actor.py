"""One worker in its environment: it acts for some steps of one episode with the parameters it is
given, of A3C, or of PPO where its policies act one environment at a time. No JAX.

Everything random comes from the agent's seed, the worker's number and a counter, so no random state
has to be kept:

    actions of the r-th rollout     default_rng([seed, worker, r])
    reset of the e-th episode       SeedSequence([seed, worker, 1_000_003, e])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting import host_ppo
from element_rl.acting.actors import EPISODE_STREAM, parameter_key
from element_rl.acting.episode import RunningEpisode
from element_rl.acting.host_a3c import act
from element_rl.acting.processes import Layout
from element_rl.acting.rollout import Place, Rollout
from element_rl.envs.make import EnvMaker
from element_rl.envs.spec import EnvSpec


@dataclass(frozen=True)
class RolloutSettings:
    """What every worker has to know."""

    spec: EnvSpec
    make_env: EnvMaker
    local_steps: int
    hidden_size: int
    parameter_shapes: Mapping[str, tuple[int, ...]]  # empty: actions are uniformly random

    @property
    def actor(self) -> "type[RolloutActor]":
        """What a worker serves."""
        return RolloutActor

    def first_place(self, worker: int) -> Place:
        """Where a worker begins."""
        del worker
        return Place.first(self.hidden_size, 0 if self.spec.chooses else self.spec.action_dim)

    def place_of(self, arrays: Mapping[str, np.ndarray]) -> Place:
        """The place that `Place.to_arrays` took apart."""
        return Place.of(arrays)

    def delivered(self, arrays: Mapping[str, np.ndarray], facts: "Facts") -> Rollout:
        """What a worker has left in its arrays, whose views it is."""
        return rollout_of(arrays, facts)

    def array_layout(self) -> Layout:
        """Shape and type of every array that a worker shares with the main process."""
        spec, frames = self.spec, self.local_steps + 1
        seen = np.uint8 if spec.sees_frames else np.float32
        action = () if spec.chooses else (spec.action_dim,)
        return {
            "frames": ((frames, *spec.observation_shape), seen),
            "actions": ((self.local_steps, *action), np.int32 if spec.chooses else np.float32),
            "rewards": ((self.local_steps,), np.float32),
            "positions": ((frames, spec.position_dim), np.float32),
            "lstm": ((2, self.hidden_size), np.float32),
            "lstm_after": ((2, self.hidden_size), np.float32),
            **{
                parameter_key(name): (shape, np.float32)
                for name, shape in self.parameter_shapes.items()
            },
        }


@dataclass(frozen=True)
class Facts:
    """What a worker says of the rollout that it has left in the arrays."""

    steps: int
    begins: bool  # an episode
    terminated: bool
    truncated: bool
    episode_seed: int


class RolloutActor:
    """An environment, and how far its episode has come. Its episode outlives the rollouts."""

    def __init__(
        self,
        settings: RolloutSettings,
        seed: int,
        worker: int,
        place: Place | None,
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """Begins where a worker was, by living its episode again; at None with its first."""
        self.settings, self.seed, self.worker, self.arrays = settings, seed, worker, arrays
        self.running = RunningEpisode(settings.spec, settings.make_env())
        self.parameters = {name: arrays[parameter_key(name)] for name in settings.parameter_shapes}
        place = place or settings.first_place(worker)
        self.rollouts, self.episode, self.lstm = place.rollouts, place.episode, place.lstm.copy()
        self._ended = not len(place.actions)  # then the next rollout begins with a reset
        if not self._ended:
            self.running.live_again(place.episode, self._episode_seed(), place.actions)

    def act(self, steps: int) -> Facts:
        """Take `steps` steps, or as many as the episode has left, into the arrays."""
        arrays, running, begins = self.arrays, self.running, self._ended
        if begins:
            running.begin(self._episode_seed())
            self.lstm = np.zeros_like(self.lstm)
        noise = self._noise(steps)
        arrays["lstm"][:] = self.lstm
        arrays["frames"][0], arrays["positions"][0] = running.observation, running.position
        count, terminated, truncated = 0, False, False
        while count < steps and not (terminated or truncated):
            action = self._chosen(noise[count])
            reward, terminated, truncated = running.step(action)
            arrays["actions"][count], arrays["rewards"][count] = action, reward
            count += 1
            arrays["frames"][count], arrays["positions"][count] = (
                running.observation,
                running.position,
            )
        if not np.isfinite(arrays["rewards"][:count]).all():
            raise ValueError(f"{self.settings.spec.name} gave a reward that is no finite number")
        arrays["lstm_after"][:] = self.lstm
        facts = Facts(count, begins, bool(terminated), bool(truncated), self._episode_seed())
        self.rollouts += 1
        self._ended = bool(terminated or truncated)
        self.episode += self._ended
        return facts

    def close(self) -> None:
        self.running.env.close()

    def _noise(self, steps: int) -> Float[np.ndarray, "T ..."]:
        """Uniform in [0, 1) for choices; for a Box standard normal, or for random actions uniform
        in [−1, 1]."""
        spec = self.settings.spec
        generator = np.random.default_rng([self.seed, self.worker, self.rollouts])
        if spec.chooses:
            return generator.random(steps)
        if self.parameters:
            return generator.standard_normal((steps, spec.action_dim), np.float32)
        return generator.uniform(-1.0, 1.0, (steps, spec.action_dim))

    def _chosen(self, noise: Any) -> Any:
        spec, seen = self.settings.spec, self.running.observation
        if not self.parameters:
            return int(noise * spec.actions) if spec.chooses else noise
        if not host_ppo.is_ppo(self.parameters):
            action, self.lstm = act(self.parameters, seen, self.lstm, float(noise))
            return action
        goes_on = np.zeros(1, bool)
        out = host_ppo.said(self.parameters, np.asarray(seen)[None], goes_on, self.lstm[None])
        self.lstm = out.memory[0]
        drawn = host_ppo.drawn(self.parameters, out.policy, np.reshape(noise, (1, -1)))
        return host_ppo.in_bounds(drawn)[0]

    def _episode_seed(self) -> int:
        """What the worker's environment is reset with for its episode."""
        entropy = [self.seed, self.worker, EPISODE_STREAM, self.episode]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def rollout_of(arrays: Mapping[str, np.ndarray], facts: Facts) -> Rollout:
    """The rollout that a worker has left in its arrays, whose views it is."""
    return Rollout(
        frames=arrays["frames"][: facts.steps + 1],
        actions=arrays["actions"][: facts.steps],
        rewards=arrays["rewards"][: facts.steps],
        positions=arrays["positions"][: facts.steps + 1],
        begins=facts.begins,
        terminated=facts.terminated,
        truncated=facts.truncated,
        lstm=arrays["lstm"],
        lstm_after=arrays["lstm_after"],
        episode_seed=facts.episode_seed,
    )
