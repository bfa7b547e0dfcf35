"""Replay buffers for Stable-Baselines3 and SBX whose batches carry an intrinsic reward.

    SAC("MlpPolicy", env, replay_buffer_class=IntrinsicReplayBuffer)

Every `add` tells the bonus what happened; every `sample` lets it learn once from the batch and puts
its reward in the place of the environment's, or adds it. The bonus sees the observations of the
environment, the agent those that `VecNormalize` made.

Draws are those of Stable-Baselines3, from NumPy's global generator, which `seed=` reaches. Rewards
that judge whole episodes (element, ngu, e3b, etd, any other that keeps notes) know nothing of a
transition until its episode has ended: such a draw is replaced by one among those that are known,
so a batch is uniform over these.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from element_rl.integrations.observations import each_part
from element_rl.integrations.replayed import IntrinsicReward


class IntrinsicReplayBuffer(ReplayBuffer):
    """A replay buffer for vectors, images and choices; `IntrinsicDictReplayBuffer` is the one for
    Dict observations."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        reward: str = "element",
        weight: float = 1.0,
        intrinsic_only: bool = True,
        total_steps: int | None = None,
        max_episode_steps: int = 1000,
        env_id: str | None = None,
        position: Sequence[str] | Sequence[int] | None = None,
        states: Any = None,
        recent_scale: bool = False,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        """The first seven arguments are Stable-Baselines3's own, and it fills them in.

        reward: one of `element_rl.rewards.INTRINSIC_NAMES`, FILE.py:FUNCTION, or a sum of them,
        such as "element + 0.5*rnd". weight: times the intrinsic reward. intrinsic_only: without the
        environment's reward; False adds it.
        total_steps: the `total_timesteps` of `learn`; sizes ELEMENT's update windows and memory.
        None: the windows grow with the run, from step 1,000 on. max_episode_steps, env_id,
        position, states, recent_scale, seed, options: see `IntrinsicReward`.
        """
        _refuse_unsupported(self, observation_space, optimize_memory_usage, unknown)
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            optimize_memory_usage=False,
            handle_timeout_termination=handle_timeout_termination,
        )
        self.weight, self.intrinsic_only = float(weight), intrinsic_only
        self._reward_name = reward
        self._bonus_settings: dict[str, Any] = dict(
            num_envs=n_envs,
            capacity=self.buffer_size * n_envs,
            total_steps=total_steps,
            max_episode_steps=max_episode_steps,
            env_id=env_id,
            position=position,
            states=states,
            recent_scale=recent_scale,
            seed=seed,
            options=options,
        )
        self._begin()

    def _begin(self) -> None:
        self.bonus = IntrinsicReward(
            self._reward_name, self.observation_space, self.action_space, **self._bonus_settings
        )
        # whether an episode is under way in each environment
        self._runs = np.zeros(self.n_envs, bool)
        # numbers and means of a batch
        self._latest: tuple[np.ndarray, dict[str, float]] = (np.zeros(0, np.int64), {})
        self._said_to_wait = False

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """One step of every environment, as Stable-Baselines3 stores it; `next_obs` is the true
        last observation."""
        if self._was_interrupted(obs):
            self.bonus.end_episodes()
        out_of_time = np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
        done = np.asarray(done, bool)
        self.bonus.observe(
            obs, action, next_obs, done & ~out_of_time, done & out_of_time, infos, reward
        )
        self._runs = ~done
        super().add(obs, next_obs, action, reward, done, infos)

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch whose rewards are, or include, the bonus; `env` is the `VecNormalize` of the
        agent, if any."""
        rows, envs, known = self._draw(batch_size)
        batch = self._transitions(rows, envs)
        observations, actions, next_observations, extrinsic, terminated = batch
        values = np.zeros(batch_size, np.float32)
        if known:
            values = self._learned(self._ids(rows, envs), batch)
        rewards = np.float32(self.weight) * values
        if not self.intrinsic_only:
            rewards = self._normalize_reward(extrinsic, env) + rewards
        data: dict[str, Any] = {
            "observations": each_part(self.to_torch, self._normalize_obs(observations, env)),
            "actions": self.to_torch(actions),
            "next_observations": each_part(
                self.to_torch, self._normalize_obs(next_observations, env)
            ),
            "dones": self.to_torch(terminated.astype(np.float32).reshape(-1, 1)),
            "rewards": self.to_torch(rewards.astype(np.float32).reshape(-1, 1)),
        }
        if isinstance(self, DictReplayBuffer):
            return DictReplayBufferSamples(**data)
        return ReplayBufferSamples(**data)

    @property
    def bonus_metrics(self) -> dict[str, float]:
        """Of the latest batch: the mean of the reward and of its terms, what the reward learned;
        and the memory's size."""
        ids, metrics = self._latest
        kept = ids[self.bonus.ready(ids)]
        terms: Mapping[str, np.ndarray] = {}
        # all still there: the terms are those of the batch that was learned from
        if len(kept) == len(ids) > 0:
            rows, envs = np.divmod(kept % self._capacity, self.n_envs)
            terms = self.bonus.reward_terms(kept, *self._transitions(rows, envs))
        means = {name: float(np.mean(values)) for name, values in terms.items()}
        return {**metrics, **means, "memory_size": float(self.bonus.memory_size)}

    def truncate_last_trajectory(self) -> None:
        """Ends the running episodes where they are, as after environments were reset.

        `add` sees by itself that an observation is not the one the last step led to, and does this;
        call it where a reset may lead to that very observation.
        """
        self.bonus.end_episodes()
        self._runs[:] = False

    def reset(self) -> None:
        """Empties the buffer; the bonus forgets as well."""
        super().reset()
        self._begin()

    @property
    def _capacity(self) -> int:
        return int(self.buffer_size * self.n_envs)

    def _draw(self, batch_size: int) -> tuple[Int[np.ndarray, " B"], Int[np.ndarray, " B"], bool]:
        """Rows and environments, and whether the bonus knows all of them; False only where it knows
        none at all."""
        rows = np.random.randint(0, self.size(), size=batch_size)  # noqa: NPY002  the generator that SB3 seeds
        envs = np.random.randint(0, high=self.n_envs, size=batch_size)  # noqa: NPY002
        unknown = np.flatnonzero(~self.bonus.ready(self._ids(rows, envs)))
        if len(unknown) == 0:
            return rows, envs, True
        seed = np.random.randint(0, 2**32, dtype=np.uint32)  # noqa: NPY002
        try:
            drawn = self.bonus.sample(len(unknown), np.random.default_rng(seed))
        except ValueError:
            self._say_to_wait()
            return rows, envs, False
        rows[unknown], envs[unknown] = np.divmod(drawn % self._capacity, self.n_envs)
        return rows, envs, True

    def _learned(
        self, ids: Int[np.ndarray, " B"], batch: tuple[Any, ...]
    ) -> Float[np.ndarray, " B"]:
        """The bonus learns once from the batch, then judges it."""
        metrics, values = self.bonus.update_and_reward(ids, *batch)
        self._latest = ids, {"reward": float(np.mean(values)), **metrics}
        return values

    def _ids(
        self, rows: Int[np.ndarray, " B"], envs: Int[np.ndarray, " B"]
    ) -> Int[np.ndarray, " B"]:
        """Numbers of the transitions that stand in these places now."""
        newest = self.bonus.observed - 1
        return newest - (newest - (rows * self.n_envs + envs)) % self._capacity

    def _transitions(
        self, rows: Int[np.ndarray, " B"], envs: Int[np.ndarray, " B"]
    ) -> tuple[Any, ...]:
        """Observations, actions, next observations, rewards, and whether the episode died there."""
        before, after = (
            each_part(lambda part: part[rows, envs], stored)
            for stored in (self.observations, self.next_observations)
        )
        terminated = self.dones[rows, envs] * (1 - self.timeouts[rows, envs]) > 0
        return before, self.actions[rows, envs], after, self.rewards[rows, envs], terminated

    def _was_interrupted(self, obs: Any) -> bool:
        """Whether the environments were reset in the middle of episodes, as `learn` and a loaded
        buffer do: nobody tells."""
        running = np.flatnonzero(self._runs)
        if len(running) == 0:
            return False
        last = (self.pos - 1) % self.buffer_size

        def differs(stored: np.ndarray, now: Any) -> bool:
            given = np.asarray(now)[running].astype(stored.dtype)  # choices have no shape here
            floats = stored.dtype.kind == "f"  # of which a NaN equals a NaN
            expected = stored[last, running].ravel()
            return not np.array_equal(expected, given.ravel(), equal_nan=floats)

        differences = each_part(differs, self.next_observations, obs)
        return any(differences.values()) if isinstance(differences, dict) else differences

    def _say_to_wait(self) -> None:
        if not self._said_to_wait:
            self._said_to_wait = True
            warnings.warn(
                f"No episode has ended in the first {self.bonus.observed} steps, so the agent "
                "learns with an intrinsic reward of 0 until one has: set learning_starts to at "
                "least the steps of an episode, times the environments.",
                stacklevel=4,
            )


class IntrinsicDictReplayBuffer(IntrinsicReplayBuffer, DictReplayBuffer):
    """The same for Dict observations: the bonus sees their parts side by side."""


class LogIntrinsic(BaseCallback):
    """Logs what the buffer's bonus did, as `intrinsic/...`, whenever an episode ends; at the end of
    training it warns if nothing was remembered."""

    def _on_step(self) -> bool:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, IntrinsicReplayBuffer):
            raise ValueError(
                "LogIntrinsic is for models with an IntrinsicReplayBuffer: give one as "
                "replay_buffer_class, or leave it out."
            )
        if np.any(self.locals["dones"]):
            for name, value in buffer.bonus_metrics.items():
                self.logger.record(f"intrinsic/{name}", value)
        return True

    def _on_training_end(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if isinstance(buffer, IntrinsicReplayBuffer):
            buffer.bonus.warn_if_memory_is_empty()


def _refuse_unsupported(
    buffer: ReplayBuffer,
    observation_space: spaces.Space,
    optimize_memory_usage: bool,
    unknown: Mapping[str, Any],
) -> None:
    kind = type(buffer).__name__
    of_dictionaries = isinstance(observation_space, spaces.Dict)
    if of_dictionaries != isinstance(buffer, DictReplayBuffer):
        other = "IntrinsicDictReplayBuffer" if of_dictionaries else "IntrinsicReplayBuffer"
        raise ValueError(f"{kind} cannot store observations of {observation_space}: use {other}.")
    if optimize_memory_usage:
        raise ValueError(
            f"{kind} stores the true last observation of every episode, which "
            "optimize_memory_usage=True drops: leave it out."
        )
    if "n_steps" in unknown:
        raise ValueError(
            f"{kind} does not support n-step returns, got n_steps={unknown['n_steps']}: leave "
            "n_steps out."
        )
    if unknown:
        raise ValueError(
            f"{kind} has no option {next(iter(unknown))!r}; docs/sb3.md lists those it has."
        )
