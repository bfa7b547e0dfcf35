"""One worker in its environment: it acts for some steps of one episode with the parameters it is
given. No JAX.

Everything random comes from the agent's seed, the worker's number and a counter, so no random state
has to be kept:

    actions of the r-th rollout     default_rng([seed, worker, r])
    reset of the e-th episode       SeedSequence([seed, worker, 1_000_003, e])
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

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

    def array_layout(self) -> Layout:
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
        place = place or Place.first(settings.hidden_size)
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
        uniforms = np.random.default_rng([self.seed, self.worker, self.rollouts]).random(steps)
        arrays["lstm"][:] = self.lstm
        arrays["frames"][0], arrays["positions"][0] = running.observation, running.position
        count, terminated, truncated = 0, False, False
        while count < steps and not (terminated or truncated):
            action = self._chosen(float(uniforms[count]))
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

    def _chosen(self, uniform: float) -> int:
        if not self.parameters:
            return int(uniform * self.settings.spec.actions)
        action, self.lstm = act(self.parameters, self.running.observation, self.lstm, uniform)
        return action

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
