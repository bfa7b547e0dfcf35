"""RISE: a power of the distance to the k-th nearest neighbour, from the Rényi entropy of the
states.

    r(s') = ‖y − y_kNN‖^(1−α)

Rényi State Entropy Maximization for Exploration Acceleration in Reinforcement Learning,
https://arxiv.org/abs/2203.04297; the official code is github.com/yuanmingqi/RISE. For an order α
below 1 the reward is, up to constants, the state's share of the k-nearest-neighbour estimate of the
Rényi entropy: rare states weigh more than in Shannon's. Official settings: α = 0.1, k = 5, raw
observations of robots and 128 latent dimensions of a variational autoencoder for images, no
normalisation. The paper mixes r with the extrinsic reward by a weight that decays; there is none
here, hence no weight.

Departures:
1. Off-policy the bonus is recomputed for every sampled batch. With pool="whole", as `element
   explore` has it, neighbours are looked for among all states that the agent has visited in ended
   episodes (`whole_replay`); with pool="sample" among the last 4,096 draws from the replay
   (`sample_pool`). The paper trains on-policy and looks among the states of one round.
2. By default y is the state vector of ELEMENT, as the ELEMENT paper compares. `space="observation"`
   takes the raw observation, which is what the official code does for robots.
3. k is a setting. The paper chooses it by a search over the variance of the estimate; its code has
   k = 5.
4. The k-th neighbour, the state itself not counted. The official code takes the one after it, and
   computes rewards for the first steps of a round only (its loop over steps runs over the number of
   processes).
5. The bonus is about the next observation. The official code encodes the current one.
6. With few neighbours in the pool the farthest stands for the k-th, and with none the bonus is 0.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.replay.ring import Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.sample_pool import (
    KthNeighbourReward,
    Pool,
    check_pool,
    empty_pool,
)
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class RiseConfig:
    """The official code's parameters."""

    order: float = 0.1  # α of the Rényi entropy, between 0 and 1
    num_neighbours: int = 5  # k, the state itself not counted
    # compare ELEMENT's state vectors, or raw observations
    space: Literal["state", "observation"] = "state"
    # neighbours among the last draws from the replay, or among all states visited
    pool: Literal["sample", "whole"] = "sample"
    pool_size: int = 4_096  # how many draws with pool="sample"

    def __post_init__(self) -> None:
        order = (0 < self.order < 1, "above 0 and below 1")
        kept = (self.pool == "sample" or self.space == "state", "sample with space='observation'")
        check_settings(self, num_neighbours=check_pool(self), order=order, pool=kept)


class RiseState(NamedTuple):
    """What the reward of one agent knows."""

    pool: Pool


@dataclass(frozen=True)
class RiseReward(KthNeighbourReward):
    """The reward of the paper, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "rise"
    config: RiseConfig = field(default_factory=RiseConfig)

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> RiseState:
        del key  # nothing here is random
        width = spec.state_dim if self.config.space == "state" else spec.observation_dim
        return RiseState(empty_pool(self.config.pool_size, width))

    def vectors(self, state: RiseState, batch: Transitions) -> Float[Array, "B F"]:
        return batch.state if self.config.space == "state" else batch.next_observation

    def worth(self, state: RiseState, distance: Float[Array, " B"]) -> Float[Array, " B"]:
        """‖y − y_kNN‖^(1−α)."""
        return distance ** (1.0 - self.config.order)
