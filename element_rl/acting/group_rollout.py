"""What a worker delivers that has several environments of one agent, and where they are then. No
JAX.

All of them take T steps by one policy, one after the other across the ends of episodes; `pieces`
takes the steps apart again into the episodes they are of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

EPISODE_STREAM = 1_000_003


@dataclass(frozen=True)
class GroupRollout:
    """T steps of N environments of one agent."""

    envs: tuple[int, ...]  # their numbers
    observations: Shaped[np.ndarray, "T N ..."]
    actions: Int[np.ndarray, "T N"] | Float[np.ndarray, "T N A"]  # as drawn, unclipped
    rewards: Float[np.ndarray, "T N"]  # extrinsic
    positions: Float[np.ndarray, "T N C"]
    terminated: Bool[np.ndarray, "T N"]
    ended: Bool[np.ndarray, "T N"]
    begins: Bool[np.ndarray, " N"]  # an episode begins with the first step
    memory: Float[np.ndarray, "N 2 H"]  # before the first step
    memory_after: Float[np.ndarray, "N 2 H"]  # the last
    # observed and where after the last step: where an episode ended with it, of the next
    following: Shaped[np.ndarray, "N ..."]
    following_position: Float[np.ndarray, "N C"]
    # the last of an episode, in the rows of steps that ended one; the others hold nothing
    final: Shaped[np.ndarray, "T N ..."]
    final_position: Float[np.ndarray, "T N C"]
    episodes: Int[np.ndarray, " N"]  # index of the episode of the first step
    seed: int  # of the agent

    def __len__(self) -> int:
        """Steps of all environments together."""
        return self.ended.size


@dataclass(frozen=True)
class Piece:
    """The part of one episode that lies within a rollout: rows `first` to `last` of a column."""

    env: int
    column: int  # of the rollout's arrays
    first: int
    last: int  # + 1
    # M = steps + 1: what was seen after the last step included, before any reset
    observations: Shaped[np.ndarray, "M ..."]
    actions: Int[np.ndarray, " T"] | Float[np.ndarray, "T A"]
    rewards: Float[np.ndarray, " T"]  # extrinsic
    positions: Float[np.ndarray, "M C"]
    begins: bool
    terminated: bool
    truncated: bool
    episode_seed: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class GroupPlace:
    """Where a worker's environments are between two rollouts."""

    rollouts: int  # delivered so far: they number the random draws
    episodes: Int[np.ndarray, " N"]  # index of each environment's episode
    actions: tuple[Shaped[np.ndarray, "_ ..."], ...]  # since its reset, of each
    memory: Float[np.ndarray, "N 2 H"]

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "GroupPlace":
        """The opposite of `to_arrays`."""
        actions = tuple(arrays[f"actions/{index}"] for index in range(len(arrays["episodes"])))
        return GroupPlace(int(arrays["rollouts"]), arrays["episodes"], actions, arrays["memory"])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        each = {f"actions/{index}": actions for index, actions in enumerate(self.actions)}
        rollouts = np.array(self.rollouts)
        return {"rollouts": rollouts, "episodes": self.episodes, "memory": self.memory, **each}

    def after(self, rollout: GroupRollout) -> "GroupPlace":
        """Where they are when the worker has delivered the rollout."""
        actions = []
        for column, before in enumerate(self.actions):
            ends = np.flatnonzero(rollout.ended[:, column])
            since = rollout.actions[int(ends[-1]) + 1 if len(ends) else 0 :, column]
            actions.append(np.concatenate([before[:0] if len(ends) else before, since]))
        episodes = self.episodes + rollout.ended.sum(axis=0)
        return GroupPlace(self.rollouts + 1, episodes, tuple(actions), rollout.memory_after.copy())


def pieces(rollout: GroupRollout) -> list[Piece]:
    """The episodes of a rollout, environment by environment, in the order of their steps."""
    found = []
    for column, env in enumerate(rollout.envs):
        ends = [int(step) + 1 for step in np.flatnonzero(rollout.ended[:, column])]
        steps = len(rollout.ended)
        bounds = [0, *ends] if ends and ends[-1] == steps else [0, *ends, steps]
        for number, (first, last) in enumerate(pairwise(bounds)):
            found.append(_piece(rollout, column, env, number, first, last))
    return found


def _piece(
    rollout: GroupRollout, column: int, env: int, number: int, first: int, last: int
) -> Piece:
    rows, ended = (slice(first, last), column), bool(rollout.ended[last - 1, column])
    after, place = (
        (rollout.final[last - 1, column], rollout.final_position[last - 1, column])
        if ended
        else (rollout.following[column], rollout.following_position[column])
    )
    terminated = bool(rollout.terminated[last - 1, column])
    return Piece(
        env,
        column,
        first,
        last,
        np.concatenate([rollout.observations[rows], after[None]]),
        rollout.actions[rows],
        rollout.rewards[rows],
        np.concatenate([rollout.positions[rows], place[None]]),
        bool(rollout.begins[column]) or number > 0,
        terminated,
        ended and not terminated,
        episode_seed(rollout.seed, env, int(rollout.episodes[column]) + number),
    )


def episode_seed(seed: int, env: int, episode: int) -> int:
    """What an environment of an agent is reset with for an episode."""
    entropy = [seed, env, EPISODE_STREAM, episode]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def joined(rollouts: Sequence[GroupRollout]) -> GroupRollout:
    """The environments of several workers side by side."""
    if len(rollouts) == 1:
        return rollouts[0]
    first = rollouts[0]
    timed = (
        *("observations", "actions", "rewards", "positions", "terminated", "ended"),
        *("final", "final_position"),
    )
    each = ("begins", "memory", "memory_after", "following", "following_position", "episodes")
    parts = {
        name: np.concatenate([getattr(one, name) for one in rollouts], axis=int(name in timed))
        for name in (*timed, *each)
    }
    envs = tuple(env for one in rollouts for env in one.envs)
    return GroupRollout(envs=envs, seed=first.seed, **parts)
