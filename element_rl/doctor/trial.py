"""A short real collection: an environment, random actions, and a bonus that observes them.

Episodes are cut to a tenth of the steps, so that several end: most rewards judge a transition when
its episode is over.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import element_rl.envs.rooms  # noqa: F401 (registers Rooms-v0)
from element_rl.envs.latents import OPTION as LATENT_OPTION
from element_rl.envs.make import make_plain_env
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.integrations import IntrinsicReward
from element_rl.integrations.exploration_info import known_robot
from element_rl.integrations.observations import each_part, flattened, stacked
from element_rl.rewards.making import check_intrinsic, needed_latent

EPISODES = 10  # that the steps are divided into
SHORTEST_EPISODE = 20
BATCH_SIZE = 256
UPDATES = 50  # of rewards that learn, before they are judged
BATCHES = 8  # judged


@dataclass(frozen=True)
class TrialSettings:
    """Which bonus is tried on what."""

    env: str
    reward: str = "element"
    steps: int = 2000
    seed: int = 0
    position: tuple[str, ...] | tuple[int, ...] | None = None
    env_options: dict[str, Any] = field(default_factory=dict)
    reward_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 5 * SHORTEST_EPISODE:
            raise ValueError(
                f"--steps must be at least {5 * SHORTEST_EPISODE}, or 0 for no bonus, got "
                f"{self.steps}."
            )

    @property
    def episode_steps(self) -> int:
        return max(self.steps // EPISODES, SHORTEST_EPISODE)


def make_trial_env(settings: TrialSettings) -> gymnasium.Env:
    """The environment, with short episodes, which falling does not end: as `element explore` has
    robots."""
    options = {"max_episode_steps": settings.episode_steps, **settings.env_options}
    check_intrinsic(settings.reward)
    latent = needed_latent(settings.reward, settings.reward_options)
    if latent is not None:
        options.setdefault(LATENT_OPTION, latent.option)
    env = make_plain_env(settings.env, **options)
    if can_fall(env.spec.id) and HEALTH_OPTION not in options:
        env.close()
        env = make_plain_env(settings.env, **options, **{HEALTH_OPTION: False})
    return env


def bonus_arguments(settings: TrialSettings, env: gymnasium.Env) -> dict[str, Any]:
    """Arguments of `IntrinsicReward`, but for the spaces."""
    robot = known_robot(env.spec) if settings.position is None else None
    return {
        "total_steps": settings.steps,
        "max_episode_steps": settings.episode_steps,
        "env_id": None if robot is None else robot.name,
        "position": settings.position,
        "seed": settings.seed,
        "options": settings.reward_options,
    }


class Trial:
    """What was collected, and the bonus that has observed it."""

    def __init__(self, settings: TrialSettings) -> None:
        self.settings, self.env = settings, make_trial_env(settings)
        self.bonus = IntrinsicReward(
            settings.reward,
            self.env.observation_space,
            self.env.action_space,
            capacity=settings.steps + settings.episode_steps,
            **bonus_arguments(settings, self.env),
        )
        self.observations: Any = []  # each [N, ...] when all is collected
        self.actions: Any = []
        self.next_observations: Any = []
        self.rewards: list[float] = []  # the environment's own
        self.terminated: Any = []
        self.infos: list[dict[str, Any]] = []
        self.step_seconds: list[list[float]] = [[]]  # of the environment, per episode and step
        self.observe_seconds: list[list[float]] = [[]]  # of the bonus

    def collect(self) -> None:
        """Acts at random until the steps are done and the last episode has ended."""
        self.env.action_space.seed(self.settings.seed)
        observation, _ = self.env.reset(seed=self.settings.seed)
        for step in range(self.settings.steps):
            action = self.env.action_space.sample()
            began = time.perf_counter()
            after, reward, terminated, truncated, info = self.env.step(action)
            stepped = time.perf_counter()
            last = step == self.settings.steps - 1
            self._remember(observation, action, after, float(reward), terminated, info)
            step_taken = stacked([observation]), np.asarray(action)[None], stacked([after])
            ends = [terminated], [truncated or last]
            self.bonus.observe(*step_taken, *ends, [info], [reward])
            self.step_seconds[-1].append(stepped - began)
            self.observe_seconds[-1].append(time.perf_counter() - stepped)
            observation = after
            if (terminated or truncated) and not last:
                observation, _ = self.env.reset()
                self.step_seconds.append([])
                self.observe_seconds.append([])
        for name in ("observations", "actions", "next_observations"):
            setattr(self, name, stacked(getattr(self, name)))

    def transitions(self, ids: Int[np.ndarray, " B"]) -> tuple[Any, Any, Any, Any]:
        """Observations, actions, next observations and the environment's rewards by number."""
        return (
            _taken(self.observations, ids),
            self.actions[ids],
            _taken(self.next_observations, ids),
            np.asarray(self.rewards, np.float32)[ids],
        )

    def vectors(self, observations: Any) -> Float[np.ndarray, "B O"]:
        """Observations as an agent for vectors takes them."""
        source = self.bonus.source
        return np.asarray(source.encoding.vectors(jnp.asarray(source.raw(observations))))

    def flat_actions(self, actions: np.ndarray) -> Float[np.ndarray, "B A"]:
        """Actions as an agent for vectors takes them; choices one-hot."""
        return flattened(self.env.action_space, actions)

    def states(self) -> Float[np.ndarray, "N D"]:
        """The states that the steps led to."""
        source = self.bonus.source
        raw, beside = source.read(self.next_observations, self.infos)
        return np.asarray(source.encoding.states(jnp.asarray(raw), jnp.asarray(beside)))

    def longest_episode(self) -> Float[np.ndarray, "T D"]:
        """The states of the first of its longest episodes."""
        lengths = [len(seconds) for seconds in self.step_seconds]
        index = int(np.argmax(lengths))
        first = sum(lengths[:index])
        return self.states()[first : first + lengths[index]]

    def close(self) -> None:
        self.env.close()

    def _remember(
        self,
        observation: Any,
        action: Any,
        after: Any,
        reward: float,
        terminated: bool,
        info: dict[str, Any],
    ) -> None:
        self.observations.append(observation)
        self.actions.append(np.asarray(action))
        self.next_observations.append(after)
        self.rewards.append(reward)
        self.terminated.append(bool(terminated))
        self.infos.append(info)


@dataclass(frozen=True)
class Judgement:
    """Rewards of several batches, drawn as a learner would draw them, after the bonus has learned
    for a while."""

    ids: Int[np.ndarray, " J"]
    reward: Float[np.ndarray, " J"]
    terms: dict[str, Float[np.ndarray, " J"]]
    update_seconds: Sequence[float]  # of one update of the bonus and the reward of a batch


def judge(trial: Trial) -> Judgement:
    """Lets the bonus learn, then asks it for rewards."""
    rng = np.random.default_rng(trial.settings.seed)
    seconds = []
    for _ in range(UPDATES):
        ids = trial.bonus.sample(BATCH_SIZE, rng)
        batch = trial.transitions(ids)
        began = time.perf_counter()
        trial.bonus.update(ids, *batch)
        trial.bonus.reward(ids, *batch)
        seconds.append(time.perf_counter() - began)
    drawn = [trial.bonus.sample(BATCH_SIZE, rng) for _ in range(BATCHES)]
    rewards = [trial.bonus.reward(ids, *trial.transitions(ids)) for ids in drawn]
    terms = [trial.bonus.reward_terms(ids, *trial.transitions(ids)) for ids in drawn]
    together = {name: np.concatenate([part[name] for part in terms]) for name in terms[0]}
    return Judgement(np.concatenate(drawn), np.concatenate(rewards), together, seconds)


def _taken(stored: Any, ids: Int[np.ndarray, " B"]) -> Any:
    return each_part(lambda part: part[ids], stored)
