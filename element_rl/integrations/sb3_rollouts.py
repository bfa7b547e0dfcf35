"""A callback that gives PPO, A2C and their kin an intrinsic reward before the advantages are used.

    PPO("MlpPolicy", env).learn(100_000, callback=IntrinsicCallback("element"))

Stable-Baselines3 computes the advantages of a rollout before it tells a callback that the rollout
is over, so a reward that is added then comes too late. But advantages are linear in the rewards:
what a change b of the rewards adds to them is

    c_t = b_t + γ λ c_{t+1}          and, where the episode ended after t, c_t = b_t

which needs no value function. So this works alike for every algorithm that has Stable-Baselines3's
rollout buffer: PPO, A2C, MaskablePPO, RecurrentPPO, TRPO and SBX's PPO. Where an episode ran out of
time, the algorithm adds γ V(last observation) to the reward; that stays, also when the bonus takes
the place of the environment's reward. For that, the environment's is set to 0 at every step, before
the algorithm stores it: taken away afterwards, a large one would take digits of the advantages with
it.

The bonus sees the observations of the environment, also where `VecNormalize` makes others for the
agent.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from element_rl.integrations.observations import each_part, stacked
from element_rl.integrations.rollouts import RolloutReward
from element_rl.storage.files import read_json_object, write_json

SETTINGS = "callback.json"


class IntrinsicCallback(BaseCallback):
    """Puts an intrinsic reward into every rollout."""

    def __init__(
        self,
        reward: str = "element",
        *,
        weight: float = 1.0,
        intrinsic_only: bool = True,
        total_steps: int | None = None,
        max_episode_steps: int = 1000,
        env_id: str | None = None,
        position: Sequence[str] | Sequence[int] | None = None,
        states: Any = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        verbose: int = 0,
    ) -> None:
        """
        reward: one of `element_rl.rewards.INTRINSIC_NAMES`, FILE.py:FUNCTION, or a sum of them,
        such as "element + 0.5*rnd". weight: times the intrinsic reward. intrinsic_only: without the
        environment's reward; False adds it.
        total_steps: sizes ELEMENT's update windows and memory; None: the `total_timesteps` of the
        first `learn`. max_episode_steps, env_id, position, states, seed, options: see
        `RolloutReward`.
        """
        super().__init__(verbose)
        self.weight, self.intrinsic_only = float(weight), intrinsic_only
        # made when the environments are known, at the beginning of `learn`
        self.bonus: RolloutReward | None = None
        self._reward_name, self._total_steps = reward, total_steps
        self._bonus_settings: dict[str, Any] = dict(
            max_episode_steps=max_episode_steps,
            env_id=env_id,
            position=position,
            states=states,
            seed=seed,
            options=options,
        )
        # whether an episode is under way, after the last rollout
        self._runs: Bool[np.ndarray, " E"] | None = None
        self._steps: list[tuple[Any, ...]] = []  # of the rollout under way

    def save(self, folder: str | Path) -> None:
        """Writes the bonus with all it knows, beside what `model.save` writes; not an own function
        for the states."""
        if self.bonus is None:
            raise ValueError("There is no bonus to save before learn has begun.")
        self.bonus.save(folder)
        write_json(
            Path(folder) / SETTINGS, {"weight": self.weight, "intrinsic_only": self.intrinsic_only}
        )

    @classmethod
    def load(cls, folder: str | Path, states: Any = None) -> "IntrinsicCallback":
        """The callback that was saved, for the next `learn`; `states` is the own function, where
        there was one."""
        callback = cls(**read_json_object(Path(folder) / SETTINGS))
        callback.bonus = RolloutReward.load(folder, states)
        return callback

    def _on_training_start(self) -> None:
        _refuse_unsupported(self.model)
        if self.bonus is None:
            total_steps = self._total_steps or int(self.model._total_timesteps)
            self.bonus = RolloutReward(
                self._reward_name,
                self.model.observation_space,
                self.model.action_space,
                num_envs=self.model.n_envs,
                total_steps=total_steps,
                **self._bonus_settings,
            )

    def _on_rollout_start(self) -> None:
        assert self.bonus is not None
        begins = np.asarray(self.model._last_episode_starts, bool)
        interrupted = self._runs is None or bool(np.any(self._runs & begins)) or bool(self._steps)
        # environments were reset in the middle of an episode, or steps were lost: what follows is
        # another
        if interrupted:
            self.bonus.end_episodes()
        self._steps = []
        normalised = self.model.get_vec_normalize_env()
        self._observations = (
            self.model._last_obs if normalised is None else normalised.get_original_obs()
        )

    def _on_step(self) -> bool:
        """Keeps what happened. The algorithm bootstraps and stores the reward after this."""
        step = self.locals
        normalised = self.model.get_vec_normalize_env()
        following = step["new_obs"] if normalised is None else normalised.get_original_obs()
        actions = _scaled(self.model.action_space, step.get("clipped_actions", step["actions"]))
        dones, infos = np.array(step["dones"], bool), step["infos"]
        reached = _with_last_observations(following, dones, infos, normalised)
        out_of_time = np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
        ends = dones & ~out_of_time, dones & out_of_time
        self._steps.append(
            (
                self._observations,
                actions,
                reached,
                *ends,
                infos,
                np.array(step["rewards"], np.float32),
            )
        )
        self._observations = following
        if self.intrinsic_only:
            step["rewards"][:] = 0.0
        return True

    def _on_rollout_end(self) -> None:
        assert self.bonus is not None
        before, actions, reached, terminated, truncated, infos, rewards = zip(
            *self._steps, strict=True
        )
        self._steps = []
        self._runs = ~(terminated[-1] | truncated[-1])
        values = self.bonus.rollout(
            stacked(before),
            np.stack(actions),
            stacked(reached),
            np.stack(terminated),
            np.stack(truncated),
            infos,
            np.stack(rewards),
        )
        add_to_rewards(self.model.rollout_buffer, np.float32(self.weight) * values)
        self._log(values)

    def _on_training_end(self) -> None:
        assert self.bonus is not None
        self.bonus.warn_if_memory_is_empty()

    def _log(self, values: Float[np.ndarray, "T E"]) -> None:
        assert self.bonus is not None
        means = {name: float(np.mean(term)) for name, term in self.bonus.last_terms.items()}
        for name, value in {
            "reward": float(np.mean(values)),
            **means,
            **self.bonus.last_metrics,
        }.items():
            self.logger.record(f"intrinsic/{name}", value)


def add_to_rewards(buffer: RolloutBuffer, change: Float[np.ndarray, "T E"]) -> None:
    """Adds to the rewards of a full rollout, and to its advantages and returns what they would then
    have been more."""
    added = np.zeros(buffer.n_envs, np.float32)
    additions = np.zeros_like(change)
    for step in reversed(range(buffer.buffer_size)):
        if step + 1 < buffer.buffer_size:
            added = added * (
                buffer.gamma * buffer.gae_lambda * (1.0 - buffer.episode_starts[step + 1])
            )
        additions[step] = added = change[step] + added
    buffer.rewards += change
    buffer.advantages += additions
    buffer.returns += additions


def _with_last_observations(
    following: Any, dones: Bool[np.ndarray, " E"], infos: Any, normalised: VecNormalize | None
) -> Any:
    """The observations the step led to: where an episode ended, the last of that and not the first
    of the next."""
    if not dones.any():
        return following
    reached = each_part(np.array, following)
    for env in np.flatnonzero(dones).tolist():
        last = infos[env].get("terminal_observation")
        if last is not None:
            last = last if normalised is None else normalised.unnormalize_obs(last)
            each_part(partial(_put, env), reached, last)
    return reached


def _put(row: int, part: np.ndarray, value: Any) -> None:
    part[row] = value


def _scaled(space: spaces.Space, actions: Any) -> np.ndarray:
    """Actions within bounds on the scale [-1, 1], which rewards that tell actions can reach; others
    as they are."""
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        return np.array(actions)
    return np.asarray(2.0 * (actions - space.low) / (space.high - space.low) - 1.0, np.float32)


def _refuse_unsupported(model: Any) -> None:
    buffer = getattr(model, "rollout_buffer", None)
    if not isinstance(buffer, RolloutBuffer):
        raise ValueError(
            "IntrinsicCallback is for algorithms with rollouts, such as PPO, not for "
            f"{type(model).__name__}: give IntrinsicReplayBuffer as its replay_buffer_class."
        )
    if (
        type(buffer).compute_returns_and_advantage
        is not RolloutBuffer.compute_returns_and_advantage
    ):
        raise ValueError(
            f"{type(buffer).__name__} computes advantages of its own, which IntrinsicCallback "
            "would not change: use the rollout buffer of Stable-Baselines3."
        )
