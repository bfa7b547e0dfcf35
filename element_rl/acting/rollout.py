"""What a worker delivers, and where it is then. No JAX."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8


@dataclass(frozen=True)
class Rollout:
    """Consecutive steps of one episode by one worker, at most `local_steps`; it never crosses the
    end of an episode."""

    # T + 1: the last is what was seen after the last action
    frames: UInt8[np.ndarray, "frames H W"] | Float[np.ndarray, "frames O"]
    actions: Int[np.ndarray, " T"] | Float[np.ndarray, "T A"]
    rewards: Float[np.ndarray, " T"]  # extrinsic
    positions: Float[np.ndarray, "frames C"]
    begins: bool  # the first frame is that of a reset
    terminated: bool  # of the last step, as is the next
    truncated: bool
    lstm: Float[np.ndarray, "2 hidden"]  # before the first frame; zero where the episode begins
    # after the frame before the last, with which the next rollout begins
    lstm_after: Float[np.ndarray, "2 hidden"]
    episode_seed: int

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def observations(self) -> UInt8[np.ndarray, "frames H W"]:
        """What other agents' rollouts call their frames."""
        return self.frames

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Place:
    """Where a worker is between two rollouts: enough for another process to be there too, by living
    the episode again."""

    rollouts: int  # delivered so far: they number the worker's random draws
    episode: int  # index of its episode, which decides the seed of its reset
    actions: Int[np.ndarray, " N"] | Float[np.ndarray, "N A"]  # since the reset
    lstm: Float[np.ndarray, "2 hidden"]

    @staticmethod
    def first(hidden_size: int, action_dim: int = 0) -> "Place":
        """Before the first episode, of choices, or of a Box with so many coordinates."""
        none = np.zeros((0, action_dim), np.float32) if action_dim else np.zeros(0, np.int32)
        return Place(0, 0, none, np.zeros((2, hidden_size), np.float32))

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "Place":
        """The opposite of `to_arrays`."""
        rollouts, episode = (int(count) for count in arrays["counts"])
        return Place(rollouts, episode, arrays["actions"], arrays["lstm"])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        counts = np.array([self.rollouts, self.episode])
        return {"counts": counts, "actions": self.actions, "lstm": self.lstm}

    def after(self, rollout: Rollout) -> "Place":
        """Where the worker is when it has delivered the rollout."""
        if rollout.ended:
            return Place(
                self.rollouts + 1, self.episode + 1, self.actions[:0], np.zeros_like(self.lstm)
            )
        actions = np.concatenate([self.actions, rollout.actions])
        return Place(self.rollouts + 1, self.episode, actions, rollout.lstm_after.copy())
