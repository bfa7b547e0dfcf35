"""What a worker delivers, and where it is then. No JAX."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8


@dataclass(frozen=True)
class Rollout:
    """Consecutive steps of one episode by one worker, at most `local_steps`; it never crosses the
    end of an episode."""

    # T + 1: the last is what was seen after the last action
    frames: UInt8[np.ndarray, "frames H W"]
    actions: Int[np.ndarray, " T"]
    rewards: Float[np.ndarray, " T"]  # extrinsic
    positions: Float[np.ndarray, "frames 2"]
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
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Place:
    """Where a worker is between two rollouts: enough for another process to be there too, by living
    the episode again."""

    rollouts: int  # delivered so far: they number the worker's random draws
    episode: int  # index of its episode, which decides the seed of its reset
    actions: Int[np.ndarray, " N"]  # since the reset
    lstm: Float[np.ndarray, "2 hidden"]

    @staticmethod
    def first(hidden_size: int) -> "Place":
        return Place(0, 0, np.zeros(0, np.int32), np.zeros((2, hidden_size), np.float32))

    def after(self, rollout: Rollout) -> "Place":
        """Where the worker is when it has delivered the rollout."""
        if rollout.ended:
            return Place(
                self.rollouts + 1, self.episode + 1, self.actions[:0], np.zeros_like(self.lstm)
            )
        actions = np.concatenate([self.actions, rollout.actions])
        return Place(self.rollouts + 1, self.episode, actions, rollout.lstm_after.copy())
